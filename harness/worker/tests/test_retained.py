"""What keeps tensors alive that no collect frees, against real torch."""

import gc
import threading
import warnings

import pytest
import torch
import torchleak_probe as probe
from forked import in_child
from planted import edges, short
from torch.utils.checkpoint import checkpoint

KEPT = []
SIZE = 1000


class Holder:
    """A class of a module."""

    cache = None


def retained(plant, **options) -> dict:
    """Return what holds the storages that `plant` leaves after a collect."""
    gc.disable()
    while gc.collect():
        pass
    before = probe.live_storages()
    kept = plant()
    while gc.collect():
        pass
    report = probe.retained_by(before=before, **options)
    del kept
    return report


def only(report: dict) -> dict:
    (retention,) = report["retentions"]
    return retention


def test_a_list_of_a_module():
    def plant():
        KEPT.extend(torch.ones(SIZE) for _ in range(3))

    report = retained(plant)
    found = only(report)
    KEPT.clear()
    assert found["root"] == {"kind": "module", "description": f"module {__name__}"}
    assert [hop["edge"]["kind"] for hop in found["path"]] == ["attribute", "index"]
    assert (found["count"], found["bytes"]) == (3, 3 * 4 * SIZE)
    assert (report["storages"], report["bytes"]) == (3, 3 * 4 * SIZE)
    assert found["tensor"]["shape"] == [SIZE]


def test_an_attribute_of_a_class():
    def plant():
        Holder.cache = {"last": torch.ones(SIZE)}

    found = only(retained(plant))
    Holder.cache = None
    assert found["root"] == {"kind": "type", "description": f"class {__name__}.Holder"}
    assert [hop["edge"]["label"] for hop in found["path"]] == [".cache", "['last']"]


def test_a_class_of_a_function_is_no_root():
    def plant():
        class Local:
            cache = torch.ones(SIZE)

        KEPT.append(Local)

    found = only(retained(plant))
    KEPT.clear()
    assert found["root"]["kind"] == "module"
    assert [hop["edge"]["label"] for hop in found["path"]] == [".KEPT", "[0]", ".cache"]


def test_a_variable_of_a_running_frame():
    def run():
        before = probe.live_storages()
        mine = torch.ones(SIZE)
        report = probe.retained_by(before=before)
        return report, mine

    found = only(run()[0])
    assert found["root"]["kind"] == "frame"
    assert short(edges(found["path"])) == ["run mine"]
    assert __file__ in found["path"][0]["node"]["location"]


def test_a_variable_that_a_closure_shares_with_a_running_frame():
    def run():
        before = probe.live_storages()
        mine = [torch.ones(SIZE)]

        def inner():
            return mine

        return probe.retained_by(before=before), inner

    found = only(run()[0])
    assert found["root"]["kind"] == "frame"
    assert short(edges(found["path"])) == ["run mine", "list [0]"]


def test_looking_at_a_frame_keeps_none_of_its_variables():
    def run():
        mine = torch.ones(SIZE)
        probe.retained_by()
        address = mine.untyped_storage().data_ptr()
        del mine
        return address in probe.live_storages()

    assert not run()


def test_what_a_program_got_from_locals_stays():
    def run():
        mine = 1
        mapping = locals()
        probe.retained_by()
        return mapping, mine

    assert run()[0]["mine"] == 1


def test_a_variable_of_another_thread():
    started, ending = threading.Event(), threading.Event()

    def wait():
        mine = torch.ones(SIZE)
        started.set()
        ending.wait()
        return mine

    before = probe.live_storages()
    thread = threading.Thread(target=wait)
    thread.start()
    started.wait()
    found = only(probe.retained_by(before=before))
    ending.set()
    thread.join()
    assert short(edges(found["path"])) == ["wait mine"]


def test_a_thread_local():
    local = threading.local()

    def plant():
        local.value = torch.ones(SIZE)

    # The frame of this test is nearer than the state of the thread.
    found = only(retained(plant))
    assert found["root"]["kind"] in ("frame", "thread")


