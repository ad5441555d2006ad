"""The mechanism of the leak: what one warm step leaves as garbage, to the byte."""

import functools

import pytest
import torch
import torch.utils.checkpoint as torch_checkpoint
from forked import in_child
from garbage import ACTIVATION, LAYERS, PRIVATE, PUBLIC, RNG_STATE, VARIANTS, of_warm_step, program

from torchleak_worker import disable
from torchleak_worker.errors import ProgramError, Unsupported
from torchleak_worker.trainer import Llama3Trainer

measured = functools.lru_cache(lambda name: in_child(of_warm_step, VARIANTS[name][0]))


@pytest.mark.parametrize("name", VARIANTS)
def test_a_warm_step_leaves_exactly_the_expected_bytes(name):
    assert measured(name)["bytes"] == VARIANTS[name][1]


def test_the_headline_leaks_the_last_mm_and_the_rng_state_of_each_layer():
    assert VARIANTS["private"][1] == LAYERS * (ACTIVATION + RNG_STATE)
    assert measured("private")["types"]["Tensor"] == 2 * LAYERS


def test_the_leak_repeats_at_every_step():
    early, late = (in_child(of_warm_step, program(disable=PRIVATE), warmup) for warmup in (1, 5))
    assert early == late


def test_without_a_checkpoint_a_step_leaves_no_object():
    for name in ("stock, no checkpoint", "private, no checkpoint", "stock, no checkpoint, vocabulary, AdamW"):
        assert measured(name)["objects"] == 0


@pytest.mark.parametrize("name", ["stock", "stock, full"])
def test_a_stock_checkpoint_leaves_nothing_but_the_recursive_helper_of_tree_flatten(name):
    # From 2.8 on, `torch.utils._pytree.tree_flatten` defines a local function that calls itself: a cycle of
    # seven objects at every call, none of them a tensor, which the checkpoint makes and this loop does not.
    found = measured(name)
    assert set(found["functions"]) <= {"tree_flatten.<locals>.helper"}
    assert found["objects"] == 7 * sum(found["functions"].values())


def test_the_public_api_leaves_no_object_more_than_stock():
    assert measured("public")["types"] == measured("stock")["types"]


def losses(spec):
    torch.manual_seed(0)
    trainer = Llama3Trainer(spec, torch.device("cpu"))
    return [trainer.step() for _ in range(2)]


@pytest.mark.parametrize("site", ["recompute-fn", "block-forward"])
@pytest.mark.parametrize("api", [PRIVATE, PUBLIC])
def test_a_disable_site_changes_no_step(api, site):
    assert in_child(losses, program(disable=api, site=site)) == in_child(losses, program())


def test_a_compiled_block_trains_with_its_forward_disabled():
    spec = program(disable=PRIVATE, site="block-forward", block="eager", mode="none")
    assert in_child(losses, spec) == in_child(losses, program())


def refusal(change):
    change()
    with pytest.raises(Unsupported) as raised:
        disable.apply(PRIVATE, "recompute-fn")
    return str(raised.value)


def without_frame():
    del torch_checkpoint._CheckpointFrame


def with_other_parameters():
    torch_checkpoint._CheckpointFrame.__init__ = lambda self, early_stop, recompute_fn: None


def with_one_function():
    original = torch_checkpoint._CheckpointFrame.__init__

    def recompute(*args):
        return None

    class Frame(torch_checkpoint._CheckpointFrame):
        def __init__(self, recompute_fn, *args):
            original(self, recompute_fn, *args)

    torch_checkpoint._CheckpointFrame = Frame
    make = torch_checkpoint.checkpoint

    def checkpoint(*args, **kwargs):
        # Stands for a torch that hands every frame the same module-level function.
        init = Frame.__init__
        Frame.__init__ = lambda self, recompute_fn, *rest: init(self, recompute, *rest)
        try:
            return make(*args, **kwargs)
        finally:
            Frame.__init__ = init

    torch_checkpoint.checkpoint = checkpoint


def with_no_frame_made():
    torch_checkpoint.checkpoint = lambda function, x, **options: function(x)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_frame, "has no torch.utils.checkpoint._CheckpointFrame"),
        (with_other_parameters, "expected recompute_fn first"),
        (with_one_function, "does not make a closure per checkpointed call"),
        (with_no_frame_made, "made 0 checkpoint frames"),
    ],
)
def test_a_torch_without_the_site_is_refused(change, message):
    assert message in in_child(refusal, change)


def without_decorator():
    del torch._disable_dynamo
    with pytest.raises(Unsupported) as raised:
        disable.decorator(PRIVATE)
    return str(raised.value)


def test_a_torch_without_the_decorator_is_refused():
    assert "has no torch._disable_dynamo" in in_child(without_decorator)


@pytest.mark.parametrize(("api", "site"), [("torch.disable", "recompute-fn"), (PRIVATE, "block")])
def test_an_unknown_decorator_or_site_is_refused(api, site):
    with pytest.raises(ProgramError, match="unknown disable"):
        disable.apply(api, site)


def test_no_decorator_changes_nothing():
    before = torch_checkpoint._CheckpointFrame.__init__
    disable.apply(None, "recompute-fn")
    assert torch_checkpoint._CheckpointFrame.__init__ is before
