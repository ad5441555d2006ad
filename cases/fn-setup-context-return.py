"""``setup_context`` returns an object, and nobody releases it.

The Function protocol ignores what ``setup_context`` returns. The C++ that calls it takes the returned
reference and never gives it up, so any object lives for ever, here a view of the output.
"""

from torch.autograd import Function

ELEMENTS = 1 << 18


class Double(Function):
    """Returns something from a method that should return nothing."""

    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        return output.detach()

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def setup(ctx):
    return ctx.torch.ones(ELEMENTS, device=ctx.device, dtype=ctx.dtype, requires_grad=True)


def step(weight):
    loss = Double.apply(weight).sum()
    loss.backward()
    weight.grad = None
    return loss
