"""Cycles among very many objects, in very long chains and on very many paths. Needs no torch."""

from planted import Held, Plain, edges, only, report_of


def test_a_chain_of_100000_objects_is_shown_without_its_middle():
    def plant():
        first = last = Plain()
        for _ in range(100_000):
            last.next = Plain()
            last = last.next
        last.next = first
        last.held = Held()

    finding = only(report_of(plant, target=Held))
    assert finding["objects"] >= 100_001
    assert len(finding["cycle"]) < 100


def test_a_list_of_ten_million_elements_is_walked():
    def plant():
        box = [None] * 10_000_000
        box[-2], box[-1] = box, Held()

    finding = only(report_of(plant, target=Held))
    assert edges(finding["cycle"]) == ["list [9999998]"]


def test_a_million_objects_are_walked():
    def plant():
        box = [[] for _ in range(1_000_000)]
        box.append(box)
        box.append(Held())

    report = report_of(plant, target=Held)
    assert report["objects"] > 1_000_000
    assert only(report)["objects"] == 1


def test_each_of_many_paths_is_not_named():
    def plant():
        box = {}
        for number in range(1000):
            box[f"key{number}"] = [Held()]
        box["me"] = box

    finding = only(report_of(plant, target=Held))
    assert sum(group["count"] for group in finding["groups"]) == 1000
    assert len(finding["groups"]) <= 16
