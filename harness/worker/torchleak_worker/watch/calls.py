"""Tells when calls of one function end, for scripts whose steps are those calls.

It needs no torch, because the function's module may be imported before torch is, or import it.
"""

import functools
import inspect
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
        self._is_compiling: Callable[[], bool] = _no
        self._on_problem: Callable[[str], None] = self._keep

    def wait(self) -> None:
        """Wraps the function as soon as its module is imported."""
        AfterImport(self._module, self._wrap).install()

    def tell(
        self,
        on_end: Callable[[], None],
        on_problem: Callable[[str], None],
        is_compiling: Callable[[], bool],
    ) -> None:
        """Says who is told of the end of each call, and of a function that is not there.

        Calls of which ``is_compiling`` says that they are being compiled are no steps.
        """
        self._on_end = on_end
        self._is_compiling = is_compiling
        self._on_problem = on_problem
        if self._problem is not None:
            on_problem(self._problem)

    def _keep(self, problem: str) -> None:
        self._problem = problem

    def _wrap(self, module: Any) -> None:
        *holders, name = self._function.split(".")
        try:
            holder = functools.reduce(getattr, holders, module)
            # A class gives a static method or a class method only in this way as what it is.
            get = inspect.getattr_static if inspect.isclass(holder) else getattr
            stored = get(holder, name)
        except AttributeError:
            self._refuse(f"{self._module} has no {self._function}")
            return
        kind = type(stored) if isinstance(stored, staticmethod | classmethod) else None
        function = stored if kind is None else stored.__func__
        if not inspect.isroutine(function):
            self._refuse(f"{self._function} of {self._module} is no function")
            return
        wrapper = self._wrapper(function)
        try:
            setattr(holder, name, wrapper if kind is None else kind(wrapper))
        except (AttributeError, TypeError) as error:
            self._refuse(f"{self._function} of {self._module} cannot be wrapped: {error}")

    def _refuse(self, reason: str) -> None:
        self._on_problem(f"no step can be seen, because {reason}")

    def _wrapper(self, function: Callable) -> Callable:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            # Dynamo takes this for true while it compiles a caller, and then compiles the function alone.
            if self._is_compiling():
                return function(*args, **kwargs)
            try:
                return function(*args, **kwargs)
            finally:
                self._on_end()

        return wrapper


def _nothing() -> None:
    """Is called as long as torch is not imported."""


def _no() -> bool:
    """Is the answer as long as torch is not imported."""
    return False
