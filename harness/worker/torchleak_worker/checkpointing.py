"""Activation checkpointing of a block, by mode and policy, alike on every supported torch."""

import functools
from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
    set_checkpoint_early_stop,
)

from .errors import ProgramError

MM = "aten.mm.default"

# Attention operators that torchtitan's policy saves, and the one that SDPA becomes on a CPU, so that a CPU
# keeps the same layer outputs as a GPU. Its two other operators (a collective, and a max for float8) do not
# occur in this model. Which of these exist depends on the torch version.
ATTENTION_OPS = (
    "aten._scaled_dot_product_flash_attention.default",
    "aten._scaled_dot_product_efficient_attention.default",
    "aten._scaled_dot_product_cudnn_attention.default",
    "aten._scaled_dot_product_flash_attention_for_cpu.default",
)


def resolve_op(name: str) -> torch._ops.OpOverload:
    """Return the operator called `name`, for example `aten.mm.default`.

    Raises:
        ProgramError: The name is malformed, or the installed torch has no such operator or overload.
    """
    parts = name.split(".")
    if len(parts) not in (2, 3) or not all(parts):
        raise ProgramError(f"operator {name!r} is not of the form namespace.name.overload, such as {MM}")
    try:
        packet = getattr(getattr(torch.ops, parts[0]), parts[1])
    except (AttributeError, RuntimeError):
        packet = None
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        raise ProgramError(f"torch {torch.__version__} has no operator {'.'.join(parts[:2])!r}, of {name!r}")
    overloads = packet.overloads()
    if len(parts) == 2 or parts[2] not in overloads:
        known = ", ".join(f"{parts[0]}.{parts[1]}.{overload}" for overload in overloads)
        raise ProgramError(f"operator {name!r} does not name an overload; there are: {known}")
    return getattr(packet, parts[2])


def _existing(names: tuple[str, ...]) -> set[torch._ops.OpOverload]:
    """Return those of torchtitan's operators that the installed torch has."""
    found = set()
    for name in names:
        try:
            found.add(resolve_op(name))
        except ProgramError:
            continue
    return found


def _every_second_mm_contexts(mm, saved) -> Callable[[], tuple]:
    """Return the function that makes the contexts of one checkpointed call, as torchtitan does.

    The count starts anew for each call and is kept apart for forward and recomputation, else the two would
    disagree about which `mm` is saved.
    """

    def contexts() -> tuple:
        counts = {False: 0, True: 0}

        def policy(ctx, op, *args, **kwargs):
            if op is mm:
                counts[ctx.is_recompute] += 1
                save = counts[ctx.is_recompute] % 2 == 1
            else:
                save = op in saved
            return CheckpointPolicy.MUST_SAVE if save else CheckpointPolicy.PREFER_RECOMPUTE

        return create_selective_checkpoint_contexts(policy)

    return contexts


def _listed_contexts(ops: list[torch._ops.OpOverload]) -> Callable[[], tuple]:
    # A closure rather than a `functools.partial`: Dynamo before 2.13 takes a partial only if each of its
    # arguments is a Python constant, which a list of operators is not.
    def contexts() -> tuple:
        return create_selective_checkpoint_contexts(ops)

    return contexts


def context_function(policy) -> Callable[[], tuple]:
    """Return the `context_fn` of a selective checkpoint.

    Args:
        policy: `"every-second-mm"`, `"all-mm"`, or an object whose `ops` are the names of what is saved.

    Raises:
        ProgramError: The policy or an operator that it names is unknown.
    """
    if policy == "every-second-mm":
        return _every_second_mm_contexts(resolve_op(MM), _existing(ATTENTION_OPS))
    if policy == "all-mm":
        return _listed_contexts([resolve_op(MM)])
    if hasattr(policy, "ops"):
        return _listed_contexts([resolve_op(name) for name in policy.ops])
    raise ProgramError(f"unknown checkpoint policy {policy!r}")


def _plain(block: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    return block(*inputs)


def block_runner(spec, backend: str | None = None) -> Callable[..., Tensor]:
    """Return `run(block, *inputs)`, which calls the block as `spec` says.

    Args:
        spec: Has `mode` (`none`, `full`, `selective`), `policy`, `early_stop` and `preserve_rng_state`.
        backend: The torch.compile backend for the checkpointed block, or None to run it eagerly. As in
            torchtitan, the checkpoint is inside what is compiled.

    Raises:
        ProgramError: The mode, the policy or an operator that it names is unknown.
    """
    if spec.mode == "none":
        call = _plain
    elif spec.mode in ("full", "selective"):
        options = {"use_reentrant": False, "preserve_rng_state": spec.preserve_rng_state}
        if spec.mode == "selective":
            options["context_fn"] = context_function(spec.policy)
        call = functools.partial(_checkpointed, options)
    else:
        raise ProgramError(f"unknown checkpoint mode {spec.mode!r}")

    if backend is not None:
        call = torch.compile(call, backend=backend)
    if spec.mode == "none":
        return call
    return functools.partial(_with_early_stop, call, spec.early_stop)


def _checkpointed(options: dict, block: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    return checkpoint(block, *inputs, **options)


def _with_early_stop(call: Callable[..., Tensor], early_stop: bool, *args) -> Tensor:
    # The keyword argument `early_stop` of `checkpoint` appeared after 2.8, this context long before 2.6. It
    # is read when a frame is made, and is outside what is compiled because Dynamo cannot trace it.
    with set_checkpoint_early_stop(early_stop):
        return call(*args)
