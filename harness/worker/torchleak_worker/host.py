"""The worker host: imports torch once and makes one child per arm.

The host never touches CUDA and never starts a thread, so that a fork of it is clean. It talks to the
orchestrator over one Unix socket: commands come in with the descriptors of the child's pipes, and
events about the children go out.
"""

import contextlib
import importlib.util
import os
import select
import signal
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import torchleak_probe as probe

from torchleak_worker import arm, exits, failure, orphans, spec

# Signals that the host handles itself and a child must not inherit.
_HOST_SIGNALS = (signal.SIGCHLD,)

# Linux passes at most so many with one message.
_MOST_DESCRIPTORS = 253


class Host:
    """The state of one host: its socket, its children and whether torch is imported."""

    def __init__(self) -> None:
        """Takes over the control socket, which the orchestrator gave as standard input."""
        self.control = socket.socket(fileno=os.dup(0))
        # Nothing that runs here may read commands by reading its standard input.
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        self.pending = b""
        self.descriptors: list[int] = []
        self.children: dict[int, int] = {}
        # What the import of torch started, if anything, is no arm's.
        self.helpers: set[int] = set()
        # What a program starts in a session of its own comes here when its arm dies.
        probe.adopt_orphans()
        self.imported = False
        self.wake_read, self.wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def send(self, event: dict) -> None:
        """Writes one event about this host or its children."""
        probe.send_host(self.control.fileno(), event)

    def serve(self) -> None:
        """Answers commands until the orchestrator closes the socket."""
        self.send({"event": "ready", "pid": os.getpid(), "python": sys.version})
        while True:
            readable, _, _ = select.select([self.control, self.wake_read], [], [])
            if self.wake_read in readable:
                self.drain_wakeups()
                self.reap()
            if self.control in readable and not self.read_commands():
                return

    def drain_wakeups(self) -> None:
        """Empties the pipe that signals write to."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self.wake_read, 4096):
                pass

    def read_commands(self) -> bool:
        """Reads what has come over the socket. Returns False at its end."""
        data, descriptors, _, _ = socket.recv_fds(self.control, 65536, _MOST_DESCRIPTORS)
        if not data:
            return False
        self.pending += data
        self.descriptors += descriptors
        while b"\n" in self.pending:
            line, self.pending = self.pending.split(b"\n", 1)
            command = spec.parse(line.decode())
            count = spec.event_pipes(command) + 1
            ends, self.descriptors = self.descriptors[:count], self.descriptors[count:]
            try:
                self.run(command, line.decode(), ends[:-1], ends[-1])
            finally:
                for end in ends:
                    os.close(end)
        return True

    def run(self, command: SimpleNamespace, line: str, events: list[int], output: int) -> None:
        """Starts the child of one arm. ``events`` and ``output`` are the write ends of its pipes."""
        reason = None
        if command.start == "fork":
            self.import_torch()
            reason = why_fork_is_unsafe()
        if command.executable is not None:
            environment = libtorch_environment()
            pid, start = self.spawn([command.executable], line, events, output, environment), "spawn"
        elif command.ranks > 1:
            # They start anew however the case imports, so that is nothing to explain.
            pid, start, reason = self.spawn(interpreter("torchrun"), line, events, output), "spawn", None
        elif command.start == "spawn" or reason is not None:
            pid, start = self.spawn(interpreter("arm"), line, events, output), "spawn"
        else:
            pid, start = self.fork(command, events[0], output), "fork"
        self.children[pid] = command.arm
        self.send({"event": "started", "arm": command.arm, "pid": pid, "start": start, "reason": reason})

    def import_torch(self) -> None:
        """Imports what every warm arm needs, once."""
        if self.imported:
            return
        started = time.perf_counter()
        try:
            from torchleak_worker import warm

            warm.import_and_freeze()
            import torch
        except BaseException as error:
            self.send({"event": "import_failed", **failure.describe(error)})
            raise SystemExit(1) from error
        self.imported = True
        self.helpers = orphans.children() - self.children.keys()
        self.send(
            {
                "event": "imported",
                "seconds": time.perf_counter() - started,
                "torch": torch.__version__,
                "frozen_objects": warm.frozen_objects(),
                "threads": probe.thread_count() or 0,
            }
        )

    def fork(self, command: SimpleNamespace, events: int, output: int) -> int:
        """Forks a child that runs the arm and never returns from here."""
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            return pid
        code = arm.EXIT_FAILED
        try:
            # The siblings are not this process's to kill.
            self.children = {}
            # A session of its own lets the orchestrator end the arm with all that it starts.
            os.setsid()
            probe.die_with_parent()
            signal.set_wakeup_fd(-1)
            for number in _HOST_SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            self.control.close()
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
            code = arm.run(command, events)
        except BaseException:
            exits.print_error()
        finally:
            # The interpreter's own exit would run the host's handlers a second time.
            exits.exit_now(code)

    def spawn(
        self, program: list[str], line: str, events: list[int], output: int, environment: dict | None = None
    ) -> int:
        """Starts a program of its own for the arm: it gets the command on its standard input."""
        process = subprocess.Popen(
            [*program, *map(str, events)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            pass_fds=events,
            start_new_session=True,
        )
        assert process.stdin is not None
        # A child that died early is reported by its exit.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(line.encode())
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        # The host reaps by pid; without this the object would warn that its child still runs.
        process.returncode = 0
        return process.pid

    def reap(self) -> None:
        """Reports every child that is gone."""
        while (pid := ended_child()) is not None:
            if pid in self.children:
                # The pid is still taken, so this hits the arm's group and no other.
                kill_group(pid)
            _, status = os.waitpid(pid, 0)
            if pid not in self.children:
                continue
            ended = self.children.pop(pid)
            self.end_orphans()
            signalled = os.WIFSIGNALED(status)
            self.send(
                {
                    "event": "exited",
                    "arm": ended,
                    "code": None if signalled else os.WEXITSTATUS(status),
                    "signal": os.WTERMSIG(status) if signalled else None,
                }
            )

    def end_orphans(self) -> None:
        """Ends what arms started that are gone."""
        orphans.end(arms=self.children.keys(), spared=self.helpers)

    def end_children(self) -> None:
        """Kills what still runs: nobody reads its measurements any more."""
        for pid in self.children:
            kill_group(pid)
        limit = time.monotonic() + 1
        while self.children and time.monotonic() < limit:
            for pid in list(self.children):
                if os.waitpid(pid, os.WNOHANG)[0]:
                    del self.children[pid]
            time.sleep(0.001)
        self.end_orphans()


def interpreter(role: str) -> list[str]:
    """Gives the command of a fresh interpreter, in the role of an arm or of the launcher of its ranks."""
    return [sys.executable, sys.path[0], role]


def libtorch_environment() -> dict[str, str]:
    """Gives the environment in which a program finds the libraries of this interpreter's torch first."""
    # The location is known without the import, which this process may not need.
    torch = importlib.util.find_spec("torch")
    folders = [os.path.join(path, "lib") for path in torch.submodule_search_locations] if torch else []
    folders += filter(None, [os.environ.get("LD_LIBRARY_PATH")])
    return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(folders)}


def ended_child() -> int | None:
    """Gives the pid of a child that is gone, without reaping it."""
    try:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return None if ended is None else ended.si_pid


def kill_group(pid: int) -> None:
    """Kills a child with all that it started, which may outlive it."""
    for kill in (os.killpg, os.kill):
        # The group is missing until the child has reached its setsid, and once all of it is gone.
        # macOS refuses a group of which only a process that is gone is left.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)
            return


def why_fork_is_unsafe() -> str | None:
    """Says why this process must not fork, or None when it may."""
    if sys.platform == "darwin":
        return "system libraries of macOS do not survive a fork"
    threads = probe.thread_count()
    if threads is not None and threads > 1:
        return f"importing torch started {threads - 1} threads, which a fork would lose"
    return None


def main() -> None:
    """Serves the control socket until its other end is closed."""
    host = Host()
    try:
        host.serve()
    finally:
        host.end_children()
