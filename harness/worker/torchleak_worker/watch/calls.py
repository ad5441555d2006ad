"""Tells when calls of one function end, for scripts whose steps are those calls.

It needs no torch, because the function's module may be imported before torch is, or import it.
"""

import functools
from collections.abc import Callable
from typing import Any

from torchleak_worker.watch.importing import AfterImport


class Calls:
    """The calls of a function or method that a module defines."""

    def __init__(self, module: str, function: str) -> None:
        """Names the function ``function`` of ``module``; a method is ``Class.method``."""
        self.label = f"{module}:{function}"
        self._module = module
        self._function = function
        self._problem: str | None = None
        self._on_end: Callable[[], None] = _nothing
        self._on_problem: Callable[[str], None] = self._keep

    def wait(self) -> None:
        """Wraps the function as soon as its module is imported."""
        AfterImport(self._module, self._wrap).install()

    def tell(self, on_end: Callable[[], None], on_problem: Callable[[str], None]) -> None:
        """Says who is told of the end of each call, and of a function that is not there."""
        self._on_end = on_end
        self._on_problem = on_problem
        if self._problem is not None:
            on_problem(self._problem)

    def _keep(self, problem: str) -> None:
        self._problem = problem

    def _wrap(self, module: Any) -> None:
        *holders, name = self._function.split(".")
        try:
            holder = functools.reduce(getattr, holders, module)
            function = getattr(holder, name)
        except AttributeError:
            self._on_problem(f"no step can be seen, because {self._module} has no {self._function}")
            return

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            finally:
                self._on_end()

        setattr(holder, name, wrapper)


def _nothing() -> None:
    """Is called as long as torch is not imported."""
