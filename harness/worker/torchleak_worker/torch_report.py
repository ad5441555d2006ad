"""Lets torch's own cycle reporter look at the garbage of one more step.

It runs after everything that a verdict needs, because it runs code of the objects it looks at (attribute
look-ups, ``repr``) and takes a while on large garbage.
"""

import contextlib
import gc
import logging
import os
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch

_HTML = "torch-cycles.html"
# create_graph takes about 15 microseconds an object.
_MOST_OBJECTS = 200_000


def report(program: Any, device: torch.device, folder: str) -> dict[str, Any]:
    """Runs one or two more steps of ``program`` and gives the protocol's ``TorchCycles``.

    Args:
        program: The program, all of whose own steps are done.
        device: The device that it trains on; tensors of its type are looked for.
        folder: Where the page that ``to_html`` makes is written.
    """
    found: dict[str, Any] = {"lines": [], "nodes": [], "html": None}
    try:
        from torch.utils.viz import _cycles

        with _captured(_cycles.logger, found["lines"]):
            if device.type == "cuda":
                # Unchanged, as torchtitan's debug mode uses it; it names a file that is gone at once.
                _observe(_cycles.warn_tensor_cycles(), program)
            observer = _observer(_cycles, device, folder, found)
            _observe(_cycles.observe_garbage(observer), program)
    except Exception:
        # Its failure is torch's own and worth knowing, but nothing of ours.
        found["lines"].append(f"torch.utils.viz._cycles failed: {traceback.format_exc(limit=-1).strip()}")
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    return found


def _observe(remove: Callable[[], None], program: Any) -> None:
    """Lets an installed observer see what one step leaves."""
    try:
        program.step()
        gc.collect()
    finally:
        remove()


def _observer(
    cycles: Any, device: torch.device, folder: str, found: dict[str, Any]
) -> Callable[[list], None]:
    word = "CUDA" if device.type == "cuda" else "CPU"

    def observer(garbage: list) -> None:
        if not garbage:
            return
        if len(garbage) > _MOST_OBJECTS:
            found["lines"].append(f"not asked: {len(garbage)} objects are in garbage")
            return
        if not any(_is_tensor(thing, device) for thing in garbage):
            if device.type != "cuda":
                cycles.logger.info("No %s Tensors found in garbage", word)
            return
        options: dict[str, Any] = {"filter": lambda thing: _is_tensor(thing, device)}
        if device.type != "cuda":
            # The default asks the CUDA allocator where each tensor was made.
            options["context"] = lambda thing: None
        nodes = cycles.create_graph(garbage, **options)
        found["nodes"] = [
            {"label": node.label, "root": node.root, "references": node.referrents} for node in nodes
        ]
        with open(os.path.join(folder, _HTML), "w", encoding="utf-8") as file:
            file.write(cycles.to_html(nodes))
        found["html"] = _HTML
        if device.type != "cuda":
            cycles.logger.warning(
                "Reference cycle includes a %s Tensor see visualization of cycle %s", word, file.name
            )

    return observer


def _is_tensor(thing: object, device: torch.device) -> bool:
    # The type and not isinstance: garbage may hold weak proxies, which raise when they are asked.
    return issubclass(type(thing), torch.Tensor) and thing.device.type == device.type


@contextlib.contextmanager
def _captured(logger: logging.Logger, lines: list[str]) -> Iterator[None]:
    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    handler, level = Handler(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
