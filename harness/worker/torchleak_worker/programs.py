"""What an arm trains: a llama3 model, a program file, or the positive control.

Every program has ``step()``, which returns a :class:`StepResult`, and ``flops_per_token()``.
"""

import importlib.util
import operator
import os
import sys
from types import SimpleNamespace
from typing import Any

import torch

from torchleak_worker import parallel
from torchleak_worker.dtypes import DTYPES
from torchleak_worker.errors import Unsupported
from torchleak_worker.result import StepResult


def build(command: SimpleNamespace, device: torch.device) -> Any:
    """Builds the program that ``command`` names, on ``device``."""
    program = command.program
    if program.kind == "llama3":
        from torchleak_worker.trainer import Llama3Trainer

        return Llama3Trainer(program, device)
    if program.kind == "file":
        return FileProgram(command, device)
    if program.kind == "planted_cycle":
        return PlantedCycle(program.bytes, device)
    raise Unsupported(f"this worker knows no program of the kind {program.kind!r}")


class PlantedCycle:
    """The positive control: each step leaves one reference cycle that holds one tensor in every memory."""

    def __init__(self, size: int, device: torch.device) -> None:
        """Plants ``size`` bytes a step on ``device`` and, where that is a GPU, in the host's memory too."""
        self.size = size
        self.devices = {"cpu", str(device)}

    def step(self) -> StepResult:
        """Plants one cycle."""
        cycle: list[Any] = [
            torch.zeros(self.size, dtype=torch.uint8, device=device) for device in sorted(self.devices)
        ]
        cycle.append(cycle)
        return StepResult(loss=0.0)

    def flops_per_token(self) -> None:
        """A planted cycle has no tokens."""


class FileProgram:
    """A Python file with ``setup(ctx) -> state`` and ``step(state) -> loss``.

    ``step`` returns None, a number, a tensor with one element, or a dict with ``loss`` and ``tokens``.
    """

    def __init__(self, command: SimpleNamespace, device: torch.device) -> None:
        """Loads the file and calls its ``setup``."""
        path = command.program.path
        location = importlib.util.spec_from_file_location("torchleak_case_program", path)
        if location is None or location.loader is None:
            raise Unsupported(f"{path} is not a Python file")
        self.module = importlib.util.module_from_spec(location)
        # Modules beside the program can be imported, after everything that is installed.
        sys.path.append(os.path.dirname(path))
        # Pickling and dataclasses look a class's module up by its name.
        sys.modules[location.name] = self.module
        location.loader.exec_module(self.module)
        for name in ("setup", "step"):
            if not callable(getattr(self.module, name, None)):
                raise Unsupported(f"{path} does not define the function {name}")
        context = SimpleNamespace(
            torch=torch,
            device=device,
            dtype=DTYPES[command.program.dtype],
            steps=command.steps,
            seed=command.seed,
            dims=vars(command.program.dims),
            rank=parallel.rank(),
            world_size=command.ranks,
        )
        self.state = self.module.setup(context)

    def step(self) -> StepResult:
        """Runs one step of the file."""
        return _result(self.module.step(self.state))

    def flops_per_token(self) -> None:
        """Nothing is known of a program's arithmetic."""


def _result(value: Any) -> StepResult:
    tokens = None
    if isinstance(value, dict):
        unknown = value.keys() - {"loss", "tokens"}
        if unknown:
            raise Unsupported(f"step returned unknown keys {sorted(unknown)}: loss and tokens are known")
        value, tokens = value.get("loss"), value.get("tokens")
    if tokens is not None:
        try:
            tokens = operator.index(tokens)
        except TypeError:
            raise Unsupported(
                f"step returned tokens of type {type(tokens).__name__}: an integer is needed"
            ) from None
    return StepResult(loss=None if value is None else float(value), tokens=tokens)
