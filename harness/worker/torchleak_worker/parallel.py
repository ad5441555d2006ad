"""Training on several ranks: the process group, and what is done to the model."""

import os
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .errors import ProgramError, Unsupported


def join(device_type: str) -> None:
    """Makes this process a member of the default process group, as torchrun has numbered it.

    Raises:
        Unsupported: The installed torch is built without the backend.
    """
    backend, is_there = {
        "cpu": ("gloo", dist.is_gloo_available),
        "cuda": ("nccl", dist.is_nccl_available),
    }[device_type]
    if not is_there():
        raise Unsupported(
            f"torch {torch.__version__} is built without {backend}, which ranks on {device_type} need"
        )
    if device_type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    # All ranks are on this machine. What gloo makes of the machine's name need not be an address of it.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(backend)


def in_group() -> bool:
    """Says whether this process is one of several ranks."""
    return dist.is_available() and dist.is_initialized()


def rank() -> int:
    """Gives the number of this process among the ranks; one that trains alone is 0."""
    return dist.get_rank() if in_group() else 0


def spread(
    model: nn.Module, run_block: Callable[..., Tensor], kind: str, device: torch.device
) -> Callable[[Tensor], Tensor]:
    """Returns the function that runs ``model``, spread over the ranks as ``kind`` says.

    Raises:
        ProgramError: The kind is unknown.
        Unsupported: The installed torch lacks FSDP2.
    """
    run = model
    if kind == "ddp":
        # Its buffers are tables that are the same on every rank.
        run = nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
    elif kind == "fsdp2":
        _shard(model, run_block, device)
        run_block = _plain
    elif kind != "none":
        raise ProgramError(f"unknown kind of parallelism {kind!r}")
    return lambda x: run(x, run_block)


def _plain(block: nn.Module, *inputs: Tensor) -> Tensor:
    return block(*inputs)


class _Layer(nn.Module):
    """A block that is run with its checkpointing.

    FSDP gathers a module's parameters before its forward. As in torchtitan that is outside of the checkpoint,
    so the checkpoint must be inside of a module.
    """

    def __init__(self, block: nn.Module, run_block: Callable[..., Tensor]) -> None:
        super().__init__()
        self.block = block
        self.run_block = run_block

    def forward(self, *inputs: Tensor) -> Tensor:
        """Run the block."""
        return self.run_block(self.block, *inputs)


def _shard(model: nn.Module, run_block: Callable[..., Tensor], device: torch.device) -> None:
    """Puts FSDP2 on each block and on the whole, as torchtitan does."""
    try:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        raise Unsupported(f"torch {torch.__version__} has no torch.distributed.fsdp.fully_shard") from None
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    model.blocks = nn.ModuleList(_Layer(block, run_block) for block in model.blocks)
    for layer in model.blocks:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
