"""What `torchleak watch` decides inside a watched process, without torch."""

import gc
import sys
from types import SimpleNamespace

import pytest

from torchleak_worker.watch.automatic import AutomaticCollection
from torchleak_worker.watch.calls import Calls
from torchleak_worker.watch.importing import AfterImport
from torchleak_worker.watch.schedule import NOTHING, Schedule


def schedule(mode, **settings):
    return Schedule(SimpleNamespace(mode=mode, **({"warmup": 3, "every": 4} | settings)))


def test_observing_collects_nothing():
    watched = schedule("observe")
    assert [watched.after(step) for step in range(1, 50)] == [NOTHING] * 49
    assert not watched.disables_collection


def test_rounds_are_steps_without_collection_and_diagnosed_in_rounds_of_powers_of_two():
    watched = schedule("compare")
    due = {step: watched.after(step) for step in range(1, 40)}
    collected = [step for step, what in due.items() if what.generation is not None]
    # The warm-up ends with a collect; rounds 1, 2, 4 and 8 begin with a diagnosed step.
    assert collected == [3, 4, 8, 9, 13, 17, 18, 22, 26, 30, 34, 35, 39]
    assert [step for step, what in due.items() if what.diagnose] == [4, 9, 18, 35]
    assert due[3].control and due[3].prepare and due[4].follow


@pytest.mark.parametrize(("mode", "last"), [("compare", 9), ("debug", 6)])
def test_what_holds_a_step_s_tensors_is_asked_once_further_steps_are_over(mode, last):
    watched = schedule(mode)
    due = {step: watched.after(step) for step in range(1, 40)}
    assert [step for step, what in due.items() if what.follow] == [4]
    assert [step for step, what in due.items() if what.retained] == [last]


@pytest.fixture
def collector():
    enabled, threshold = gc.isenabled(), gc.get_threshold()
    yield
    gc.set_threshold(*threshold)
    (gc.enable if enabled else gc.disable)()


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("choose", [gc.enable, gc.disable])
def test_automatic_collection_is_given_back_as_the_script_wants_it(choose):
    gc.set_threshold(50, 6, 7)
    automatic = AutomaticCollection()
    automatic.turn_off()
    choose()
    assert gc.get_threshold() == (0, 6, 7)
    gc.set_threshold(40, 3)
    automatic.turn_off()
    assert gc.get_threshold() == (0, 3, 7)
    automatic.give_back()
    assert (gc.get_threshold(), gc.isenabled()) == ((40, 3, 7), choose is gc.enable)
    automatic.turn_off()
    gc.set_threshold(30)
    automatic.give_back()
    assert gc.get_threshold()[0] == 30


def test_a_periodic_collect_comes_when_torchtitans_does():
    watched = schedule("periodic", every=1)
    assert [watched.after(step).generation for step in (1, 2, 3)] == [None, 1, 1]


@pytest.fixture
def module(tmp_path, monkeypatch):
    text = """
class Model:
    def run(self, value):
        return value

    @staticmethod
    def double(value):
        return 2 * value

    @classmethod
    def make(cls):
        return cls()
"""
    (tmp_path / "watched_module.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "watched_module", raising=False)
    yield "watched_module"
    sys.modules.pop("watched_module", None)


def test_a_module_keeps_its_own_loader_and_the_finder_goes_when_it_is_there(module):
    told = []
    waiting = AfterImport(module, told.append)
    waiting.install()
    import importlib.util

    # Asking whether it could be imported is no import.
    assert importlib.util.find_spec(module) is not None and not told
    imported = importlib.import_module(module)
    assert told == [imported] and waiting not in sys.meta_path
    assert type(imported.__loader__).__module__ == type(imported.__spec__.loader).__module__
    assert "torchleak" not in type(imported.__loader__).__module__


def test_two_that_wait_for_one_module_are_both_told(module):
    import importlib

    told = []
    for _ in range(2):
        AfterImport(module, told.append).install()
    imported = importlib.import_module(module)
    assert told == [imported] * 2
    assert "torchleak" not in type(imported.__loader__).__module__


def test_calls_that_are_steps_are_told_also_if_the_module_came_first(module):
    import importlib

    calls = Calls(module, "Model.run")
    calls.wait()
    imported = importlib.import_module(module)
    assert imported.Model().run(5) == 5
    ended, problems = [], []
    calls.tell(lambda: ended.append(1), problems.append, lambda: False)
    assert imported.Model().run(6) == 6
    assert (ended, problems) == ([1], [])


def test_a_function_that_is_not_there_is_a_problem_for_whoever_asks_later(module):
    import importlib

    calls = Calls(module, "Model.walk")
    calls.wait()
    importlib.import_module(module)
    problems = []
    calls.tell(lambda: None, problems.append, lambda: False)
    assert problems == ["no step can be seen, because watched_module has no Model.walk"]


@pytest.mark.parametrize("name", ["double", "make"])
def test_static_methods_and_class_methods_stay_what_they_are(module, name):
    import importlib

    ended, problems = [], []
    calls = Calls(module, f"Model.{name}")
    calls.wait()
    calls.tell(lambda: ended.append(1), problems.append, lambda: False)
    model = importlib.import_module(module).Model
    assert (model().double(4), model.double(5)) == (8, 10)
    assert type(model().make()) is type(model.make()) is model
    assert (len(ended), problems) == (2, [])


def test_a_class_is_no_function_and_stays_a_class(module):
    import importlib

    calls = Calls(module, "Model")
    problems = []
    calls.tell(lambda: None, problems.append, lambda: False)
    calls.wait()
    imported = importlib.import_module(module)
    assert isinstance(imported.Model(), imported.Model)
    assert problems == ["no step can be seen, because Model of watched_module is no function"]


def test_calls_that_are_being_compiled_are_no_steps(module):
    import importlib

    calls = Calls(module, "Model.run")
    calls.wait()
    ended = []
    calls.tell(lambda: ended.append(1), print, lambda: True)
    assert importlib.import_module(module).Model().run(5) == 5
    assert ended == []
