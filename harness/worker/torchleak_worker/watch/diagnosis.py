"""Looks at the garbage of a watched process, and plants some to see that it would be found."""

import contextlib
import statistics
import time
from collections.abc import Iterator
from typing import Any

import torch
import torchleak_probe as probe

from torchleak_worker.collector import gc
from torchleak_worker.loop import bytes_of, collect_to_fixpoint
from torchleak_worker.survivors import Storages
from torchleak_worker.watch import counters

# As in `torchleak run`: a few times what is called flat.
_CONTROL_BYTES = 16 * 1024
_PLANTS = 5


@contextlib.contextmanager
def garbage() -> Iterator[list]:
    """Collects and gives what was found, which is freed at the end.

    What the script itself had put into ``gc.garbage``, and its debug flags, are kept.
    """
    flags, kept = gc.get_debug(), gc.garbage[:]
    gc.garbage.clear()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        gc.set_debug(flags)
        yield gc.garbage
    finally:
        gc.set_debug(flags)
        if gc.garbage:
            # What was saved is garbage again, and now it is freed.
            gc.garbage.clear()
            collect_to_fixpoint(2)
        gc.garbage.extend(kept)


def look(*, newborn: Storages | None, show_values: bool) -> dict[str, Any]:
    """Gives the protocol's ``WatchGarbage``, but for its step.

    What holds those of ``newborn`` that live on is asked for, if there are such.
    """
    began = time.perf_counter()
    with garbage() as found:
        objects = len(found)
        looked = probe.look(found, show_values)
    retained = None if newborn is None else newborn.retained(show_values=show_values)
    # Unlike the counters it has also what is in shared memory and in mapped files.
    live = probe.census()
    return {
        "objects": objects,
        **looked.settled(),
        "retained": retained,
        "live": live,
        "seconds": time.perf_counter() - began,
    }


def control() -> dict[str, Any]:
    """Plants a cycle that holds one tensor and gives the protocol's ``Control``.

    It is planted after a collection and before the script goes on, so that nothing else can be what is found.
    """
    if counters.level() is None:
        return {"detected": False, "reason": "this platform does not tell the bytes in use"}
    # Modes that the script has set neither see it nor change it.
    with _old_objects_aside(), torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        # The first time something is kept for the next: caches of torch, of Python and of the probe.
        _detect()
        found = [_detect() for _ in range(_PLANTS)]
    # glibc counts what a thread keeps for reuse as handed out, so that single readings are off by a few KiB.
    raised, in_garbage, freed = (statistics.median(values) for values in zip(*found, strict=True))
    least = 0.9 * _CONTROL_BYTES
    return {
        "detected": in_garbage == _CONTROL_BYTES and raised >= least and freed >= least,
        "reason": f"planted cycles with {_CONTROL_BYTES} bytes raised memory by {raised:.0f}, a collect "
        f"found {in_garbage:.0f} bytes of tensors and freed {freed:.0f} (medians of {_PLANTS})",
    }


@contextlib.contextmanager
def _old_objects_aside() -> Iterator[None]:
    """Keeps what has just survived a full collect out of the collections meanwhile: they are quick then."""
    is_free = gc.get_freeze_count() == 0
    if is_free:
        gc.freeze()
    try:
        yield
    finally:
        # It goes back to the oldest generation, where a full collect had put it.
        if is_free:
            gc.unfreeze()


def _detect() -> tuple[int, int, int]:
    """Plants a cycle, and gives by how much memory rose, bytes of tensors in garbage, and bytes freed."""
    cuda = counters.cuda_is_used()
    device = torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")
    low = counters.level() or 0
    _plant(device)
    high = counters.level() or 0
    with garbage() as found:
        looked = probe.look(found)
    in_garbage = bytes_of(looked.settled()["census"])
    # What was found is no part of what is left.
    del looked
    return high - low, in_garbage, high - (counters.level() or 0)


def _plant(device: torch.device) -> None:
    holder: list[object] = [torch.empty(_CONTROL_BYTES, dtype=torch.uint8, device=device)]
    holder.append(holder)
