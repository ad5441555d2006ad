"""An in-place Function saves the view that it marks as dirty, and its graph is dropped without a backward.

The view's grad_fn becomes the Function's node, and the node's saved variable holds the view: C++ refers
to C++ in a circle that the collector cannot walk.
"""

from torch.autograd import Function

ROWS, COLUMNS = 4, 1 << 16


class InPlaceRelu(Function):
    """Relu that overwrites its input and saves it for its mask."""

    @staticmethod
    def forward(ctx, x):
        x.relu_()
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x > 0)


def setup(ctx):
    return ctx.torch.ones(ROWS, COLUMNS, device=ctx.device, dtype=ctx.dtype, requires_grad=True)


def step(weight):
    base = weight + 1
    return InPlaceRelu.apply(base[0]).detach().sum()
