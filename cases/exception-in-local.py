"""A caught exception stays in a local variable, as in loops that retry after running out of memory.

The exception holds its traceback, the traceback the frame, and the frame its local variables: the
exception among them, and everything that the attempt had allocated.
"""

ELEMENTS = 1 << 18


def setup(ctx):
    return ctx


def attempt(ctx):
    """Fails with an activation in hand, and remembers how."""
    activation = ctx.torch.ones(ELEMENTS, device=ctx.device, dtype=ctx.dtype)
    failure = None
    try:
        raise RuntimeError("out of memory")
    except RuntimeError as error:
        failure = error
    return activation.sum() if failure else None


def step(ctx):
    return attempt(ctx)
