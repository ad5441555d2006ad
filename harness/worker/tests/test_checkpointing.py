"""What checkpointing saves and that it changes no result."""

import functools
from types import SimpleNamespace

import pytest
import torch
from garbage import LAYERS, program
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import CheckpointPolicy

from torchleak_worker.checkpointing import block_runner, context_function, resolve_op
from torchleak_worker.errors import ProgramError
from torchleak_worker.llama3 import Block, rotary_tables
from torchleak_worker.trainer import Llama3Trainer

MM = torch.ops.aten.mm.default


class Operators(TorchDispatchMode):
    """Records every operator that reaches dispatch: itself, its arguments and its output."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.seen.append((func, args, out))
        return out

    def count(self, op):
        """Return how often `op` was seen."""
        return sum(func is op for func, _, _ in self.seen)


def block_and_inputs(dtype=torch.float32):
    torch.manual_seed(0)
    block = Block(dim=40, heads=4, kv_heads=2, head_dim=8, ffn_dim=48, dtype=dtype)
    return block, (torch.randn(2, 6, 40, dtype=dtype), *rotary_tables(6, 8, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_block_is_seven_mm_in_order_and_the_seventh_is_its_output(dtype):
    block, inputs = block_and_inputs(dtype)
    with Operators() as operators:
        block(*inputs)
    products = [(args[1], out) for func, args, out in operators.seen if func is MM]
    names = {parameter.data_ptr(): name.split(".")[-2] for name, parameter in block.named_parameters()}
    assert [names[weight.data_ptr()] for weight, _ in products] == ["wq", "wk", "wv", "wo", "w1", "w3", "w2"]
    assert products[-1][1].shape == (12, 40)
    assert not operators.count(torch.ops.aten.bmm.default)


def test_every_second_mm_saves_four_of_seven_and_the_attention():
    block, inputs = block_and_inputs()
    caching, _ = context_function("every-second-mm")()
    policy, decisions = caching.policy_fn, []

    def record(ctx, op, *args, **kwargs):
        decision = policy(ctx, op, *args, **kwargs)
        decisions.append((op, decision is CheckpointPolicy.MUST_SAVE))
        return decision

    caching.policy_fn = record
    with caching:
        block(*inputs)
    assert [saved for op, saved in decisions if op is MM] == [True, False, True, False, True, False, True]
    others = {str(op) for op, saved in decisions if saved and op is not MM}
    assert others == {"aten._scaled_dot_product_flash_attention_for_cpu.default"}


def test_every_checkpointed_call_counts_anew():
    make = context_function("every-second-mm")
    for _ in range(2):
        caching, _ = make()
        context = SimpleNamespace(is_recompute=False)
        saved = [caching.policy_fn(context, MM) is CheckpointPolicy.MUST_SAVE for _ in range(7)]
        assert saved == [True, False] * 3 + [True]


def recomputed_mm(mode, policy, early_stop):
    """Count the `mm` that backward runs beyond the 14 of its own (13 where the input needs no gradient)."""
    block, (x, cos, sin) = block_and_inputs()
    spec = program(mode=mode, policy=policy, early_stop=early_stop).checkpoint
    loss = block_runner(spec)(block, x.requires_grad_(), cos, sin).sum()
    with Operators() as operators:
        loss.backward()
    return operators.count(MM) - 14


@pytest.mark.parametrize(
    ("mode", "policy", "early_stop", "recomputed"),
    [
        ("none", None, True, 0),
        ("full", None, True, 6),
        ("full", None, False, 7),
        ("selective", "every-second-mm", True, 3),
        ("selective", "every-second-mm", False, 3),
        ("selective", "all-mm", True, 0),
        ("selective", SimpleNamespace(ops=["aten.silu.default"]), True, 6),
        ("selective", SimpleNamespace(ops=["aten.silu.default"]), False, 7),
    ],
)
def test_backward_recomputes_what_was_not_saved(mode, policy, early_stop, recomputed):
    assert recomputed_mm(mode, policy, early_stop) == recomputed


@functools.lru_cache
def losses_without_checkpoint(**options):
    return losses(mode="none", **options)


def losses(**options):
    torch.manual_seed(3)
    trainer = Llama3Trainer(program(**options), torch.device("cpu"))
    return [trainer.step() for _ in range(3)]


@pytest.mark.parametrize("early_stop", [True, False])
@pytest.mark.parametrize(
    "checkpoint",
    [
        {"mode": "full"},
        {"policy": "every-second-mm"},
        {"policy": "all-mm"},
        {"policy": SimpleNamespace(ops=["aten.mm.default", "aten.silu.default"])},
    ],
)
@pytest.mark.parametrize(
    "options", [{}, {"vocab": 32, "optimizer": "adamw"}, {"dtype": "bfloat16"}, {"dtype": "float64"}]
)
def test_checkpoint_changes_no_step(checkpoint, early_stop, options):
    steps = losses(**checkpoint, early_stop=early_stop, **options)
    assert steps == losses_without_checkpoint(**options)
    assert len({step.loss for step in steps}) == len(steps), "the steps must differ in data or weights"


def test_data_does_not_depend_on_the_global_generator():
    torch.manual_seed(3)
    trainer = Llama3Trainer(program(mode="none"), torch.device("cpu"))
    steps = []
    for _ in range(3):
        torch.rand(7)
        steps.append(trainer.step())
    assert steps == losses_without_checkpoint()
    assert steps[0].tokens == 16


def test_grad_norm_is_the_norm_over_all_gradients():
    torch.manual_seed(3)
    trainer = Llama3Trainer(program(mode="none"), torch.device("cpu"))
    trainer._optimizer.zero_grad = lambda set_to_none: None
    step = trainer.step()
    grads = [parameter.grad.flatten().double() for parameter in trainer.model.parameters()]
    assert step.grad_norm == pytest.approx(torch.cat(grads).norm().item(), rel=1e-5)


def test_gradients_are_freed_at_the_end_of_a_step():
    trainer = Llama3Trainer(program(mode="none"), torch.device("cpu"))
    trainer.step()
    assert all(parameter.grad is None for parameter in trainer.model.parameters())


def test_flops_count_a_shared_block_for_every_layer_and_no_embedding():
    # 4 heads of 16 and a block of 2*64 + 2*64*64 + 2*64*32 + 3*64*96 parameters; 8 tokens per sequence.
    block = 2 * 64 + 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96
    head = 64 + 64 * 32
    attention = 6 * LAYERS * 4 * 32 * 8
    for shared in (False, True):
        trainer = Llama3Trainer(program(share_weights=shared, vocab=32), torch.device("cpu"))
        assert trainer.flops_per_token() == 6 * (LAYERS * block + head) + attention


@pytest.mark.parametrize(
    ("backend", "policy"),
    [
        ("eager", "every-second-mm"),
        ("aot_eager", "every-second-mm"),
        ("aot_eager", SimpleNamespace(ops=["aten.mm.default"])),
    ],
)
def test_a_compiled_block_gives_the_same_losses(backend, policy):
    compiled = losses(policy=policy, block=backend)
    for ours, plain in zip(compiled, losses_without_checkpoint(), strict=True):
        assert ours.loss == pytest.approx(plain.loss, rel=1e-5)


def test_an_operator_is_found_by_name():
    assert resolve_op("aten.mm.default") is MM


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mm", "not of the form"),
        ("aten..default", "not of the form"),
        ("aten.mmm.default", "has no operator 'aten.mmm'"),
        ("nowhere.mm.default", "has no operator 'nowhere.mm'"),
        ("aten.mm", "aten.mm.default"),
        ("aten.mm.nowhere", "aten.mm.default"),
    ],
)
def test_an_unknown_operator_is_a_clear_error(name, message):
    with pytest.raises(ProgramError, match=message):
        context_function(SimpleNamespace(ops=[name]))


@pytest.mark.parametrize("options", [{"mode": "half"}, {"policy": "every-third-mm"}])
def test_an_unknown_mode_or_policy_is_refused(options):
    with pytest.raises(ProgramError, match="unknown checkpoint"):
        Llama3Trainer(program(**options), torch.device("cpu"))
