"""The first checkpoint of a process imports ``torch._dynamo`` while the caller's tensors are alive.

It is fx-wrap-lazy-import met in training: ``torch.fx.wrap``, called by an imported module, leaves a frame
that refers to itself and leads back to the frame of the step, whose local variables it pins.
"""

import sys

from torch.utils.checkpoint import checkpoint

ELEMENTS = 1 << 23


def setup(ctx):
    assert "torch._dynamo" not in sys.modules, "the import under test has happened already"
    return ctx


def step(ctx):
    x = ctx.torch.ones(ELEMENTS, device=ctx.device, dtype=ctx.dtype, requires_grad=True)
    loss = checkpoint(lambda x: x.sin(), x, use_reentrant=False).sum()
    loss.backward()
    assert "torch._dynamo" in sys.modules, "nothing was imported, so there is nothing to see"
    return loss
