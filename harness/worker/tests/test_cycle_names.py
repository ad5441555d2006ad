"""Cycles of plain Python objects and how their edges are named. Needs no torch.

`Held` stands for the tensor. Each test plants one cycle that holds one.
"""

import functools
import weakref

import pytest
from planted import Held, Plain, edges, only, report_of, report_of_live, short


class Slotted:
    """An instance without a dict."""

    __slots__ = ("held", "me")


def closure():
    held = Held()

    def outer():
        return inner, held

    def inner():
        return outer

    return outer


def function_attribute():
    def function():
        return None

    def wrapper():
        return function

    function.wrapped_by = wrapper
    function.held = Held()


def default():
    def function(first, second=[], *, third=None):  # noqa: B006
        return first, second, third

    function.__defaults__[0].append(function)
    function.__kwdefaults__["third"] = Held()


def bound_method():
    instance = Plain()
    instance.held = Held()
    instance.hook = functools.partial(print, instance)
    instance.method = Plain.__init__.__get__(instance)


def bound_function():
    class Local:
        def method(self):
            return None

    instance = Local()
    instance.hook = instance.method
    instance.held = Held()


def partial():
    box = [Held()]
    box.append(functools.partial(print, 1, box, end=box))


def generator():
    def produce(box):
        held = Held()
        box.append(held)
        yield held

    box = []
    box.append(produce(box))
    next(box[0])
    return box


def coroutine():
    async def work(box):
        await Waiting()
        return box

    box = [Held()]
    box.append(work(box))
    box[1].send(None)
    return box


class Waiting:
    """Suspends whoever awaits it."""

    def __await__(self):
        yield


def exception():
    held = Held()
    try:
        raise ValueError(held)
    except ValueError as error:
        kept = error
    return kept


def instance():
    plain = Plain()
    plain.me = plain
    plain.held = Held()


def instance_with_a_dict():
    plain = Plain()
    plain.me = plain
    plain.held = Held()
    return plain.__dict__


def slots():
    slotted = Slotted()
    slotted.me = slotted
    slotted.held = Held()


def list_in_itself():
    box = [None, Held()]
    box.append(box)


def tuple_in_list():
    box = []
    box.append((None, box, Held()))


def dict_in_itself():
    box = {"held": Held()}
    box["me"] = box


def set_of_instance():
    plain = Plain()
    plain.members = {plain}
    plain.held = Held()


def weak_callback():
    target = Plain()
    box = [target, Held()]
    box.append(weakref.ref(target, box.append))


EXPECTED = {
    closure: (["inner outer", "outer inner"], ["outer held"]),
    function_attribute: (["function .wrapped_by", "wrapper function"], ["function .held"]),
    default: (["function second", "list [0]"], ["function third"]),
    bound_function: (["Local .hook", "Local.method .__self__"], ["Local .held"]),
    partial: (["list [1]", "print .args[1]"], ["list [0]"]),
    generator: (["list [0]", "produce box"], ["produce held"]),
    coroutine: (["list [1]", "work box"], ["list [0]"]),
    exception: (["ValueError .__traceback__", "traceback .tb_frame", "exception kept"], ["exception held"]),
    instance: (["planted.Plain .me"], ["planted.Plain .held"]),
    instance_with_a_dict: (["planted.Plain .me"], ["planted.Plain .held"]),
    slots: (["test_cycle_names.Slotted .me"], ["test_cycle_names.Slotted .held"]),
    list_in_itself: (["list [2]"], ["list [1]"]),
    tuple_in_list: (["list [0]", "tuple [1]"], ["list [0]", "tuple [2]"]),
    dict_in_itself: (["dict ['me']"], ["dict ['held']"]),
    set_of_instance: (
        ["planted.Plain .members", "set {...}"],
        ["planted.Plain .held"],
    ),
}


@pytest.mark.parametrize("plant", EXPECTED, ids=lambda plant: plant.__name__)
def test_a_cycle_and_the_path_from_it_are_named(plant):
    report = report_of_live if plant in (generator, coroutine) else report_of
    finding = only(report(plant, target=Held))
    cycle, path = EXPECTED[plant]
    found = short(edges(finding["cycle"]))
    assert any(found == cycle[at:] + cycle[:at] for at in range(len(cycle))), found
    (group,) = finding["groups"]
    assert short(edges(group["path"])) == path
    assert group["count"] == 1


def test_what_a_weak_reference_calls_is_an_edge():
    finding = only(report_of(weak_callback, target=Held))
    assert "weakref_callback" in {hop["edge"]["kind"] for hop in finding["cycle"]}


def test_a_bound_method_of_c_and_a_partial_lead_back_to_the_instance():
    finding = only(report_of(bound_method, target=Held))
    assert finding["cycle"][0]["edge"]["label"] in (".hook", ".method")


def test_functions_and_frames_have_a_place():
    finding = only(report_of(closure, target=Held))
    assert all(__file__ in hop["node"]["location"] for hop in finding["cycle"])
    frame = next(
        hop for hop in only(report_of(exception, target=Held))["cycle"] if hop["node"]["kind"] == "frame"
    )
    assert frame["node"]["location"].startswith(f"{__file__}:")


def test_the_edge_in_mutable_state_is_the_place_for_a_repair():
    finding = only(report_of(function_attribute, target=Held))
    assert finding["cycle"][finding["breaking_edge"]]["edge"]["label"] == ".wrapped_by"
    assert finding["breaking_edge_suffices"]
    assert only(report_of(closure, target=Held))["breaking_edge"] is None


def test_alike_components_are_one_finding():
    def plant():
        for _ in range(32):
            function_attribute()

    finding = only(report_of(plant, target=Held))
    assert (finding["count"], finding["groups"][0]["count"]) == (32, 32)


def test_an_instance_is_the_same_finding_with_and_without_a_dict():
    def plant():
        instance()
        instance_with_a_dict()

    assert only(report_of(plant, target=Held))["count"] == 2


def test_what_a_cycle_reaches_through_another_belongs_to_the_nearer():
    def plant():
        first, second = Plain(), Slotted()
        first.me, first.next = first, second
        second.me, second.held = second, Held()

    report = report_of(plant, target=Held)
    owners = {finding["cycle"][0]["node"]["type_name"]: finding for finding in report["findings"]}
    near, far = owners["test_cycle_names.Slotted"], owners["planted.Plain"]
    assert len(near["groups"]) == 1 and not near["feeds_others"]
    assert far["groups"] == [] and far["feeds_others"]


def test_values_of_the_program_are_shown_only_when_asked_for():
    def plant():
        box = {}
        box["two words"] = box
        box[123456] = Held()

    hidden = only(report_of(plant, target=Held))
    assert edges(hidden["cycle"]) == ["dict [str of 9]"]
    assert edges(hidden["groups"][0]["path"]) == ["dict [int]"]
    shown = only(report_of(plant, target=Held, show_values=True))
    assert edges(shown["cycle"]) == ["dict ['two words']"]
    assert edges(shown["groups"][0]["path"]) == ["dict [123456]"]


def test_garbage_without_what_is_looked_for_has_no_finding():
    def plant():
        box = []
        box.append(box)

    report = report_of(plant, target=Held)
    assert (report["objects"], report["leading"], report["findings"]) == (1, 0, [])
