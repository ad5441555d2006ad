"""Plants reference cycles and asks the probe about them.

It needs no torch: a class of its own can stand for the tensor, so that every Python can be tested.
"""

import gc
from collections.abc import Callable

import torchleak_probe as probe


class Held:
    """Stands for a tensor; a list in it makes it tracked on every Python."""

    def __init__(self):
        self.tracked = []


class Plain:
    """An instance with attributes."""


def garbage_of(plant: Callable[[], object]) -> list:
    """Return what a full collect finds after `plant` ran and all that it returned is dropped."""
    enabled = gc.isenabled()
    gc.disable()
    while gc.collect():
        pass
    plant()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return gc.garbage[:]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        if enabled:
            gc.enable()


def report_of_live(plant: Callable[[], object], **options) -> dict:
    """Return the report about what `plant` makes and returns, before any collect.

    A collect closes a suspended generator or coroutine before it looks for garbage, which breaks a cycle
    through its variables.
    """
    enabled = gc.isenabled()
    gc.disable()
    gc.collect()
    before = {id(known) for known in gc.get_objects()}
    kept = plant()
    made = [found for found in gc.get_objects() if id(found) not in before and found is not before]
    report = probe.cycles(made, **options)
    del kept
    if enabled:
        gc.enable()
    return report


def report_of(plant: Callable[[], object], **options) -> dict:
    """Return the report about what `plant` leaves."""
    return probe.cycles(garbage_of(plant), **options)


def edges(hops: list[dict]) -> list[str]:
    """Return a path as one text a hop: what holds, and by what."""
    return [f"{hop['node']['name'] or hop['node']['type_name']} {hop['edge']['label']}" for hop in hops]


def short(texts: list[str]) -> list[str]:
    """Drop everything before the last function of a qualified name."""
    return [" ".join(part.rsplit("<locals>.", 1)[-1] for part in text.split(" ")) for text in texts]


def only(report: dict) -> dict:
    """Return the only finding, which must hold something."""
    (finding,) = report["findings"]
    assert finding["groups"], finding
    return finding
