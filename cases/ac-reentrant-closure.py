"""A function that is checkpointed the reentrant way reaches the checkpoint's own output.

``CheckpointFunction`` keeps the function that it runs on its ctx. The output keeps the ctx, as its
grad_fn, and the function's closure keeps the output.
"""

from torch.utils.checkpoint import checkpoint

ELEMENTS = 1 << 18


def setup(ctx):
    return ctx


def step(ctx):
    x = ctx.torch.ones(ELEMENTS, device=ctx.device, dtype=ctx.dtype, requires_grad=True)
    block = {"scale": 2}

    def run(x):
        return x * block["scale"]

    block["output"] = checkpoint(run, x, use_reentrant=True)
    loss = block["output"].sum()
    loss.backward()
    return loss
