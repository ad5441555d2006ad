"""An arm on several ranks: the environment's own torchrun starts one process for each."""

import contextlib
import os
import sys
import tempfile
from types import SimpleNamespace

import torchleak_probe as probe

from torchleak_worker import arm, exits, spec


def main_launcher(fds: list[int]) -> None:
    """Runs torchrun for the arm whose command is on stdin, and reports the ranks that it loses.

    Args:
        fds: The event pipes, one for each rank and then the launcher's own.
    """
    code = arm.EXIT_FAILED
    try:
        # What torchrun starts is not in its group, but dies with it; see main_rank.
        probe.die_with_parent()
        line = sys.stdin.read()
        *events, own = fds
        code = _torchrun(spec.parse(line), [sys.path[0], "rank", line, *map(str, events)], own)
    except BaseException:
        exits.print_error()
    finally:
        exits.exit_now(code)


def _torchrun(command: SimpleNamespace, script: list[str], own: int) -> int:
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    # What a cluster tells its own torchrun is not meant for this one.
    for name in [name for name in os.environ if name.startswith("PET_") or name == "PYTHON_EXEC"]:
        del os.environ[name]
    # Left to itself torchrun looks up the machine's name, which can take long, and leaves a folder behind.
    # That of a launcher that is killed stays in the run folder.
    options = ["--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={command.ranks}"]
    try:
        with tempfile.TemporaryDirectory(prefix="torchrun-", dir=command.artifacts) as logs:
            run.main([*options, f"--log-dir={logs}", *script])
    except ChildFailedError as error:
        for rank, failure in error.failures.items():
            signalled = failure.exitcode < 0
            probe.send_arm(
                own,
                {
                    "event": "lost",
                    "rank": rank,
                    "code": None if signalled else failure.exitcode,
                    "signal": -failure.exitcode if signalled else None,
                },
            )
        return arm.EXIT_FAILED
    return arm.EXIT_DONE


def main_rank(line: str, fds: list[int]) -> None:
    """Runs the rank that torchrun has started as its child.

    Args:
        line: The arm's command.
        fds: The launcher's event pipes by rank.
    """
    code = arm.EXIT_FAILED
    try:
        probe.die_with_parent()
        # torchrun closes what it has inherited in those that it starts, so the pipe is opened anew.
        pipe = f"/proc/{os.getppid()}/fd/{fds[int(os.environ['LOCAL_RANK'])]}"
        code = arm.run(spec.parse(line), os.open(pipe, os.O_WRONLY))
    except BaseException:
        exits.print_error()
    finally:
        exits.exit_now(code)


def join(command: SimpleNamespace) -> None:
    """Imports what a host imports ahead, unless the case is about imports, and joins the other ranks."""
    if command.start == "fork":
        from torchleak_worker import warm

        warm.import_and_freeze()
    from torchleak_worker import parallel

    parallel.join(command.device)


def control(reporter: arm.Reporter) -> None:
    """Plants cycles in this very process and reports whether they would have been detected.

    It comes after the last step, so that it disturbs none.
    """
    from torchleak_worker.watch import diagnosis

    reporter.send("control", **diagnosis.control())


def leave() -> None:
    """Waits until every rank has said its last word: the end of one breaks the collectives of the others."""
    import torch.distributed as dist

    # One that has failed meanwhile has said so itself, and nothing that is measured depends on this.
    with contextlib.suppress(Exception):
        dist.barrier()