def test_a_generator_that_waits_in_a_list():
    def produce():
        mine = torch.ones(SIZE)
        yield mine

    def plant():
        generator = produce()
        next(generator)
        KEPT.append(generator)

    found = only(retained(plant))
    KEPT.clear()
    assert short(edges(found["path"]))[-1] == "produce mine"


def test_a_leaf_whose_gradient_has_a_graph():
    def plant():
        leaf = torch.ones(SIZE, requires_grad=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            leaf.tanh().sum().backward(create_graph=True)

    # The leak is for good, so it stays in a child.
    report = in_child(retained, plant)
    found = report["retentions"]
    leaf = next(
        entry for entry in found if entry["tensor"]["requires_grad"] and not entry["tensor"]["grad_fn"]
    )
    assert leaf["root"]["kind"] == "autograd"
    assert "AccumulateGrad, in the graph of its own .grad" in leaf["root"]["description"]
    assert leaf["path"] == []
    assert leaf["bytes"] == 4 * SIZE


def test_a_hook_that_captures_its_own_tensor():
    leaf = torch.ones(SIZE, requires_grad=True)

    def plant():
        made = leaf * 2
        made.register_hook(lambda grad: grad * made.detach().mean())

    report = in_child(retained, plant)
    found = next(entry for entry in report["retentions"] if entry["tensor"]["grad_fn"] == "MulBackward0")
    assert found["root"]["kind"] == "autograd", found
    assert found["root"]["description"] == "held by C++: hooks of autograd node MulBackward0"
    assert short(edges(found["path"]))[-1].endswith("made")


def test_what_has_references_that_nobody_shows_is_held_by_c():
    import ctypes

    def plant():
        tensor = torch.ones(SIZE)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(tensor))

    found = only(in_child(retained, plant))
    assert found["root"] == {"kind": "cpp", "description": "held by C++"}
    assert found["path"] == []


def test_garbage_is_called_garbage():
    def run():
        gc.disable()
        while gc.collect():
            pass
        before = probe.live_storages()
        box = [torch.ones(SIZE)]
        box.append(box)
        del box
        return probe.retained_by(before=before)

    found = only(in_child(run))
    assert found["root"]["kind"] == "garbage"


def test_known_storages_are_not_asked_about():
    tensor = torch.ones(SIZE)
    report = probe.retained_by(before=probe.live_storages())
    assert (report["storages"], report["retentions"]) == (0, [])
    assert tensor.numel() == SIZE


def test_a_limit_leaves_out_the_smallest():
    def plant():
        KEPT.extend(torch.ones(SIZE + 10 * number) for number in range(5))

    report = retained(plant, limit=2)
    KEPT.clear()
    assert [entry["tensor"]["shape"] for entry in report["retentions"]] == [[SIZE + 40], [SIZE + 30]]
    assert report["retentions_left_out"] == 3


def test_frozen_modules_are_roots():
    def plant():
        gc.freeze()
        KEPT.append(torch.ones(SIZE))

    found = only(in_child(retained, plant))
    assert found["root"]["kind"] == "module"


@pytest.mark.skipif(torch.__version__ >= (2, 9), reason="later releases do not leak here")
def test_a_function_that_an_early_stop_interrupts():
    class TwoOut(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            first, second = x * 2, x * 3
            ctx.save_for_backward(first, second)
            return first, second

        @staticmethod
        def backward(ctx, first, second):
            # Reading what was saved makes the checkpoint recompute it.
            return sum(ctx.saved_tensors, first + second)

    leaf = torch.ones(SIZE, requires_grad=True)

    def plant():
        made = checkpoint(lambda x: TwoOut.apply(x)[0], leaf, use_reentrant=False)
        made.sum().backward()
        leaf.grad = None

    roots = {entry["root"]["description"] for entry in in_child(retained, plant)["retentions"]}
    assert "held by C++: autograd node of torch.autograd.function.TwoOutBackward" in roots
