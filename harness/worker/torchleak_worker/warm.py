"""Imports what the first steps of common programs would import in every child."""

import gc
import importlib

# torch.utils.checkpoint imports torch._dynamo at its first call.
_LAZY_MODULES = (
    "torch",
    "torch._dynamo",
    "torch.utils.checkpoint",
)

_frozen = 0


def import_and_freeze() -> None:
    """Imports the modules, once for all children, and takes them out of the collector's sight.

    A frozen object is never visited by a collection, so each forced collect of an arm costs what the arm made
    and not the four hundred thousand objects of the imports.
    """
    global _frozen
    # The collector would walk the growing heap again and again during the import and find next to nothing.
    gc.disable()
    for name in _LAZY_MODULES:
        importlib.import_module(name)
    gc.freeze()
    _frozen = gc.get_freeze_count()


def frozen_objects() -> int:
    """Gives `gc.get_freeze_count()` as it was after the import: counting again walks all of them."""
    return _frozen
