"""The first call through ``torch._disable_dynamo`` imports ``torch._dynamo`` on top of its caller.

One of the imported modules calls ``torch.fx.wrap``, which looks at its caller's frame and leaves a frame
that refers to itself. That frame leads back, frame by frame, to all that were running: the import pins
the caller's local variables.
"""

import sys

import torch

ELEMENTS = 1 << 23


@torch._disable_dynamo
def total(payload):
    return payload.sum()


def setup(ctx):
    assert "torch._dynamo" not in sys.modules, "the import under test has happened already"
    return ctx


def step(ctx):
    payload = torch.ones(ELEMENTS, device=ctx.device, dtype=ctx.dtype)
    loss = total(payload)
    assert "torch._dynamo" in sys.modules, "nothing was imported, so there is nothing to see"
    return loss
