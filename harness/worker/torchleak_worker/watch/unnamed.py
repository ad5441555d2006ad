"""Whether collects free what the looks at garbage have not shown yet."""

from typing import Any

from torchleak_worker.loop import FLAT, bytes_of

# Looks show about what collects free if they are within this factor of it.
_ABOUT = 2
# A collect may free what is no tensor, and then no further look would show one.
_MOST_LOOKS = 8


class Unnamed:
    """Decides when the garbage of a whole round is looked at.

    The garbage of one step has neither what the script itself holds until its next step nor what only few
    of the steps leave; at one of those few it has more than a step leaves on average.
    """

    def __init__(self) -> None:
        """Nothing has been freed or looked at."""
        self._freed = 0.0
        self._shown = 0.0
        self._looks = 0

    @property
    def is_due(self) -> bool:
        """Whether the garbage of the round that ends now is to be looked at."""
        is_shown = self._freed <= _ABOUT * self._shown and self._shown <= _ABOUT * self._freed
        return self._freed > 0 and not is_shown and self._looks < _MOST_LOOKS

    def freed(self, before: int | None, after: int | None, steps: int) -> None:
        """Takes the bytes in use before and after a collect that followed so many steps."""
        if before is not None and after is not None and before - after > FLAT * steps:
            self._freed = (before - after) / steps

    def looked(self, garbage: dict[str, Any]) -> None:
        """Takes what a look has shown, the protocol's ``WatchGarbage``."""
        steps = garbage["over_steps"]
        # Once a round was looked at, a look at one step says less.
        if steps > 1 or self._looks == 0:
            self._shown = bytes_of(garbage["census"]) / steps
        self._looks += steps > 1
