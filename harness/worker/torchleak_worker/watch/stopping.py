"""Ends the script from whichever of its threads makes the last step."""

import ctypes
import signal
import threading
from typing import NoReturn

# By default it does nothing, and hardly any program has a use for it.
_WAKE = signal.SIGURG


class Stop:
    """Ends the script as its own ``sys.exit(0)`` would.

    Only what a signal's handler raises ends a system call in which the main thread waits, and only the main
    thread can set a handler, so it is set beforehand.
    """

    def __init__(self) -> None:
        """Sets the handler, unless the script has one of its own or this is not the main thread."""
        self._is_asked = False
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(_WAKE) is signal.SIG_DFL:
            signal.signal(_WAKE, self._wake)

    def end(self) -> NoReturn:
        """Ends this thread and the main thread."""
        main = threading.main_thread()
        # One that has come to its end waits for this thread, and then ends the script.
        if threading.current_thread() is not main and main.is_alive():
            if signal.getsignal(_WAKE) == self._wake:
                self._is_asked = True
                signal.pthread_kill(main.ident, _WAKE)
            else:
                # It takes effect when the main thread runs Python code again.
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(main.ident), ctypes.py_object(SystemExit)
                )
        raise SystemExit(0)

    def _wake(self, _number: int, _frame: object) -> None:
        if self._is_asked:
            self._is_asked = False
            raise SystemExit(0)
