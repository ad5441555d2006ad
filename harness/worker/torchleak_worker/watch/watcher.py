"""Measures after each step of one process."""

import atexit
import contextlib
import os
import platform
import sys
import time
import traceback
from types import SimpleNamespace
from typing import Any

import torch
import torchleak_probe as probe

from torchleak_worker import failure
from torchleak_worker.collector import gc
from torchleak_worker.loop import ALLOCATOR_VARIABLES, collect_to_fixpoint
from torchleak_worker.survivors import Storages
from torchleak_worker.watch import counters, diagnosis, signals
from torchleak_worker.watch.automatic import AutomaticCollection
from torchleak_worker.watch.events import Events
from torchleak_worker.watch.schedule import Due, Schedule
from torchleak_worker.watch.stopping import Stop
from torchleak_worker.watch.unnamed import Unnamed


class Watcher:
    """What is known of this process; a child that is forked begins anew."""

    def __init__(self, spec: SimpleNamespace) -> None:
        """Watches as the protocol's ``WatchSpec`` says."""
        self.spec = spec
        self.events = Events(spec.events)
        self._automatic = AutomaticCollection()
        self._stop = Stop() if spec.steps is not None else None
        self._failed = False
        self._reset()
        os.register_at_fork(after_in_child=self._after_fork)
        atexit.register(self._at_exit)

    def _reset(self) -> None:
        self.step = 0
        self.schedule = Schedule(self.spec)
        self.others = probe.OtherCollections()
        self.is_main = True
        self._imported = False
        self._busy = False
        self._began = False
        self._told_of_workers = False
        self._stopped = False
        self._ended = False
        self._reading = counters.PacedReading()
        self._before: Storages | None = None
        self._newborn: Storages | None = None
        self._unnamed = Unnamed()
        self._last_full = 0
        self._left: float | None = None
        self._cost = 0.0

    def _after_fork(self) -> None:
        self.events.forget()
        self._stop_counting()
        # A DataLoader's worker must collect as it would without us.
        self._automatic.give_back()
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
        if self._failed or self._stopped or self._busy:
            return
        with signals.held_back():
            self._busy = True
            try:
                self._measure(entered, steps_of, worker)
            except Exception as error:
                if signals.raised(error):
                    raise
                self._give_up()
            finally:
                self._busy = False
                self._left = time.perf_counter()
        # A worker that ended would be a failure to its DataLoader.
        if self._stop is None or worker is not None or self._failed or self.step < self.spec.steps:
            return
        # What the script does after that, perhaps in a `finally`, is neither measured nor stopped.
        self._stopped = True
        try:
            self.events.send("stopped", steps=self.step)
        except OSError:
            self._failed = True
        self._stop.end()

    def _measure(self, entered: float, steps_of: str, worker: int | None) -> None:
        if not self._began:
            self._begin(steps_of, worker)
        self._tell_of_workers()
        self.step += 1
        seconds = None if self._left is None else entered - self._left
        memory = self._read()
        counters.follow(self.others)
        automatic = self.others.take()
        if self.schedule.disables_collection:
            # A threshold of the script's own does not turn it on for longer than a step.
            self._automatic.turn_off()
        due = self.schedule.after(self.step)
        self.others.paused = True
        try:
            collected, garbage, control = self._collect(due, memory)
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

    def _read(self) -> dict[str, Any]:
        if self.schedule.disables_collection:
            return counters.read()
        was_slow = self._reading.is_slow
        memory = self._reading.read()
        if self._reading.is_slow and not was_slow:
            took = f"{self._reading.seconds * 1e3:.0f} ms"
            self.note(f"the C allocator counts its bytes in {took}, so it is not asked after every step")
        return memory

    def _collect(self, due: Due, memory: dict[str, Any]) -> tuple[dict | None, dict | None, dict | None]:
        if due.generation is None:
            return None, None, None
        began = time.perf_counter()
        garbage = None
        objects = passes = 0
        if (due.diagnose or (due.ends_round and self._unnamed.is_due)) and self._reports_cycles:
            newborn = self._newborn if due.retained else None
            garbage = diagnosis.look(newborn=newborn, show_values=self.spec.show_values)
            garbage |= {"step": self.step, "over_steps": self.step - self._last_full}
            objects, passes = garbage["objects"], 2
            self._unnamed.looked(garbage)
            if due.follow and self._before is not None:
                self._newborn = Storages(without=self._before)
            elif due.retained:
                self._newborn = None
        elif due.generation == 2:
            objects, passes = collect_to_fixpoint(2)
        else:
            # torchtitan makes one pass.
            objects, passes = gc.collect(due.generation), 1
        collected = {
            "generation": due.generation,
            "objects": objects,
            "passes": passes,
            "seconds": time.perf_counter() - began,
            "memory": counters.read(),
        }
        if due.ends_round:
            left = counters.judged(collected["memory"])
            self._unnamed.freed(counters.judged(memory), left, self.step - self._last_full)
        if due.generation == 2:
            self._last_full = self.step
        control = diagnosis.control() if due.control else None
        self._before = Storages() if due.prepare and self._reports_cycles else None
        return collected, garbage, control

    @property
    def _reports_cycles(self) -> bool:
        return self.spec.ranks is None or self.rank in self.spec.ranks

    def _begin(self, steps_of: str, worker: int | None) -> None:
        if not self._imported:
            self.imported()
        self.rank, world_size = _rank()
        name, memory = counters.device()
        self.events.send(
            "began",
            pid=os.getpid(),
            rank=self.rank,
            world_size=world_size,
            worker=worker,
            device_name=name,
            device_memory=memory,
            steps_of=steps_of,
            gc_enabled=gc.isenabled(),
        )
        self._began = True
        self._tell_multiprocessing()
        counters.follow(self.others)
        gc.callbacks.append(self.others)
        if self.schedule.disables_collection:
            self._automatic.turn_off()

    def _tell_of_workers(self) -> None:
        """Tells once of worker processes that are not watched: what they leak is not seen."""
        process: Any = sys.modules.get("multiprocessing.process")
        if self._told_of_workers or self.spec.workers or process is None:
            return
        # Workers of a DataLoader or of a pool are daemons; processes that train themselves seldom are.
        if any(child.daemon for child in list(getattr(process, "_children", ()))):
            self._told_of_workers = True
            self.note(
                "this process has worker processes, which were not watched: "
                "`--workers` watches those of a DataLoader"
            )

    def _give_up(self) -> None:
        """Goes on as if unwatched after a failure of ours, which is told if it can be."""
        self._failed = True
        self._stop_counting()
        self._automatic.give_back()
        lines = traceback.format_exc().strip().splitlines()
        # A file that cannot be written has already left word of that.
        with contextlib.suppress(Exception):
            end = " | ".join(lines[-3:])
            self.note(f"watching ended at step {self.step}, because torchleak failed: {end}")

    def _stop_counting(self) -> None:
        if self.others in gc.callbacks:
            gc.callbacks.remove(self.others)

    def _tell_multiprocessing(self) -> None:
        """Lets a process of ``multiprocessing`` say that it ends: no function of ``atexit`` runs in it."""
        process, util = (sys.modules.get(f"multiprocessing.{name}") for name in ("process", "util"))
        if process is not None and util is not None and process.parent_process() is not None:
            util.Finalize(None, self._at_exit, exitpriority=-1000)

    def _at_exit(self) -> None:
        if self._failed or self._ended or not self._began:
            return
        self._ended = True
        # Python leaves in the last two the exception that it has just printed; multiprocessing has yet to.
        error = sys.exc_info()[1] or getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        is_failure = isinstance(error, BaseException) and not isinstance(error, SystemExit)
        described = failure.describe(error) if is_failure else None
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
