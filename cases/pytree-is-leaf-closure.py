"""``tree_flatten`` keeps the caller's ``is_leaf``, and with it whatever its closure holds.

Its recursive helper is a closure over itself and over ``is_leaf``. Each call leaves that cycle behind.
"""

from torch.utils import _pytree as pytree

ELEMENTS = 1 << 18


def setup(ctx):
    return ctx


def step(ctx):
    tree = {"weight": ctx.torch.ones(ELEMENTS, device=ctx.device, dtype=ctx.dtype)}
    leaves, _ = pytree.tree_flatten(tree, is_leaf=lambda node: node is not tree)
    return leaves[0].sum()
