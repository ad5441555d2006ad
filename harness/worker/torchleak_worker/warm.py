"""Imports what the first steps of common programs would import in every child."""

import importlib

# torch.utils.checkpoint imports torch._dynamo at its first call and the optimizers at theirs.
_LAZY_MODULES = (
    "torch._dynamo",
    "torch.utils.checkpoint",
)


def import_lazy_modules() -> None:
    """Imports the modules that exist in this torch."""
    for name in _LAZY_MODULES:
        importlib.import_module(name)
