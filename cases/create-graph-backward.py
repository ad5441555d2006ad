"""``backward(create_graph=True)`` accumulates a gradient that has a graph of its own.

The leaf holds its gradient, the gradient its grad_fn, and that graph ends in the leaf. All of it is C++.
"""

ELEMENTS = 1 << 18


def setup(ctx):
    return ctx


def step(ctx):
    leaf = ctx.torch.ones(ELEMENTS, device=ctx.device, dtype=ctx.dtype, requires_grad=True)
    loss = leaf.tanh().sum()
    loss.backward(create_graph=True)
    return loss.detach()
