"""A compiled function is compiled anew at each step, and each compile keeps the input that caused it.

The input is a new one each time; the guard that fails is that of a number.
"""

from itertools import count

import torch
import torch._dynamo

ROWS, COLUMNS = 2048, 1024


@torch.compile(backend="eager")
def shifted(x, shift):
    return (x.sin() + shift).sum()


def setup(ctx):
    config = torch._dynamo.config
    # A number that has changed once would become a symbol, and nothing would be compiled again.
    config.automatic_dynamic_shapes = False
    if hasattr(config, "run_gc_after_compile"):
        config.run_gc_after_compile = False  # It would sweep the cycle at once.
    ctx.shifts = count()
    return ctx


def step(ctx):
    x = torch.ones(ROWS, COLUMNS, device=ctx.device, dtype=ctx.dtype)
    return shifted(x, next(ctx.shifts))
