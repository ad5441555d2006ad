"""What one training step gives back."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class StepResult:
    """The outcome of one step.

    Attributes:
        loss: Before the optimizer's update; None where the program has none. It may be nan or infinite.
        grad_norm: L2 norm over all gradients, before the update; None where it is not known.
        tokens: Tokens in the batch; None where the program has no tokens.
    """

    loss: float | None
    grad_norm: float | None = None
    tokens: int | None = None

    def loss_fields(self) -> dict[str, object]:
        """Gives the loss as the protocol has it: JSON has no number for what is not finite."""
        if self.loss is None or math.isfinite(self.loss):
            return {"loss": self.loss, "loss_is": None}
        return {"loss": None, "loss_is": str(self.loss)}
