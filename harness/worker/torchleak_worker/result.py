"""What one training step gives back."""

from dataclasses import dataclass


@dataclass(frozen=True)
class StepResult:
    """The outcome of one step.

    Attributes:
        loss: Before the optimizer's update; None where the program has none.
        grad_norm: L2 norm over all gradients, before the update; None where it is not known.
        tokens: Tokens in the batch; None where the program has no tokens.
    """

    loss: float | None
    grad_norm: float | None = None
    tokens: int | None = None
