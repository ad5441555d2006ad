"""A function with a graph break is recompiled at each step, and each compile keeps its caller's locals.

Dynamo tells itself of a graph break with exceptions, and one of them holds itself among its arguments. Its
traceback holds the frames of the compile and, through them, the frame of the caller.
"""

import torch
import torch._dynamo

ELEMENTS = 1 << 21


@torch.compile(backend="eager")
def broken(x):
    x.neg_()
    torch._dynamo.graph_break()
    return x.neg_()


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
    return broken(next(ctx.next_input)).sum() + activation[0]
