"""Turns Python's automatic collection off, and gives it back as the script wants it."""

from torchleak_worker.collector import gc


class AutomaticCollection:
    """The automatic collection of this process.

    It is turned off by its threshold, so that ``gc.disable()`` and ``gc.enable()`` are left to the script:
    what it asked for is what ``gc.isenabled()`` tells and what a child that is forked gets.
    """

    def __init__(self) -> None:
        """Changes nothing yet."""
        self._threshold = 0

    def turn_off(self) -> None:
        """Turns it off, also if the script has set another threshold meanwhile."""
        threshold = gc.get_threshold()[0]
        if threshold != 0:
            self._threshold = threshold
            gc.set_threshold(0)

    def give_back(self) -> None:
        """Sets the threshold that the script wants, if it is off by us."""
        if gc.get_threshold()[0] == 0:
            gc.set_threshold(self._threshold)
        self._threshold = 0
