"""Compares the cycle diagnosis with torch's own graph and with the collect that found the garbage.

All three see the same garbage in the same process: the headline case, scaled by the number of its steps.
Run it with the built probe on the path:

    OMP_NUM_THREADS=1 PYTHONPATH=.:tests:PATH_OF_THE_PROBE python benches/cycles.py [OBJECTS...]
"""

import gc
import statistics
import sys
import time

import garbage
import torch
import torch._dynamo
import torchleak_probe as probe
from torch.utils.viz._cycles import create_graph

from torchleak_worker.trainer import Llama3Trainer

SIZES = (17_000, 170_000, 1_000_000)
# Above this, torch's graph takes minutes.
MOST_FOR_TORCH = 300_000
REPEATS = 5


def is_cpu_tensor(found) -> bool:
    """Stand in for the filter by which torch finds CUDA tensors."""
    return issubclass(type(found), torch.Tensor)


def collected(objects: int) -> tuple[list, float, Llama3Trainer]:
    """Train until a step's garbage, times the steps, is about `objects`, then collect it.

    Returns:
        The garbage, the seconds of the full collect that found it, and the trainer, whose model would be
        garbage as well if it were dropped.
    """
    trainer = Llama3Trainer(garbage.program(disable=garbage.PRIVATE, layers=32), torch.device("cpu"))
    trainer.step()
    while gc.collect():
        pass
    gc.set_debug(gc.DEBUG_SAVEALL)
    trainer.step()
    gc.collect()
    a_step = len(gc.garbage)
    gc.set_debug(0)
    gc.garbage.clear()
    while gc.collect():
        pass
    for _ in range(max(1, round(objects / a_step))):
        trainer.step()
    gc.set_debug(gc.DEBUG_SAVEALL)
    began = time.perf_counter()
    gc.collect()
    seconds = time.perf_counter() - began
    gc.set_debug(0)
    found = gc.garbage[:]
    gc.garbage.clear()
    return found, seconds, trainer


def seconds_of(function, repeats: int = REPEATS) -> tuple[float, float]:
    """Return the first and the median of some timings: the first meets cold caches."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return times[0], statistics.median(times)


def main() -> None:
    """Print one line for each size."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    gc.disable()
    print(f"torch {torch.__version__}, Python {sys.version.split()[0]}; seconds, first / median")
    for objects in [int(size) for size in sys.argv[1:]] or SIZES:
        found, collect, trainer = collected(objects)
        report = probe.cycles(found)
        first, median = seconds_of(lambda found=found: probe.cycles(found))
        line = f"{len(found):9} objects  collect {collect:.4f}  cycles {first:.5f} / {median:.5f}"
        line += f"  = {100 * median / collect:.1f} % of collect"
        if len(found) <= MOST_FOR_TORCH:
            graph, _ = seconds_of(
                lambda found=found: create_graph(found, context=lambda _: None, filter=is_cpu_tensor), 1
            )
            line += f"  create_graph {graph:.3f} = {graph / median:.0f} times as long"
        print(line)
        print(f"          {report['seconds']}  {len(report['findings'])} findings", flush=True)
        found.clear()
        del trainer
        gc.collect()


if __name__ == "__main__":
    main()
