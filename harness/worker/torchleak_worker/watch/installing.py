"""Hooks the watcher into a process that has imported torch."""

import functools
import sys
import threading
import time
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from torchleak_worker import spec as specification
from torchleak_worker.watch.calls import Calls
from torchleak_worker.watch.importing import AfterImport
from torchleak_worker.watch.watcher import Watcher


def install(path: str, calls: Calls | None) -> None:
    """Begins to watch this process.

    Args:
        path: Of the protocol's ``WatchSpec``.
        calls: Those that are steps, if the specification says so.
    """
    with open(path) as file:
        spec = specification.parse(file.read())
    watcher = Watcher(spec)
    is_child = _is_child()
    if not is_child:
        watcher.imported()
    if calls is not None:
        _by_call(watcher, calls)
    else:
        _BOUNDARIES[spec.boundary.kind](watcher, spec.boundary, is_child)
    if spec.workers:
        AfterImport("torch.utils.data._utils.fetch", functools.partial(_watch_batches, watcher)).install()


def _is_child() -> bool:
    """Says whether `multiprocessing` started this interpreter: it may be a worker, which makes no step."""
    return "--multiprocessing-fork" in getattr(sys, "orig_argv", ())


def _worker() -> Any:
    data = sys.modules.get("torch.utils.data")
    return None if data is None else data.get_worker_info()


class _Optimizers:
    """Tells the watcher of the steps of one optimizer among those of the process."""

    # Dynamo must not compile it into the step of a compiled optimizer; its decorator would import Dynamo.
    _torchdynamo_disable = True

    def __init__(self, watcher: Watcher, index: int, every: int) -> None:
        self._watcher = watcher
        self._index = index
        self._every = every
        self._seen: list[weakref.ref] = []
        self._chosen: weakref.ref | None = None
        self._count = 0

    def __call__(self, optimizer: Any, _args: object, _kwargs: object) -> None:
        if _worker() is not None:
            return
        chosen = None if self._chosen is None else self._chosen()
        if chosen is None:
            chosen = self._choose(optimizer)
        if chosen is not optimizer:
            return
        self._count += 1
        if self._count % self._every == 0:
            self._watcher.after_step(type(optimizer).__name__)

    def _choose(self, optimizer: Any) -> Any:
        # Optimizers that are gone do not count, so that a script may train one model after the other.
        self._seen = [known for known in self._seen if known() is not None]
        if all(known() is not optimizer for known in self._seen):
            self._seen.append(weakref.ref(optimizer))
        if len(self._seen) <= self._index:
            return None
        self._chosen = self._seen[self._index]
        return self._chosen()


def _by_optimizer(watcher: Watcher, boundary: SimpleNamespace, _is_child: bool) -> None:
    _register(_Optimizers(watcher, boundary.index, 1))


def _every(watcher: Watcher, boundary: SimpleNamespace, _is_child: bool) -> None:
    _register(_Optimizers(watcher, 0, boundary.steps))


def _register(hook: Callable) -> None:
    register_optimizer_step_post_hook(hook)


def _by_call(watcher: Watcher, calls: Calls) -> None:
    def after_call() -> None:
        if _worker() is None:
            watcher.after_step(calls.label)

    calls.tell(after_call, watcher.note, torch.compiler.is_compiling)


def _by_time(watcher: Watcher, boundary: SimpleNamespace, is_child: bool) -> None:
    if is_child:
        return

    def run() -> None:
        while watcher.is_main:
            time.sleep(boundary.seconds)
            watcher.after_step(f"{boundary.seconds:g} s")

    threading.Thread(target=run, name="torchleak-watch", daemon=True).start()


_BOUNDARIES = {"optimizer": _by_optimizer, "every": _every, "time": _by_time}


def _watch_batches(watcher: Watcher, module: Any) -> None:
    """Lets a batch that a DataLoader's worker has fetched be a step of that worker."""
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        fetcher = getattr(module, name, None)
        if fetcher is not None:
            fetcher.fetch = _batch(watcher, fetcher.fetch)


def _batch(watcher: Watcher, fetch: Callable) -> Callable:
    @functools.wraps(fetch)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        batch = fetch(*args, **kwargs)
        worker = _worker()
        if worker is not None:
            watcher.after_step("batches", worker.id)
        return batch

    return wrapper
