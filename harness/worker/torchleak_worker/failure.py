"""Turns an exception into the protocol's failure."""

import traceback

from torchleak_worker.errors import Unsupported

# Enough to see where it was raised; the whole traceback is in the arm's log.
_TRACEBACK_LINES = 12


def describe(error: BaseException) -> dict:
    """Gives kind, message and the last lines of the traceback of ``error``."""
    lines = "".join(traceback.format_exception(error)).rstrip().splitlines()
    text = str(error).strip().splitlines()
    message = f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
    return {"kind": _kind(error), "message": message, "traceback": lines[-_TRACEBACK_LINES:]}


def _kind(error: BaseException) -> str:
    if isinstance(error, Unsupported):
        return "unsupported"
    # torch.OutOfMemoryError is a RuntimeError and only exists since 2.5; the CPU allocator raises a
    # plain RuntimeError, so the text is all there is to tell it by.
    out_of_memory = (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))
    )
    return "out_of_memory" if out_of_memory else "exception"
