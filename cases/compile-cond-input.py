"""A compiled frame with ``torch.cond`` keeps the first input that it was compiled for.

A function is compiled at each step, as by code that compiles in a factory. What keeps the input differs
between releases: Dynamo's code generator, or its record of side effects.
"""

import torch
import torch._dynamo

ELEMENTS = 1 << 21


def setup(ctx):
    config = torch._dynamo.config
    if hasattr(config, "run_gc_after_compile"):
        config.run_gc_after_compile = False  # A collection by the program would hide whatever else leaks.
    ctx.compiled = []
    return ctx


def step(ctx):
    torch._dynamo.reset()

    @torch.compile(backend="eager")
    def sine_or_cosine(x):
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

    ctx.compiled.append(sine_or_cosine)
    return sine_or_cosine(torch.ones(ELEMENTS, device=ctx.device, dtype=ctx.dtype)).sum()
