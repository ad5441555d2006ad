"""Early stop cuts a custom Function off while it saves its own outputs.

The recompute of a checkpoint ends with an exception at the last tensor that backward needs. Here that is
an output of ``TwoProducts``, packed while the Function's node still holds its outputs in a temporary
tuple. The exception skips the line that drops the tuple: the node keeps the outputs, and they keep their
node.
"""

from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

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
        assert len(ctx.saved_tensors) == 2
        return grad_double * 2 + grad_triple * 3


def last_op(x):
    return TwoProducts.apply(x)[0]


def setup(ctx):
    return ctx.torch.ones(ELEMENTS, device=ctx.device, dtype=ctx.dtype, requires_grad=True)


def step(weight):
    loss = checkpoint(last_op, weight, use_reentrant=False).sum()
    loss.backward()
    weight.grad = None
    return loss
