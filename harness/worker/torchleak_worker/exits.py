"""How the process of an arm ends, whatever the program did to its interpreter."""

import contextlib
import os
import sys
import traceback
from typing import NoReturn


def print_error() -> None:
    """Prints the current exception where the program cannot have replaced the stream."""
    with contextlib.suppress(OSError):
        os.write(2, traceback.format_exc().encode(errors="backslashreplace"))


def exit_now(code: int) -> NoReturn:
    """Writes out what was printed and exits without finalizers, which may hang or crash."""
    try:
        # A program may have put anything in the place of the first two.
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            with contextlib.suppress(BaseException):
                stream.flush()
    finally:
        os._exit(code)
