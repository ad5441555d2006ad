"""Times parts of a diagnosis on demand, for criterion: ``python serve.py OBJECTS``.

It makes the garbage once and says ``ready N``. Each line of its input, ``cycles N`` or ``create_graph N``, is
answered with the seconds that N calls took.
"""

import gc
import sys
import time

import torch
import torch._dynamo
import torchleak_probe as probe
from cycles import collected, is_cpu_tensor
from torch.utils.viz._cycles import create_graph


def main() -> None:
    """Serve until the end of the input."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    gc.disable()
    found, _, _trainer = collected(int(sys.argv[1]))
    calls = {
        "cycles": lambda: probe.cycles(found),
        "create_graph": lambda: create_graph(found, context=lambda _: None, filter=is_cpu_tensor),
        # What CPython's own walk over the same references takes, without keeping anything of them in order.
        "get_referents": lambda: gc.get_referents(*found),
    }
    print("ready", len(found), flush=True)
    for line in sys.stdin:
        name, repeats = line.split()
        began = time.perf_counter()
        for _ in range(int(repeats)):
            calls[name]()
        print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    main()
