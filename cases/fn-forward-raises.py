"""A pack hook raises while a custom Function saves its own outputs.

The Function's node holds the outputs in a temporary tuple until each is packed. The exception skips the
line that drops the tuple: the node keeps the outputs, and they keep their node. No checkpoint is needed.
"""

from torch.autograd import Function
from torch.autograd.graph import saved_tensors_hooks

ELEMENTS = 1 << 18


class TwoProducts(Function):
    """Saves both of its outputs."""

    @staticmethod
    def forward(ctx, x):
        double, triple = x * 2, x * 3
        ctx.save_for_backward(double, triple)
        return double, triple

    @staticmethod
    def backward(ctx, grad_double, grad_triple):
        raise AssertionError("the forward never ends")


class NoRoomError(Exception):
    """What the pack hook raises."""


def refuse(tensor):
    raise NoRoomError


def setup(ctx):
    return ctx.torch.ones(ELEMENTS, device=ctx.device, dtype=ctx.dtype, requires_grad=True)


def step(weight):
    try:
        with saved_tensors_hooks(refuse, lambda packed: packed):
            TwoProducts.apply(weight)
    except NoRoomError:
        pass
