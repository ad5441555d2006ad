"""``torch.save`` keeps every storage that it wrote.

The Pickler subclass that ``_save`` defines at each call refers to itself, as every class does, and its
methods close over the dict of the storages to write. The garbage holds storages and no tensor.
"""

import io

ELEMENTS = 1 << 18


def setup(ctx):
    return ctx


def step(ctx):
    weight = ctx.torch.ones(ELEMENTS, device=ctx.device, dtype=ctx.dtype)
    ctx.torch.save({"weight": weight}, io.BytesIO())
    return weight.sum()
