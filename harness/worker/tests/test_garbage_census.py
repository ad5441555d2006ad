"""Which memory of tensors in garbage goes with the garbage, against real torch."""

import gc

import pytest
import torch
import torchleak_probe as probe
from planted import garbage_of

BYTES = 4 * 1000


def cycle(*kept):
    holder = [*kept]
    holder.append(holder)


def view_of_a_tensor_that_is_gone(kept):
    cycle(torch.ones(1000).view(10, 100))


def two_views_of_it(kept):
    base = torch.ones(1000)
    cycle(base.view(10, 100))
    cycle(base[:1])


def view_of_a_view(kept):
    cycle(torch.ones(1000).view(10, 100)[:1])


def view_of_what_autograd_made(kept):
    cycle((torch.ones(1000, requires_grad=True) + 1).view(10, 100))


def complex_view(kept):
    cycle(torch.view_as_real(torch.ones(500, dtype=torch.complex64)))


def view_of_a_leaf(kept):
    cycle(torch.ones(1000, requires_grad=True).view(10, 100))


def view_of_what_its_own_graph_has_saved(kept):
    base = torch.ones(1000, requires_grad=True) + 1
    cycle(base.view(10, 100), base.sin().grad_fn)


def view_with_its_base(kept):
    base = torch.ones(1000)
    cycle(base.view(10, 100), base)


def view_of_a_tensor_in_a_list(kept):
    kept.append(torch.ones(1000))
    cycle(kept[0].view(10, 100))


def view_of_a_tensor_that_a_live_view_holds(kept):
    base = torch.ones(1000)
    kept.append(base[:1])
    cycle(base.view(10, 100))


def view_of_a_gradient(kept):
    leaf = torch.ones(1000)
    leaf.grad = torch.ones(1000)
    kept.append(leaf)
    cycle(leaf.grad.view(10, 100))


def view_of_what_is_saved_for_backward(kept):
    base = torch.ones(1000, requires_grad=True) + 1
    kept.append(base.sin().sum())
    cycle(base.view(10, 100))


def view_of_an_output_that_is_saved_for_backward(kept):
    base = torch.ones(1000, requires_grad=True).exp()
    kept.append(base.sum())
    cycle(base.view(10, 100))


def view_of_what_a_storage_holds(kept):
    base = torch.ones(1000)
    kept.append(base.untyped_storage())
    cycle(base.view(10, 100))


def detached_tensor_of_one_in_a_list(kept):
    kept.append(torch.ones(1000))
    cycle(kept[0].detach())


def look(plant) -> tuple[int, int, int]:
    """Return bytes of garbage's own, bytes that it shares, and bytes that cycles are said to keep."""
    kept = []
    found = garbage_of(lambda: plant(kept))
    looked = probe.look(found)
    found.clear()
    gc.collect()
    settled = looked.settled()
    told = sum(finding["exclusive_bytes"] for finding in settled["cycles"]["findings"])
    assert told == settled["cycles"]["tensor_bytes"]
    own, shared = (
        sum(entry["bytes"] for entry in settled[census].values()) for census in ("census", "shared")
    )
    return own, shared, told


@pytest.mark.parametrize(
    "plant",
    [
        view_of_a_tensor_that_is_gone,
        two_views_of_it,
        view_of_a_view,
        view_of_what_autograd_made,
        view_with_its_base,
        complex_view,
        view_of_a_leaf,
        view_of_what_its_own_graph_has_saved,
    ],
)
def test_memory_that_only_garbage_uses_goes_with_it(plant):
    assert look(plant) == (BYTES, 0, BYTES)


@pytest.mark.parametrize(
    "plant",
    [
        view_of_a_tensor_in_a_list,
        view_of_a_tensor_that_a_live_view_holds,
        view_of_a_gradient,
        view_of_what_is_saved_for_backward,
        view_of_an_output_that_is_saved_for_backward,
        view_of_what_a_storage_holds,
        detached_tensor_of_one_in_a_list,
    ],
)
def test_memory_that_something_alive_uses_stays(plant):
    assert look(plant) == (0, BYTES, 0)


def test_what_lives_is_marked_and_comes_after_what_does_not():
    large = torch.ones(100_000)

    def plant():
        cycle(large.view(10, -1))
        cycle(torch.ones(1000))

    found = garbage_of(plant)
    looked = probe.look(found)
    found.clear()
    gc.collect()
    (finding,) = looked.settled()["cycles"]["findings"]
    marked = [(group["bytes"], group["tensor"]["storage_is_live"]) for group in finding["groups"]]
    assert marked == [(BYTES, False), (0, True)]


def test_modes_of_the_program_see_nothing_of_it():
    seen = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, arguments=(), keywords=None):
            seen.append(function)
            return function(*arguments, **(keywords or {}))

    found = garbage_of(lambda: view_of_a_tensor_that_is_gone([]))
    with Mode():
        looked = probe.look(found)
        found.clear()
        gc.collect()
        assert looked.settled()["census"]["cpu"]["bytes"] == BYTES
    assert seen == []
