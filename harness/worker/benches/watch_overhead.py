"""Measures what watching costs a step of 100 ms, in turn with the script unwatched and with torch's observer.

The step makes containers, as real steps do, so that Python collects its youngest generation a few times;
none of them is garbage. `warn_tensor_cycles` needs a GPU, so where there is none its half that hooks into
the collector, `observe_garbage`, is installed with the same filter:

    python benches/watch_overhead.py TORCHLEAK [ROUNDS]
"""

import statistics
import subprocess
import sys
import tempfile
import time

STEPS = 40
SECONDS = 0.1


def script(how: str) -> None:
    """Makes steps and prints the milliseconds of each end: the optimizer and what is hooked into it."""
    import torch

    if how == "torch":
        from torch.utils.viz import _cycles

        if torch.cuda.is_available():
            _cycles.warn_tensor_cycles()
        else:
            _cycles.observe_garbage(lambda garbage: any(_cycles.is_cuda_tensor(found) for found in garbage))
    parameter = torch.nn.Parameter(torch.zeros(1000))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    took = []
    for _ in range(STEPS):
        began = time.perf_counter()
        parameter.grad = torch.ones(1000)
        kept = [[index] for index in range(3000)]
        made = time.perf_counter()
        while time.perf_counter() < began + SECONDS - 0.002:
            pass
        ends = time.perf_counter()
        optimizer.step()
        # Collections come while containers are made; with them in it this is all that a hook can cost.
        took.append(1e3 * (made - began + time.perf_counter() - ends))
        del kept
    print(statistics.median(took[5:]))


def main() -> None:
    """Runs the three ways in turn and prints the medians over all rounds."""
    torchleak, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
    found: dict[str, list[float]] = {"unwatched": [], "watched": [], "torch": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as runs:
            for how, times in found.items():
                command = [sys.executable, __file__, "--script", how]
                if how == "watched":
                    command = [torchleak, "watch", "--runs", runs, "--quiet", "--", *command]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                times.append(float(done.stdout))
    base = statistics.median(found["unwatched"])
    for how, times in found.items():
        middle = statistics.median(times)
        share = 100 * (middle - base) / (1e3 * SECONDS)
        print(f"{how:10} {middle:8.3f} ms  {share:+.2f} % of a step of {1e3 * SECONDS:.0f} ms")


if __name__ == "__main__":
    if sys.argv[1] == "--script":
        script(sys.argv[2])
    else:
        main()
