"""Disable sites: where a program puts torch.compile's disable decorator.

A site changes torch or the model for the rest of the process, so a process must run one program only.
"""

import functools
import inspect
from collections.abc import Callable

import torch
import torch.utils.checkpoint

from .errors import ProgramError, Unsupported
from .llama3 import Block

APIS = {
    "torch._disable_dynamo": "_disable_dynamo",
    "torch.compiler.disable": "compiler.disable",
}


def decorator(api: str) -> Callable[[Callable], Callable]:
    """Return the decorator called `api`.

    Raises:
        ProgramError: The name is none of `APIS`.
        Unsupported: The installed torch lacks it.
    """
    if api not in APIS:
        raise ProgramError(f"unknown disable decorator {api!r}; there are: {', '.join(APIS)}")
    found = torch
    for part in APIS[api].split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise Unsupported(f"torch {torch.__version__} has no {api}")
    return found


def apply(api: str | None, site: str) -> None:
    """Put the decorator `api` on `site`; nothing is done if `api` is None.

    Args:
        api: A key of `APIS`, or None.
        site: `recompute-fn` is the closure that a non-reentrant checkpoint makes at every call, which
            pytorch PR 153300 decorated. `block-forward` is the block's forward, one function for the run.

    Raises:
        ProgramError: The decorator or the site is unknown.
        Unsupported: The installed torch has no such decorator or site.
    """
    if site not in ("recompute-fn", "block-forward"):
        raise ProgramError(f"unknown disable site {site!r}")
    if api is None:
        return
    if site == "recompute-fn":
        _decorate_recompute_fn(decorator(api))
    else:
        # The class's function is decorated, not an instance's bound method: `_disable_dynamo` stores an
        # attribute on what it decorates, which a bound method refuses.
        Block.forward = decorator(api)(Block.forward)


def _decorate_recompute_fn(decorate: Callable[[Callable], Callable]) -> None:
    frame = getattr(torch.utils.checkpoint, "_CheckpointFrame", None)
    if frame is None:
        raise Unsupported(f"torch {torch.__version__} has no torch.utils.checkpoint._CheckpointFrame")
    original = frame.__init__
    parameters = list(inspect.signature(original).parameters)
    if parameters[1:2] != ["recompute_fn"]:
        raise Unsupported(
            f"torch {torch.__version__} makes checkpoint frames from ({', '.join(parameters[1:])}); "
            "expected recompute_fn first"
        )
    _require_closure_per_call(frame)

    @functools.wraps(original)
    def init(self, recompute_fn, *args, **kwargs):
        original(self, decorate(recompute_fn), *args, **kwargs)

    frame.__init__ = init


def _require_closure_per_call(frame: type) -> None:
    """Check by two tiny checkpointed calls that each hands its own closure to the frame.

    Nothing is run backward here, so nothing is recomputed, and the frames die with their graphs.

    Raises:
        Unsupported: No frame was made, or its function is not a closure, or both calls share it.
    """
    seen = []
    original = frame.__init__

    def record(self, recompute_fn, *args, **kwargs):
        seen.append(recompute_fn)
        original(self, recompute_fn, *args, **kwargs)

    frame.__init__ = record
    try:
        x = torch.ones(1, requires_grad=True)
        for _ in range(2):
            torch.utils.checkpoint.checkpoint(torch.exp, x, use_reentrant=False, preserve_rng_state=False)
    finally:
        frame.__init__ = original
    if len(seen) != 2:
        raise Unsupported(f"torch {torch.__version__} made {len(seen)} checkpoint frames in two calls")
    first, second = seen
    is_closure = all(getattr(function, "__closure__", None) for function in seen)
    if first is second or not is_closure or first.__code__ is not second.__code__:
        raise Unsupported(
            f"torch {torch.__version__} does not make a closure per checkpointed call "
            f"(it uses {getattr(first, '__qualname__', first)!r}), so there is nothing to leak"
        )
