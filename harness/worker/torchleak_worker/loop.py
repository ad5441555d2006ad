"""The training loop of an arm, and what is measured around each step."""

import contextlib
import os
import sys
import time
from types import SimpleNamespace
from typing import Any

import torch
import torchleak_probe as probe

from torchleak_worker import parallel, survivors, warm
from torchleak_worker.collector import gc

# A finalizer can release more on the next pass; one that always makes new garbage must not hang us.
_MOST_PASSES = 10

# Steps that are looked at together where no single one shows anything.
_ROUND = 4
# What is called flat, in bytes per step.
FLAT = 4096

ALLOCATOR_VARIABLES = (
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "CUBLAS_WORKSPACE_CONFIG",
    "MALLOC_ARENA_MAX",
    "MALLOC_TOP_PAD_",
    "MALLOC_MMAP_THRESHOLD_",
    "GLIBC_TUNABLES",
    "PYTHONMALLOC",
    "LD_PRELOAD",
)


class CpuMeter:
    """Reads the C allocator of this process."""

    def begin(self) -> None:
        """Begins a step."""
        probe.reset_peak()

    def finish(self) -> None:
        """Waits until the step's work is done, which on a CPU it is."""

    def read(self) -> dict[str, Any]:
        """Gives the counters of the protocol's ``Memory``."""
        return probe.memory()


class GlooMeter(CpuMeter):
    """Reads the C allocator of a rank whose collectives gloo's threads do."""

    # The threads let go of the last buffers a moment after they say that they are done. All ranks sleep
    # equally long, and none waits for another.
    _MOMENT = 0.02

    def read(self) -> dict[str, Any]:
        """Gives the counters once the threads are at rest."""
        time.sleep(self._MOMENT)
        return super().read()


class CudaMeter(CpuMeter):
    """Reads the caching allocator of one GPU besides the C allocator."""

    def __init__(self, device: torch.device) -> None:
        """Measures ``device``, which is initialised."""
        self.device = device

    def begin(self) -> None:
        """Begins a step."""
        super().begin()
        torch.cuda.reset_peak_memory_stats(self.device)

    def finish(self) -> None:
        """Waits until the device has done the step."""
        torch.cuda.synchronize(self.device)

    def read(self) -> dict[str, Any]:
        """Gives the counters of the protocol's ``Memory``, the device's among them."""
        memory = super().read()
        stats = torch.cuda.memory_stats(self.device)
        memory["device"] = {
            "allocated": stats["allocated_bytes.all.current"],
            "active": stats["active_bytes.all.current"],
            "reserved": stats["reserved_bytes.all.current"],
            "peak_allocated": stats["allocated_bytes.all.peak"],
            "peak_reserved": stats["reserved_bytes.all.peak"],
            "alloc_retries": stats["num_alloc_retries"],
            "ooms": stats["num_ooms"],
        }
        return memory


def meter_for(device: torch.device) -> CpuMeter:
    """Gives the meter of a device."""
    if device.type == "cuda":
        return CudaMeter(device)
    return GlooMeter() if parallel.in_group() else CpuMeter()


class ForeignCollections:
    """Counts collections that torchleak did not ask for.

    A program, or a library that it uses, may turn the collector on or call it. What it frees then looks as if
    nothing had been kept.
    """

    def __init__(self) -> None:
        """Begins to count; the callback stays for the rest of the process."""
        self._count = 0
        self._is_stepping = False
        gc.callbacks.append(self._on_collection)

    def _on_collection(self, phase: str, _info: dict[str, int]) -> None:
        if self._is_stepping and phase == "start":
            self._count += 1

    def step(self, program: Any) -> tuple[Any, int]:
        """Runs one step and gives its result with how many collections happened meanwhile."""
        # A program that turns automatic collection on does not get it for longer than a step.
        gc.disable()
        self._count = 0
        self._is_stepping = True
        try:
            return program.step(), self._count
        finally:
            self._is_stepping = False


def bytes_of(census: dict[str, Any]) -> int:
    """Gives the bytes of a ``Census`` of the protocol, on all devices."""
    return sum(storages["bytes"] for storages in census.values())


def collect_to_fixpoint(generation: int) -> tuple[int, int]:
    """Collects until a pass finds nothing. Returns objects found and passes made."""
    objects = passes = 0
    while passes < _MOST_PASSES:
        found = gc.collect(generation)
        objects += found
        passes += 1
        if found == 0:
            break
    return objects, passes


