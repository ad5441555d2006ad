"""The llama3 program: a training loop that leaves nothing behind but parameters and optimizer state."""

from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import disable, parallel
from .checkpointing import block_runner
from .dtypes import DTYPES
from .errors import ProgramError
from .llama3 import Llama3
from .result import StepResult

LEARNING_RATE = {"sgd": 1e-3, "adamw": 3e-4}


class Llama3Trainer:
    """Trains a llama3 model on random data.

    Parameters are drawn from torch's global generator, so the caller calls `torch.manual_seed` first, with
    the same seed on every rank. Each step's data depends only on that seed, on the rank and on the number of
    the step: the global generator's state may differ between two runs that must have equal losses.

    Args:
        program: `model`, `input`, `dtype`, `optimizer`, `checkpoint`, `compile` and `parallel`, as the
            protocol has them.
        device: Where the model and the data are created.

    Raises:
        ProgramError: The program names something unknown, or its sizes do not fit.
        Unsupported: The installed torch lacks the program's disable site, or FSDP2.
    """

    def __init__(self, program: SimpleNamespace, device: torch.device) -> None:
        if program.dtype not in DTYPES:
            raise ProgramError(f"unknown dtype {program.dtype!r}")
        model, size = program.model, program.input
        self._device = device
        self._dtype = DTYPES[program.dtype]
        self._vocab = model.vocab
        self._shape = (size.batch, size.seq)
        self._dim = model.dim
        # Rank 0 trains on the same data as a process without ranks.
        self._seed = torch.initial_seed() + parallel.rank() * 1_000_000_007
        self._generator = torch.Generator(device=device)
        self._steps = 0
        disable.apply(program.compile.disable, program.compile.site)
        run_block = block_runner(program.checkpoint, program.compile.block)
        self.model = Llama3(
            layers=model.layers,
            dim=model.dim,
            heads=model.heads,
            kv_heads=model.kv_heads,
            head_dim=model.head_dim,
            ffn_dim=model.ffn_dim,
            seq=size.seq,
            share_weights=model.share_weights,
            vocab=model.vocab,
            device=device,
            dtype=self._dtype,
        )
        self._run = parallel.spread(self.model, run_block, program.parallel, device)
        self._optimizer = _optimizer(program.optimizer, self.model)

    def step(self) -> StepResult:
        """Train on the next batch."""
        self._steps += 1
        loss = self._loss()
        loss.backward()
        norm = _gradient_norm(self.model)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return StepResult(loss=loss.item(), grad_norm=norm.item(), tokens=self._shape[0] * self._shape[1])

    def flops_per_token(self) -> int:
        """Return the floating-point operations per token, forward and backward, by torchtitan's formula.

        A block that is shared is counted once for each time it is applied. Recomputation is not counted.
        """
        model = self.model
        counted = sum(parameter.numel() for parameter in model.parameters())
        if model.embedding is not None:
            counted -= model.embedding.weight.numel()
        block = sum(parameter.numel() for parameter in model.blocks[0].parameters())
        counted += (model.layers - len(model.blocks)) * block
        attention = model.layers * model.heads * 2 * model.head_dim * self._shape[1]
        return 6 * counted + 6 * attention

    def _loss(self) -> Tensor:
        # The batch and the output are local to this call. At full size each is 64 MiB, which would otherwise
        # be counted as retained between steps.
        self._generator.manual_seed((self._seed * 1_000_003 + self._steps) % 2**63)
        if self._vocab is None:
            x = torch.randn(
                (*self._shape, self._dim), generator=self._generator, device=self._device, dtype=self._dtype
            )
            return self._run(x).float().square().mean()
        batch, seq = self._shape
        tokens = torch.randint(self._vocab, (batch, seq + 1), generator=self._generator, device=self._device)
        logits = self._run(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


def _optimizer(name: str, model: nn.Module) -> torch.optim.Optimizer:
    if name == "sgd":
        return torch.optim.SGD(model.parameters(), lr=LEARNING_RATE[name])
    if name == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE[name])
    raise ProgramError(f"unknown optimizer {name!r}")


def _gradient_norm(model: nn.Module) -> Tensor:
    """Return the L2 norm over all gradients, in float32 or wider, without a copy of them.

    Where the gradients are sharded it is the norm over all ranks, which is a collective.
    """
    norms = [
        torch.linalg.vector_norm(parameter.grad, dtype=torch.promote_types(parameter.dtype, torch.float32))
        for parameter in model.parameters()
        if parameter.grad is not None
    ]
    norm = torch.linalg.vector_norm(torch.stack(norms))
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm
