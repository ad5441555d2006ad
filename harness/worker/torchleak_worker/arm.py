"""One arm: sets the program up, runs its steps under one collection policy, reports each."""

import gc
import os
import random
import resource
import sys
import traceback
from types import SimpleNamespace

import torchleak_probe as probe

from torchleak_worker import exits, failure, spec
from torchleak_worker.errors import Unsupported

# Exit codes of a child, for a person who looks at the process table; the orchestrator goes by events.
EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_NOBODY_LISTENS = 3


class Reporter:
    """Sends this arm's events."""

    def __init__(self, fd: int) -> None:
        """Writes to the event pipe ``fd``."""
        self.fd = fd
        self.pid = os.getpid()

    def send(self, event: str, **fields: object) -> None:
        """Sends one event; raises OSError when nobody reads the pipe any more."""
        if os.getpid() != self.pid:
            # The program forked and its child came back into our loop; the arm is its parent.
            os._exit(EXIT_DONE)
        probe.send_arm(self.fd, {"event": event, **fields})


def run(command: SimpleNamespace, fd: int) -> int:
    """Runs one arm and gives the exit code of its process. ``fd`` is the event pipe."""
    # What a program prints just before it dies must reach the log.
    sys.stdout.reconfigure(line_buffering=True)
    reporter = Reporter(fd)
    try:
        if command.memory_limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (command.memory_limit, command.memory_limit))
        _run_steps(command, reporter)
    except BaseException as error:
        traceback.print_exc()
        described = failure.describe(error)
        # The traceback keeps the program's frames, and in an arm that is out of memory they are needed.
        error.__traceback__ = None
        try:
            reporter.send("failed", **described)
        except OSError:
            return EXIT_NOBODY_LISTENS
        return EXIT_FAILED
    return EXIT_DONE


def _run_steps(command: SimpleNamespace, reporter: Reporter) -> None:
    # Only what these modules import is loaded in a cold arm before the program's own first step.
    from torchleak_worker import loop, programs, ranks

    if command.ranks > 1:
        ranks.join(command)
    device = _device(command)
    # Automatic collection would free at its own time what the arm must keep.
    gc.disable()
    program = programs.build(command, device)
    loop.collect_to_fixpoint(2)
    meter = loop.meter_for(device)
    reporter.send("began", **loop.facts(device, meter, program))
    if command.policy.kind == "garbage":
        has_shown = loop.run_garbage(command, program, device, reporter)
    else:
        loop.run_measured(command.steps, command.policy, program, meter, reporter)
    if command.ranks > 1:
        ranks.control(reporter)
    reporter.send("ended", steps=command.steps)
    if command.ranks > 1:
        ranks.leave()
    elif command.policy.kind == "garbage" and command.artifacts is not None:
        from torchleak_worker import torch_report

        found = None if has_shown else loop.look_at_round(command, program, device)
        if found is not None:
            reporter.send("round", **found)
        reporter.send("torch_cycles", **torch_report.report(program, device, command.artifacts))


def _device(command: SimpleNamespace):
    import torch

    torch.set_num_threads(command.threads)
    _seed(command.seed)
    if command.device == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise Unsupported(f"torch {torch.__version__} finds no CUDA device in this process")
    torch.cuda.init()
    # Equal losses are the proof that two arms did the same; kernels that sum in any order break it.
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    return torch.device("cuda", torch.cuda.current_device())


def _seed(seed: int) -> None:
    """Seeds every generator that a program is likely to use."""
    import torch

    torch.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        # numpy takes 32 bits.
        numpy.random.seed(seed % 2**32)


def main_spawned(fd: int) -> None:
    """Runs the arm whose command is on stdin, in a fresh interpreter."""
    code = EXIT_FAILED
    try:
        probe.die_with_parent()
        code = run(spec.parse(sys.stdin.read()), fd)
    except BaseException:
        exits.print_error()
    finally:
        # Everything that matters has been sent.
        exits.exit_now(code)
