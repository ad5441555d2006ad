"""Counters of a process that is watched: none of them changes what the script sees."""

import gc
import os
import time
from typing import Any

import torch
import torchleak_probe as probe


def cuda_is_used() -> bool:
    """Says whether the script has started CUDA; asking does not start it."""
    return torch.cuda.is_initialized()


def read() -> dict[str, Any]:
    """Gives the counters of the protocol's ``Memory``. Peaks are not reset: they are the script's."""
    memory = probe.memory()
    if cuda_is_used():
        memory["device"] = _device()
    return memory


def level() -> int | None:
    """Gives the one counter that is judged by, in bytes."""
    if cuda_is_used():
        return sum(stats["allocated_bytes"]["all"]["current"] for stats in _all_devices())
    return probe.in_use()


def _all_devices() -> list[dict[str, Any]]:
    # A process may use several GPUs; one that it does not use has nothing allocated.
    return [torch.cuda.memory_stats_as_nested_dict(index) for index in range(torch.cuda.device_count())]


def _device() -> dict[str, int]:
    devices = [stats for stats in _all_devices() if stats]

    def total(counter: str, when: str) -> int:
        return sum(stats[counter]["all"][when] for stats in devices)

    return {
        "allocated": total("allocated_bytes", "current"),
        "active": total("active_bytes", "current"),
        "reserved": total("reserved_bytes", "current"),
        "peak_allocated": total("allocated_bytes", "peak"),
        "peak_reserved": total("reserved_bytes", "peak"),
        "alloc_retries": sum(stats["num_alloc_retries"] for stats in devices),
        "ooms": sum(stats["num_ooms"] for stats in devices),
    }


def device() -> tuple[str, int]:
    """Gives the device's name and its memory in bytes."""
    if cuda_is_used():
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        return properties.name, properties.total_memory
    return "cpu", os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class OtherCollections:
    """Counts collections that torchleak does not make: Python's own and those of the script."""

    def __init__(self) -> None:
        """Counts nothing yet."""
        self.paused = False
        self._found: dict[int, dict[str, Any]] = {}
        self._began = 0.0
        self._level: int | None = None

    def start(self) -> None:
        """Begins to count."""
        if self._on_collection not in gc.callbacks:
            gc.callbacks.append(self._on_collection)

    def stop(self) -> None:
        """Ends to count, and forgets."""
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)
        self._found.clear()

    def take(self) -> list[dict[str, Any]]:
        """Gives what was counted since the last call, one item per generation."""
        found, self._found = self._found, {}
        return [found[generation] for generation in sorted(found)]

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if self.paused:
            return
        generation = info["generation"]
        if phase == "start":
            self._began = time.perf_counter()
            # The youngest generation is collected hundreds of times a second.
            self._level = level() if generation > 0 else None
            return
        seconds = time.perf_counter() - self._began
        found = self._found.get(generation)
        if found is None:
            found = {
                "generation": generation,
                "collections": 0,
                "objects": 0,
                "uncollectable": 0,
                "seconds": 0.0,
                "freed": None,
            }
            self._found[generation] = found
        found["collections"] += 1
        found["objects"] += info["collected"]
        found["uncollectable"] += info["uncollectable"]
        found["seconds"] += seconds
        if self._level is not None:
            found["freed"] = (found["freed"] or 0) + self._level - level()
