"""Processes that came to the host because the process that started them is gone."""

import contextlib
import os
import signal
import time
from collections.abc import Collection

# A process that cannot be killed must not keep the host from its work.
_PATIENCE = 2.0


def children() -> set[int]:
    """Gives the pids of this process's children; it is empty where the platform does not tell."""
    pid = os.getpid()
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return {int(child) for child in file.read().split()}
    except OSError:
        return set()


def end(*, arms: Collection[int], spared: Collection[int]) -> None:
    """Kills every adopted child. What belongs to the session of one of the running ``arms`` is left."""
    limit = time.monotonic() + _PATIENCE
    while time.monotonic() < limit:
        # The death of one can bring its own children here, so this looks again until none is left.
        found = [pid for pid in children() if pid not in arms and pid not in spared and not _is_of(pid, arms)]
        if not found:
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.001)


def _is_of(pid: int, arms: Collection[int]) -> bool:
    """Says whether a process is in the session of an arm, whose leader the arm is."""
    try:
        return os.getsid(pid) in arms
    except OSError:
        return False
