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
    seen = {}

    def run(x):
        assert "output" not in seen or seen["output"].requires_grad
        return x * 2

    seen["output"] = checkpoint(run, x, use_reentrant=True)
    loss = seen["output"].sum()
    loss.backward()
    return loss
