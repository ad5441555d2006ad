"""Keeps what the script's handlers of signals raise for the script, while torchleak measures.

Python runs a handler between any two instructions of the main thread, so also in torchleak's own.
"""

import contextlib
import signal
import threading
import traceback
from collections.abc import Iterator

# What a thread itself causes cannot wait.
_OWN = {getattr(signal, f"SIG{name}", None) for name in ("SEGV", "BUS", "FPE", "ILL", "ABRT", "TRAP", "SYS")}
_HELD = signal.valid_signals() - _OWN


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Lets signals to the main thread wait; their handlers run, and raise, at the end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # A handler may raise out of each change of the mask, after it is made.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def raised(error: BaseException) -> bool:
    """Says whether a handler raised ``error``.

    The kernel may give a signal to another thread, which does not hold it back, and Python then runs the
    handler in the main thread all the same.
    """
    handlers = {_code(signal.getsignal(number)) for number in _HELD} - {None}
    return any(frame.f_code in handlers for frame, _line in traceback.walk_tb(error.__traceback__))


def _code(handler: object) -> object:
    handler = getattr(handler, "func", handler)
    return getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)
