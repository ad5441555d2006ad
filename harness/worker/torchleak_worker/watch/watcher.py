"""Measures after each step of one process."""

import atexit
import ctypes
import gc
import os
import platform
import sys
import threading
import time
import traceback
from types import SimpleNamespace
from typing import Any

import torch
import torchleak_probe as probe

from torchleak_worker import failure
from torchleak_worker.loop import ALLOCATOR_VARIABLES, collect_to_fixpoint
from torchleak_worker.watch import counters, diagnosis
from torchleak_worker.watch.events import Events
from torchleak_worker.watch.schedule import Due, Schedule


class Stopped(SystemExit):
    """Ends the script as if it had called ``sys.exit(0)``."""


class Watcher:
    """What is known of this process; a child that is forked begins anew."""

    def __init__(self, spec: SimpleNamespace) -> None:
        """Watches as the protocol's ``WatchSpec`` says."""
        self.spec = spec
        self.events = Events(spec.events)
        self.others = counters.OtherCollections()
        self._failed = False
        self._reset()
        os.register_at_fork(after_in_child=self._after_fork)
        atexit.register(self._at_exit)

    def _reset(self) -> None:
        self.step = 0
        self.schedule = Schedule(self.spec)
        self.is_main = True
        self._imported = False
        self._busy = False
        self._began = False
        self._disabled = False
        self._before: set[int] | None = None
        self._last_full = 0
        self._left: float | None = None
        self._cost = 0.0

    def _after_fork(self) -> None:
        self.events.forget()
        self.others.stop()
        # A DataLoader's worker must collect as it would without us.
        if self._disabled:
            gc.enable()
        self._reset()
        self.is_main = False

    def imported(self) -> None:
        """Tells that torch was imported here."""
        self._imported = True
        self.events.send(
            "imported",
            pid=os.getpid(),
            parent=os.getppid(),
            executable=sys.executable or "",
            python=sys.version,
            platform=platform.platform(),
            torch=torch.__version__,
            torch_commit=torch.version.git_version,
            gc_enabled=gc.isenabled(),
            gc_threshold=list(gc.get_threshold()),
            allocator_settings=[
                f"{key}={os.environ[key]}" for key in ALLOCATOR_VARIABLES if key in os.environ
            ],
        )

    def note(self, message: str) -> None:
        """Tells a person what cannot be done."""
        self.events.send("note", message=message)

    def after_step(self, steps_of: str, worker: int | None = None) -> None:
        """Is called at the end of every step.

        Args:
            steps_of: What makes the steps, for a person.
            worker: The number of the DataLoader's worker that this process is.
        """
        entered = time.perf_counter()
        if self._failed or self._busy:
            return
        self._busy = True
        try:
            self._measure(entered, steps_of, worker)
        except Exception:
            self._give_up()
        finally:
            self._busy = False
            self._left = time.perf_counter()
        if self.spec.steps is not None and self.step >= self.spec.steps and not self._failed:
            self._stop()

    def _measure(self, entered: float, steps_of: str, worker: int | None) -> None:
        if not self._began:
            self._begin(steps_of, worker)
        self.step += 1
        seconds = None if self._left is None else entered - self._left
        memory = counters.read()
        automatic = self.others.take()
        if self.schedule.disables_collection and gc.isenabled():
            # The script turned it on; it does not get it for longer than a step.
            gc.disable()
        due = self.schedule.after(self.step)
        self.others.paused = True
        try:
            collected, garbage, control = self._collect(due)
        finally:
            self.others.paused = False
        self.events.send(
            "step",
            step=self.step,
            seconds=seconds,
            **memory,
            automatic=automatic,
            collected=collected,
            watch_seconds=self._cost,
        )
        if garbage is not None:
            self.events.send("garbage", **garbage)
        if control is not None:
            self.events.send("control", **control)
        self._cost = time.perf_counter() - entered

    def _collect(self, due: Due) -> tuple[dict | None, dict | None, dict | None]:
        if due.generation is None:
            return None, None, None
        began = time.perf_counter()
        garbage = None
        objects = passes = 0
        if due.diagnose and self._reports_cycles:
            before = self._before if due.retained else None
            garbage = diagnosis.look(before=before, show_values=self.spec.show_values)
            garbage |= {"step": self.step, "over_steps": self.step - self._last_full}
            objects, passes = garbage["objects"], 2
        elif due.generation == 2:
            objects, passes = collect_to_fixpoint(2)
        else:
            # torchtitan makes one pass.
            objects, passes = gc.collect(due.generation), 1
        if due.generation == 2:
            self._last_full = self.step
        collected = {
            "generation": due.generation,
            "objects": objects,
            "passes": passes,
            "seconds": time.perf_counter() - began,
            "memory": counters.read(),
        }
        control = diagnosis.control() if due.control else None
        self._before = probe.live_storages() if due.prepare and self._reports_cycles else None
        return collected, garbage, control

    @property
    def _reports_cycles(self) -> bool:
        return self.spec.ranks is None or self.rank in self.spec.ranks

    def _begin(self, steps_of: str, worker: int | None) -> None:
        if not self._imported:
            self.imported()
        self.rank, world_size = _rank()
        name, memory = counters.device()
        was_enabled = gc.isenabled()
        self.events.send(
            "began",
            pid=os.getpid(),
            rank=self.rank,
            world_size=world_size,
            worker=worker,
            device_name=name,
            device_memory=memory,
            steps_of=steps_of,
            gc_enabled=was_enabled,
        )
        self._began = True
        self.others.start()
        if self.schedule.disables_collection:
            self._disabled = was_enabled
            gc.disable()

    def _give_up(self) -> None:
        """Goes on as if unwatched after a failure of ours, which is told if it can be."""
        self._failed = True
        self.others.stop()
        if self._disabled:
            gc.enable()
        lines = traceback.format_exc().strip().splitlines()
        try:
            end = " | ".join(lines[-3:])
            self.note(f"watching ended at step {self.step}, because torchleak failed: {end}")
        except Exception:
            # Nothing can be told without a file to tell it to; the lack of an end tells enough.
            self.events.forget()

    def _stop(self) -> None:
        """Ends the script after the steps that were asked for, as its own ``sys.exit(0)`` would."""
        try:
            self.events.send("stopped", steps=self.step)
        except OSError:
            self._failed = True
        if threading.current_thread() is threading.main_thread():
            raise Stopped(0)
        main = threading.main_thread().ident
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main), ctypes.py_object(Stopped))

    def _at_exit(self) -> None:
        if self._failed or not self._began:
            return
        # Python leaves here the exception that it has just printed.
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        described = failure.describe(error) if isinstance(error, BaseException) else None
        try:
            self.events.send("ended", steps=self.step, failure=described)
        except Exception:
            self._failed = True


def _rank() -> tuple[int, int]:
    """Gives rank and world size: torch.distributed's if the script has started it, else the launcher's."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    try:
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        return 0, 1
