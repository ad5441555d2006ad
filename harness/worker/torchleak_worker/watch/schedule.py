"""Which steps are followed by which collection."""

from dataclasses import dataclass
from types import SimpleNamespace

from torchleak_worker import survivors

FULL = 2
# torchtitan collects the middle generation and those below it.
PERIODIC = 1


@dataclass(frozen=True)
class Due:
    """What follows a step.

    Attributes:
        generation: The generation to collect; None where nothing is collected.
        diagnose: Whether cycles among the garbage are looked for.
        ends_round: Whether it is the collect that frees what several steps have left.
        prepare: Whether what the next step makes is followed, so that what is alive now must be known.
        follow: Whether the storages that the step left are followed.
        retained: Whether it is asked what holds those that are still alive.
        control: Whether a cycle is planted, to see that it would be detected.
    """

    generation: int | None = None
    diagnose: bool = False
    ends_round: bool = False
    prepare: bool = False
    follow: bool = False
    retained: bool = False
    control: bool = False


NOTHING = Due()


class Schedule:
    """The schedule of a mode. Every rank has the same, so that none collects alone."""

    def __init__(self, spec: SimpleNamespace) -> None:
        """Reads the mode from the protocol's ``WatchSpec``."""
        self._spec = spec
        # At least one step must be over before anything is compared with anything.
        self._warmup = max(1, spec.warmup)
        self._round = 0
        self._left = 0
        self._diagnosing = False

    @property
    def disables_collection(self) -> bool:
        """Whether Python's automatic collection is off."""
        return self._spec.mode != "observe"

    def after(self, step: int) -> Due:
        """Says what follows ``step``; it is asked for every step in turn."""
        if self._spec.mode == "debug":
            first, born = step == self._warmup, self._warmup + 1
            return Due(
                FULL,
                diagnose=True,
                prepare=first,
                follow=step == born,
                retained=step == born + survivors.STEPS,
                control=first,
            )
        if self._spec.mode == "periodic":
            # torchtitan does not collect after its first step either.
            return Due(PERIODIC) if step > 1 and step % self._spec.every == 0 else NOTHING
        if self._spec.mode == "compare":
            return self._compare(step)
        return NOTHING

    def _compare(self, step: int) -> Due:
        if step < self._warmup:
            return NOTHING
        if step == self._warmup:
            self._begin_round()
            return Due(FULL, prepare=True, control=True)
        if self._diagnosing:
            self._diagnosing = False
            # A whole round lies between: what does not outlive it is no leak.
            return Due(FULL, diagnose=True, follow=self._round == 1, retained=self._round == 2)
        self._left -= 1
        if self._left > 0:
            return NOTHING
        self._begin_round()
        return Due(FULL, ends_round=True)

    def _begin_round(self) -> None:
        self._round += 1
        self._left = self._spec.every
        # A long run does not need a diagnosis in every round: 1, 2, 4, 8 and so on.
        self._diagnosing = self._round & (self._round - 1) == 0
