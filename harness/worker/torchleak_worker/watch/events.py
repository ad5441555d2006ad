"""The file to which one process writes its events."""

import contextlib
import fcntl
import os

import torchleak_probe as probe

# Programs close the low numbers wholesale, and may then get one of them for a file of their own.
_HIGH = 500


class Events:
    """A file of this process alone.

    Each event is one write of one line, so that whatever ends the process loses nothing that was sent.
    """

    def __init__(self, folder: str) -> None:
        """Makes the file in ``folder`` at the first event."""
        self._folder = folder
        self._path: str | None = None
        self._fd = -1
        self._identity: tuple[int, int] | None = None

    def forget(self) -> None:
        """Leaves the file to the parent of this process, which was forked."""
        if self._is_ours():
            os.close(self._fd)
        self._path = self._identity = None

    def send(self, event: str, **fields: object) -> None:
        """Writes one event; raises OSError where the file cannot be written, and leaves word of that."""
        try:
            if not self._is_ours():
                self._open()
            probe.send_watch(self._fd, {"event": event, **fields})
        except OSError:
            self._leave_word()
            raise

    def _is_ours(self) -> bool:
        """Says whether the descriptor still is the file: the script may have closed it and got its number."""
        try:
            found = os.fstat(self._fd)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._identity

    def _open(self) -> None:
        if self._path is None:
            low = self._create()
        else:
            low = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._fd = low
        # A process whose limit is lower keeps the number that it got.
        with contextlib.suppress(OSError):
            self._fd = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _HIGH)
            os.close(low)
        found = os.fstat(self._fd)
        self._identity = (found.st_dev, found.st_ino)

    def _create(self) -> int:
        pid = os.getpid()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        # A process that replaces itself keeps its number.
        for number in range(1000):
            name = f"process-{pid}.jsonl" if number == 0 else f"process-{pid}-{number}.jsonl"
            path = os.path.join(self._folder, name)
            with contextlib.suppress(FileExistsError):
                fd = os.open(path, flags, 0o644)
                self._path = path
                return fd
        raise FileExistsError(self._folder)

    def _leave_word(self) -> None:
        """Makes an empty file, for which a full disk still has room."""
        with contextlib.suppress(OSError):
            path = os.path.join(self._folder, f"failed-{os.getpid()}")
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
