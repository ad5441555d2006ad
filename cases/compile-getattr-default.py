"""``getattr`` with a default inside traced code keeps the local variables of the compiled function's caller.

Dynamo follows the AttributeError that the default answers with an exception of its own, which it keeps.
Its traceback holds the frames of the compile and, through them, the frame of the caller.
"""

import torch
import torch._dynamo

ELEMENTS = 1 << 21


class Settings:
    """Has no attribute at all."""

    def __getattr__(self, name):
        raise AttributeError(name)


SETTINGS = Settings()


@torch.compile(backend="eager")
def scaled(x):
    return x.mul_(getattr(SETTINGS, "scale", 2.0))


def setup(ctx):
    config = torch._dynamo.config
    # A size that has changed once would become a symbol, and nothing would be compiled again.
    config.automatic_dynamic_shapes = False
    if hasattr(config, "run_gc_after_compile"):
        config.run_gc_after_compile = False  # It would sweep the cycle at once.
    # The inputs outlive the compiles and are written in place, so that whatever is kept is the caller's.
    ctx.inputs = [torch.ones(2 + step, device=ctx.device, dtype=ctx.dtype) for step in range(ctx.steps + 2)]
    ctx.next_input = iter(ctx.inputs)
    return ctx


def step(ctx):
    activation = torch.ones(ELEMENTS, device=ctx.device, dtype=ctx.dtype)
    return scaled(next(ctx.next_input)).sum() + activation[0]
