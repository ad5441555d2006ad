"""No code of the examined objects runs, and they stay as they are. Needs no torch."""

import sys

import pytest
from planted import Held, Plain, only, report_of


def test_no_code_of_the_objects_runs():
    report = report_of(plant_hostile, target=Held)
    labels = {hop["edge"]["label"] for finding in report["findings"] for hop in finding["cycle"]}
    assert labels & {".me", "[0]"}
    # The planted objects stay alive: their finalizers are hostile too.
    HOSTILE.disarmed = True


class HOSTILE:
    """Whether the planted objects may be freed."""

    disarmed = False


def hostile(name):
    def method(*args, **kwargs):
        if not HOSTILE.disarmed:
            import os

            os.write(2, f"{name} was called\n".encode())
            os._exit(99)

    return method


def plant_hostile():
    names = [
        "__getattribute__",
        "__getattr__",
        "__repr__",
        "__str__",
        "__eq__",
        "__ne__",
        "__hash__",
        "__len__",
        "__bool__",
        "__iter__",
        "__getitem__",
        "__contains__",
        "__instancecheck__",
        "__dir__",
        "__sizeof__",
        "__format__",
        "__call__",
        "__index__",
    ]
    methods = {name: hostile(name) for name in names}
    methods["__class__"] = property(hostile("__class__"))
    methods["__dict__"] = property(hostile("__dict__"))
    members = {"__slots__": ("me", "held", "__weakref__")}
    meta = type("Meta", (type,), {"__getattribute__": hostile("type getattribute")})
    for base in (object, dict, list, set, ValueError):
        hostile_class = type(f"Hostile{base.__name__}", (base,), dict(methods))
        object_ = base.__new__(hostile_class)
        box = [object_, Held()]
        if base is dict:
            dict.__setitem__(object_, "me", box)
        elif base is list:
            list.append(object_, box)
        else:
            object.__setattr__(object_, "me", box)
    for _ in range(2):
        slotted = type("HostileSlots", (), dict(methods) | members)
        object_ = object.__new__(slotted)
        slotted.me.__set__(object_, object_)
        slotted.held.__set__(object_, Held())
    # Metaclasses answer for attributes of classes.
    class_ = type.__new__(meta, "HostileMeta", (), {})
    object_ = object.__new__(class_)
    object.__setattr__(object_, "me", [object_, Held()])
    # A dict whose keys compare and hash in Python.
    key_class = type("Key", (), {"__eq__": hostile("eq"), "__hash__": lambda self: 1})
    box = {}
    for _ in range(1):
        box[key_class()] = box
    box["held"] = Held()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="instances always have a dict there")
def test_an_instance_that_is_not_shown_gets_no_dict():
    def plant():
        for _ in range(1000):
            plain = Plain()
            plain.me = plain
            plain.held = Held()

    report = report_of(plant, target=Held)
    assert only(report)["count"] == 1000
