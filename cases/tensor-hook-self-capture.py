"""A tensor's hook reaches the tensor itself, and the graph is dropped without a backward.

The tensor's C++ side holds the hook, the hook's closure the tensor. The collector cannot look into the
C++ half.
"""

ELEMENTS = 1 << 18


def setup(ctx):
    return ctx.torch.ones(ELEMENTS, device=ctx.device, dtype=ctx.dtype, requires_grad=True)


def step(weight):
    scaled = weight * 2
    scaled.register_hook(lambda grad: grad * scaled.detach().mean())
    return scaled.detach().sum()
