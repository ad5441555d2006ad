"""Measures the memory and time of the cycle diagnosis on plain objects, from 10 thousand to 10 million.

The garbage is pairs of lists that hold each other; one pair holds an object that is looked for. Each size
gets a process of its own, and the peak is the kernel's (VmHWM), reset before the call:

    PYTHONPATH=PATH_OF_THE_PROBE python benches/memory.py [OBJECTS...]
"""

import gc
import os
import re
import sys
import time

import torchleak_probe as probe

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)


class Held:
    """Stands for a tensor; a list in it makes it tracked on every Python."""

    def __init__(self):
        self.tracked = []


def status(key: str) -> int:
    """Return a line of the process's status in bytes."""
    with open("/proc/self/status") as file:
        return 1024 * int(re.search(rf"{key}:\s+(\d+)", file.read())[1])


def measure(objects: int) -> None:
    """Print one line about garbage of a size."""
    gc.disable()
    found = [Held()]
    for _ in range(objects // 2):
        first = []
        second = [first]
        first.append(second)
        found += second[0], second
    found[1].append(found[0])
    began = time.perf_counter()
    gc.collect()
    collect = time.perf_counter() - began
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = status("VmRSS")
    began = time.perf_counter()
    report = probe.cycles(found, target=Held)
    seconds = time.perf_counter() - began
    extra = (status("VmHWM") - before) / report["objects"]
    nanoseconds = 1e9 * seconds / report["objects"]
    print(
        f"{report['objects']:9} objects  {report['edges']:9} edges  {extra:5.1f} bytes an object"
        f"  {nanoseconds:4.0f} ns an object  {100 * seconds / collect:.0f} % of a collect",
        flush=True,
    )


if __name__ == "__main__":
    for size in [int(size) for size in sys.argv[1:]] or SIZES:
        child = os.fork()
        if child == 0:
            measure(size)
            os._exit(0)
        os.waitpid(child, 0)
