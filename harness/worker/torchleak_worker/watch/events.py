"""The file to which one process writes its events."""

import contextlib
import os

import torchleak_probe as probe


class Events:
    """A file of this process alone.

    Each event is one write of one line, so that whatever ends the process loses nothing that was sent.
    """

    def __init__(self, folder: str) -> None:
        """Makes the file in ``folder`` at the first event."""
        self._folder = folder
        self._fd: int | None = None

    def send(self, event: str, **fields: object) -> None:
        """Writes one event; raises OSError where the file cannot be written."""
        if self._fd is None:
            self._fd = self._open()
        probe.send_watch(self._fd, {"event": event, **fields})

    def forget(self) -> None:
        """Leaves the file to the parent of this process, which was forked."""
        if self._fd is not None:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = None

    def _open(self) -> int:
        pid = os.getpid()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        # A process that replaces itself keeps its number.
        for number in range(1000):
            name = f"process-{pid}.jsonl" if number == 0 else f"process-{pid}-{number}.jsonl"
            with contextlib.suppress(FileExistsError):
                return os.open(os.path.join(self._folder, name), flags, 0o644)
        raise FileExistsError(self._folder)
