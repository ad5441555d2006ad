"""Whether collects free what no look at garbage has shown yet."""

from typing import Any

# What is called flat, in bytes per step.
_FLAT = 4096
# A collect may free what is no tensor, and then no further look would show one.
_MOST_LOOKS = 8


class Unnamed:
    """Decides when the garbage of a whole round is looked at.

    The garbage of one step has neither what the script itself holds until its next step nor what only few
    of the steps leave.
    """

    def __init__(self) -> None:
        """Nothing has been freed or looked at."""
        self._has_freed = False
        self._has_shown = False
        self._looks = 0

    @property
    def is_due(self) -> bool:
        """Whether the garbage of the round that ends now is to be looked at."""
        return self._has_freed and not self._has_shown and self._looks < _MOST_LOOKS

    def freed(self, before: int | None, after: int | None, steps: int) -> None:
        """Takes the bytes in use before and after a collect that followed so many steps."""
        if before is not None and after is not None and before - after > _FLAT * steps:
            self._has_freed = True

    def looked(self, garbage: dict[str, Any]) -> None:
        """Takes what a look has shown, the protocol's ``WatchGarbage``."""
        self._has_shown |= any(storages["bytes"] for storages in garbage["census"].values())
        self._looks += garbage["over_steps"] > 1
