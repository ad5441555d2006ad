"""Which of a step's storages are said to be held, against real torch."""

import gc
import warnings

import torch

from torchleak_worker.survivors import Storages

SIZE = 1000


def newborn(step) -> Storages:
    before = Storages()
    step()
    return Storages(without=before)


def test_what_is_replaced_at_each_step_is_not_named_though_it_is_larger():
    class State:
        batch = None
        kept: list = []  # noqa: RUF012

    def step():
        State.batch = torch.ones(10 * SIZE)
        State.kept.append(torch.ones(SIZE))

    following = newborn(step)
    step()
    report = following.retained(show_values=False)
    assert (report["storages"], report["bytes"]) == (1, 4 * SIZE)
    (entry,) = report["retentions"]
    assert entry["tensor"]["shape"] == [SIZE]


def test_a_gradient_that_the_next_step_replaces_is_not_named():
    model = torch.nn.Linear(8, 8)

    def step():
        model.zero_grad()
        model(torch.ones(4, 8)).sum().backward()

    step()
    following = newborn(step)
    step()
    assert following.retained(show_values=False) is None


def test_an_address_that_is_used_again_is_no_survivor():
    memory = bytearray(4 * SIZE)
    kept = []

    def step():
        # The address of such a storage is that of the memory, each time.
        kept[:] = [torch.frombuffer(memory, dtype=torch.float32)]

    following = newborn(step)
    address = kept[0].untyped_storage().data_ptr()
    step()
    assert kept[0].untyped_storage().data_ptr() == address
    assert following.retained(show_values=False) is None


def test_what_is_kept_is_followed_though_the_step_freed_its_address():
    memory = bytearray(4 * SIZE)
    batch = [torch.frombuffer(memory, dtype=torch.float32)]
    address = batch[0].untyped_storage().data_ptr()
    kept = []

    def step():
        batch.clear()
        kept.append(torch.frombuffer(memory, dtype=torch.float32))

    following = newborn(step)
    assert kept[0].untyped_storage().data_ptr() == address
    report = following.retained(show_values=False)
    assert (report["storages"], report["bytes"]) == (1, 4 * SIZE)


def test_a_view_keeps_the_storage_of_its_step_alive():
    kept = []
    following = newborn(lambda: kept.append(torch.ones(SIZE)[:2]))
    report = following.retained(show_values=False)
    assert (report["storages"], report["bytes"]) == (1, 4 * SIZE)


def test_following_a_storage_keeps_nothing_of_it_and_no_tensor_has_a_weak_reference():
    kept = []
    following = newborn(lambda: kept.extend(torch.ones(SIZE) for _ in range(2)))
    torch.utils.swap_tensors(*kept)
    pointer = kept[0].untyped_storage()._weak_ref()
    kept.clear()
    gc.collect()
    assert torch.UntypedStorage._expired(pointer)
    torch.UntypedStorage._free_weak_ref(pointer)
    assert following.retained(show_values=False) is None


def test_tensors_without_memory_of_their_own_are_passed_over():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kept = []
        following = newborn(lambda: kept.append(torch.ones(4, device="meta").clone()))
    assert following.retained(show_values=False) is None
