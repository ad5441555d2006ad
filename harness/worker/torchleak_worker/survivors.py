"""Which storages of one step live on for further steps."""

from collections.abc import Iterator
from typing import Any

import torch
import torchleak_probe as probe
from torch.multiprocessing.reductions import StorageWeakRef

from torchleak_worker.collector import gc

# What is replaced at each step, such as a batch or a gradient, is gone after one step, and what a program
# keeps of the step before is gone after two.
STEPS = 2


class Storages:
    """The storages of the tensors that are alive at a moment, held weakly.

    An address alone would not do, because it is soon used again, in the same step at times: what a step
    frees is given to what it keeps. A weak reference to a tensor would be noticed by the program:
    `torch.utils.swap_tensors` refuses tensors that have one.
    """

    def __init__(self, without: "Storages | None" = None) -> None:
        """Takes those alive now, without those that ``without`` has and that are still alive."""
        self._references: dict[int, StorageWeakRef] = {}
        known = set() if without is None else without.alive()
        # The probe tells sooner than Python that a step left nothing new.
        if known and not probe.live_storages() - known:
            return
        with torch._C.DisableTorchFunction():
            for storage in _storages():
                address = storage.data_ptr()
                if address and address not in known and address not in self._references:
                    self._references[address] = StorageWeakRef(storage)

    def alive(self) -> set[int]:
        """Gives the addresses of those that are still alive."""
        return {address for address, kept in self._references.items() if not kept.expired()}

    def retained(self, *, show_values: bool) -> dict[str, Any] | None:
        """Says what holds those that are still alive: the protocol's ``RetentionReport``, or None."""
        alive = self.alive()
        live = probe.live_storages()
        if not alive & live:
            return None
        return probe.retained_by(before=live - alive, show_values=show_values)


def _storages() -> Iterator[Any]:
    """Gives the storages of all live tensors, without running code of their classes."""
    base = torch._C.TensorBase
    decided: dict[int, bool] = {}
    for instance in gc.get_objects():
        kind = type(instance)
        if id(kind) not in decided:
            decided[id(kind)] = type.__subclasscheck__(base, kind)
        if not decided[id(kind)]:
            continue
        # A tensor without memory of its own has no storage, or none that tells an address.
        try:
            storage = base.untyped_storage(instance)
            storage.data_ptr()
        except Exception:
            continue
        yield storage