def run_measured(steps: int, policy: SimpleNamespace, program: Any, meter: CpuMeter, reporter: Any) -> None:
    """Runs ``steps`` steps under ``policy`` and reports each."""
    foreign = ForeignCollections()
    for step in range(1, steps + 1):
        meter.begin()
        started = time.perf_counter()
        result, foreign_collections = foreign.step(program)
        meter.finish()
        seconds = time.perf_counter() - started
        memory = meter.read()
        collected = _collect(_due_generation(policy, step), meter)
        reporter.send(
            "step",
            step=step,
            **result.loss_fields(),
            grad_norm=result.grad_norm,
            seconds=seconds,
            tokens=result.tokens,
            **memory,
            census=probe.census(),
            collected=collected,
            foreign_collections=foreign_collections,
        )


def _due_generation(policy: SimpleNamespace, step: int) -> int | None:
    if policy.kind == "collected":
        return policy.generation
    if policy.kind == "periodic" and step % policy.every == 0:
        return policy.generation
    return None


def _collect(generation: int | None, meter: CpuMeter) -> dict[str, Any] | None:
    if generation is None:
        return None
    started = time.perf_counter()
    objects, passes = collect_to_fixpoint(generation)
    seconds = time.perf_counter() - started
    return {
        "generation": generation,
        "objects": objects,
        "passes": passes,
        "seconds": seconds,
        "memory": meter.read(),
    }


def run_garbage(command: SimpleNamespace, program: Any, device: torch.device, reporter: Any) -> bool:
    """Runs the steps of ``command`` and reports what a full collect finds after each. Nothing is measured.

    Returns:
        Whether memory of tensors worth a word was in garbage after the last step.
    """
    foreign = ForeignCollections()
    born = max(1, command.steps - survivors.STEPS)
    before: survivors.Storages | None = None
    newborn: survivors.Storages | None = None
    has_shown = False
    for step in range(1, command.steps + 1):
        if step == born:
            before = survivors.Storages()
        result, foreign_collections = foreign.step(program)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        found = _garbage(show_values=command.show_values)
        if step == born:
            newborn = survivors.Storages(without=before)
        retained = None
        if newborn is not None and step == command.steps > born:
            retained = newborn.retained(show_values=command.show_values)
        reporter.send(
            "garbage",
            step=step,
            **result.loss_fields(),
            foreign_collections=foreign_collections,
            **found,
            retained=retained,
        )
        # What only the first steps leave is another matter.
        has_shown = bytes_of(found["census"]) > FLAT
    return has_shown


def look_at_round(command: SimpleNamespace, program: Any, device: torch.device) -> dict[str, Any] | None:
    """Runs steps beyond those of ``command`` and says what all of them leave.

    Returns:
        The protocol's ``RoundGarbage``, or None if the program makes no further step.
    """
    steps = 0
    # A program may have no data for more steps than it was asked for, and nothing depends on these.
    with contextlib.suppress(Exception):
        while steps < _ROUND:
            program.step()
            steps += 1
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    cycles = _garbage(show_values=command.show_values)["cycles"]
    return {"step": command.steps + steps, "over_steps": steps, "cycles": cycles} if steps else None


def _garbage(*, show_values: bool) -> dict[str, Any]:
    """Collects, frees what was found, and says what it was: fields of the protocol's ``GarbageRecord``."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        objects = len(gc.garbage)
        looked = probe.look(gc.garbage, show_values)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    # What was saved is garbage again, and now it is freed.
    collect_to_fixpoint(2)
    return {"objects": objects, **looked.settled()}


def facts(device: torch.device, meter: CpuMeter, program: Any) -> dict[str, Any]:
    """Gives what the numbers of this arm depend on: the protocol's ``ArmFacts``."""
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        name, total = properties.name, properties.total_memory
    else:
        name, total = "cpu", os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "python": sys.version,
        "torch": torch.__version__,
        "torch_commit": torch.version.git_version,
        "device_name": name,
        "device_memory": total,
        "gc_enabled": gc.isenabled(),
        "frozen_objects": warm.frozen_objects(),
        "threads": torch.get_num_threads(),
        "allocator_settings": [
            f"{key}={os.environ[key]}" for key in ALLOCATOR_VARIABLES if key in os.environ
        ],
        "memory": meter.read(),
        "flops_per_token": program.flops_per_token(),
    }
