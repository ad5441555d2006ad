"""A multi-grad hook is registered at each step and never removed.

Its state holds the grad_fn of each tensor that it watches, and each grad_fn holds the hook. Their graph
ends in a leaf that only C++ holds: a collect frees it with its gradient, and no tensor is ever in
garbage.
"""

from torch.autograd.graph import register_multi_grad_hook

ELEMENTS = 1 << 18


def setup(ctx):
    return ctx


def step(ctx):
    leaf = ctx.torch.ones(ELEMENTS, device=ctx.device, dtype=ctx.dtype, requires_grad=True)
    left, right = leaf * 2, leaf * 3
    register_multi_grad_hook((left, right), lambda grads: None)
    loss = (left * right).sum()
    loss.backward()
    return loss
