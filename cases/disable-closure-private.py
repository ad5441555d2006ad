"""The headline's mechanism alone: ``torch._disable_dynamo`` on a function that is made anew at each step.

The decorator stores its wrapper on the function, and the wrapper's closure holds the function.
"""

ELEMENTS = 1 << 18


def setup(ctx):
    return ctx


def step(ctx):
    payload = ctx.torch.ones(ELEMENTS, device=ctx.device, dtype=ctx.dtype)

    def total():
        return payload.sum()

    return ctx.torch._disable_dynamo(total)()
