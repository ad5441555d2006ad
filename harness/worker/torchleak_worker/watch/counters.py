"""Counters of a process that is watched: none of them changes what the script sees."""

import os
import time
from typing import Any

import torch
import torchleak_probe as probe

# A reading that takes longer is slow: most take some tens of microseconds.
_SLOW_SECONDS = 1e-3
# The part of a script's time that slow readings may take.
_SHARE = 0.005


def cuda_is_used() -> bool:
    """Says whether the script has started CUDA; asking does not start it."""
    return torch.cuda.is_initialized()


def read(*, with_in_use: bool = True) -> dict[str, Any]:
    """Gives the counters of the protocol's ``Memory``. Peaks are not reset: they are the script's."""
    memory = probe.memory(with_in_use)
    if cuda_is_used():
        memory["device"] = _device()
    return memory


def level() -> int | None:
    """Gives the one counter that is judged by, in bytes."""
    if cuda_is_used():
        return sum(stats["allocated_bytes"]["all"]["current"] for stats in _all_devices())
    return probe.in_use()


def judged(memory: dict[str, Any]) -> int | None:
    """Gives the counter that is judged by out of what ``read`` gave."""
    return memory["device"]["allocated"] if memory.get("device") else memory["in_use"]


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


def follow(others: probe.OtherCollections) -> None:
    """Lets what collections free be told by the counter that is judged by, also once the script uses CUDA."""
    if others.gpu_stats is None and cuda_is_used():
        others.gpus = torch.cuda.device_count()
        others.gpu_stats = torch._C._cuda_memoryStats


class PacedReading:
    """Reads the C allocator's counter less often where that takes long, and the other counters always.

    glibc walks over all free chunks to count what is in use, and a process that has freed half of a data
    set has a million of them.
    """

    def __init__(self) -> None:
        """Reads all counters the first time."""
        self.seconds = 0.0
        self._due = 0.0

    @property
    def is_slow(self) -> bool:
        """Whether the counter was ever left out or will be."""
        return self._due > 0.0

    def read(self) -> dict[str, Any]:
        """Gives the counters as ``read`` does, with None for one that is left out."""
        with_in_use = time.perf_counter() >= self._due
        # Processor time, because a busy machine interrupts also what is quick.
        began = time.thread_time()
        memory = read(with_in_use=with_in_use)
        seconds = time.thread_time() - began
        if with_in_use and seconds > _SLOW_SECONDS:
            self.seconds = seconds
            self._due = time.perf_counter() + seconds / _SHARE
        return memory
