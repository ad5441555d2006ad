"""Cycles that hold tensors: what the probe blames, against real torch."""

import gc

import garbage
import torch
import torch.utils.checkpoint
import torchleak_probe as probe
from forked import in_child
from planted import edges, garbage_of, only, report_of, short
from torch.utils.viz._cycles import create_graph

from torchleak_worker.trainer import Llama3Trainer

HEADLINE = garbage.program(disable=garbage.PRIVATE)


def headline(spec=HEADLINE, steps=1) -> list:
    """Return the garbage of some warm steps."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    trainer = Llama3Trainer(spec, torch.device("cpu"))
    trainer.step()

    def train():
        for _ in range(steps):
            trainer.step()

    found = garbage_of(train)
    # The model must not become garbage too.
    headline.trainer = trainer
    return found


def headline_report() -> dict:
    return probe.cycles(headline())


def test_the_headline_is_one_sentence():
    report = in_child(headline_report)
    finding = only(report)
    assert finding["count"] == garbage.LAYERS
    assert short(edges(finding["cycle"])) == ["recompute_fn .__dynamo_disable", "_fn fn"]
    recompute_fn, wrapper = (hop["node"] for hop in finding["cycle"])
    assert "torch/utils/checkpoint.py:" in recompute_fn["location"]
    assert "torch/_dynamo/eval_frame.py:" in wrapper["location"]
    assert finding["cycle"][1]["edge"] == {"kind": "closure", "label": "fn"}
    assert (finding["breaking_edge"], finding["breaking_edge_suffices"]) == (0, True)
    assert finding["exclusive_bytes"] == report["tensor_bytes"] == garbage.VARIANTS["private"][1]

    activation, state = sorted(finding["groups"], key=lambda group: group["bytes"])[::-1][:2]
    if activation["tensor"]["shape"] == [garbage.RNG_STATE]:
        activation, state = state, activation
    assert activation["tensor"]["shape"] == [garbage.BATCH * garbage.SEQ, garbage.DIM]
    assert activation["tensor"]["dtype"] == "float32"
    assert (activation["count"], activation["bytes"]) == (garbage.LAYERS, garbage.LAYERS * garbage.ACTIVATION)
    assert ".storage" in [hop["edge"]["label"] for hop in activation["path"]]
    assert state["tensor"]["shape"] == [garbage.RNG_STATE]
    assert short(edges(state["path"])) == ["recompute_fn fwd_cpu_state"]


def signatures(steps, layers) -> list:
    spec = garbage.program(disable=garbage.PRIVATE, layers=layers)
    return [
        (finding["signature"], finding["count"])
        for finding in probe.cycles(headline(spec, steps))["findings"]
    ]


def test_every_layer_and_step_is_the_same_finding():
    ((first, count),) = in_child(signatures, 1, 2)
    ((second, more),) = in_child(signatures, 3, 4)
    assert first == second
    assert (count, more) == (2, 12)


def counts_of_both() -> tuple:
    found = headline()
    ours = probe.cycles(found)
    # torch reads `__dict__` of every object before it asks the collector for references. Python 3.11 and
    # 3.12 then keep the attributes in a new dict, which is not among the nodes, so torch loses these
    # edges. With the dicts made before the collect, both see the same graph.
    return ours, create_graph(found, context=lambda _: None, filter=is_tensor)


def counts_with_dicts() -> tuple:
    def materialise(known):
        for found in gc.get_objects():
            if id(found) not in known and type(found).__module__.startswith("torch"):
                object.__getattribute__(found, "__dict__") if hasattr(type(found), "__dict__") else None

    torch.manual_seed(0)
    trainer = Llama3Trainer(HEADLINE, torch.device("cpu"))
    trainer.step()
    headline.trainer = trainer

    def train():
        known = {id(found) for found in gc.get_objects()}
        trainer.step()
        materialise(known)

    found = garbage_of(train)
    return probe.cycles(found), create_graph(found, context=lambda _: None, filter=is_tensor)


def is_tensor(found) -> bool:
    return issubclass(type(found), torch.Tensor)


def compared(counts) -> tuple:
    ours, nodes = counts()
    # torch adds an edge for each label of each reference; a pair of nodes is one edge here.
    pairs = {(source, target) for source, node in enumerate(nodes) for _, target in node.referrents}
    theirs = (len(nodes), sum(node.root for node in nodes), len(pairs))
    return (ours["leading"], ours["tensors"], ours["leading_edges"]), theirs


def test_the_graph_agrees_with_the_one_of_torch():
    ours, theirs = in_child(compared, counts_with_dicts)
    assert ours == theirs


def test_no_tensor_is_missed_that_torch_finds():
    ours, theirs = in_child(compared, counts_of_both)
    assert ours[1] == theirs[1]
    assert ours[0] >= theirs[0]


def test_a_second_report_about_the_same_garbage_is_equal():
    def twice():
        found = headline()
        reports = [probe.cycles(found) for _ in range(3)]
        return [
            (report["findings"], report["tensor_bytes"], report["unexplained_bytes"]) for report in reports
        ]

    first, second, third = in_child(twice)
    assert first == second == third


def test_a_context_of_an_autograd_function_is_named():
    class Keep(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mine = torch.zeros(7)
            ctx.me = ctx
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    finding = only(report_of(lambda: Keep.apply(torch.ones(3, requires_grad=True))))
    (hop,) = finding["cycle"]
    assert (hop["node"]["kind"], hop["edge"]) == ("autograd-node", {"kind": "attribute", "label": ".me"})
    labels = {tuple(edges(group["path"]))[-1].split()[-1] for group in finding["groups"]}
    assert ".mine" in labels


def test_a_bound_method_as_a_hook_leads_back_to_its_module():
    class Hooked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(4, 5))
            self.register_forward_hook(self.hook)

        def hook(self, *args):
            return None

    report = report_of(lambda: Hooked() and None)
    (group,) = [group for finding in report["findings"] for group in finding["groups"]]
    assert group["tensor"]["class"] == "torch.nn.parameter.Parameter"
    assert group["tensor"]["shape"] == [4, 5] and group["tensor"]["requires_grad"]
    (finding,) = [finding for finding in report["findings"] if finding["groups"]]
    kinds = [hop["edge"]["kind"] for hop in finding["cycle"]]
    labels = [hop["edge"]["label"] for hop in finding["cycle"]]
    assert "self" in kinds and "._forward_hooks" in labels


def test_a_subclass_of_tensor_is_named_and_its_code_does_not_run():
    class Loud(torch.Tensor):
        shape = property(lambda self: 1 / 0)
        dtype = property(lambda self: 1 / 0)

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            raise AssertionError(func)

    def plant():
        tensor = torch.zeros(3, 2).as_subclass(Loud)
        tensor.me = [tensor]

    finding = only(report_of(plant))
    (group,) = finding["groups"]
    assert group["tensor"]["class"].endswith("Loud")
    assert group["tensor"]["shape"] == [3, 2]
    assert group["path"] == []


def test_a_subclass_that_dispatches_in_python_is_not_asked_for_its_shape():
    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            layout = (torch.contiguous_format, inner.dtype, torch.strided, inner.device, False, False)
            made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, inner.stride(), 0, *layout, "sizes")
            made.inner = inner
            return made

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            raise AssertionError(func)

    def plant():
        tensor = Wrapper(torch.zeros(3, 2))
        tensor.me = [tensor]

    finding = only(report_of(plant))
    shapes = [group["tensor"]["shape"] for group in finding["groups"]]
    assert len(shapes) == 2 and None in shapes and [3, 2] in shapes


def test_a_storage_is_counted_once():
    def plant():
        whole = torch.zeros(10, 10)
        # Views would keep their base in C++, where no collect finds it.
        box = [whole, *(torch.empty(0).set_(whole.untyped_storage(), 0, (size,)) for size in (10, 100))]
        box.append(box)

    report = report_of(plant)
    finding = only(report)
    assert finding["exclusive_bytes"] == report["tensor_bytes"] == 400
    assert sum(group["count"] for group in finding["groups"]) == 3
    assert all(group["tensor"]["shares_storage"] for group in finding["groups"])


def test_what_made_a_tensor_is_named():
    def plant():
        made = torch.ones(3, requires_grad=True).exp()
        box = [made]
        box.append(box)

    (group,) = only(report_of(plant))["groups"]
    assert group["tensor"]["grad_fn"] == "ExpBackward0"


def test_a_traceback_in_a_local_pins_the_tensors_of_its_frame():
    def plant():
        big = torch.zeros(8)
        try:
            raise RuntimeError
        except RuntimeError as error:
            kept = error
        return kept and big.size()

    finding = only(report_of(plant))
    assert {hop["node"]["kind"] for hop in finding["cycle"]} == {"frame", "exception", "traceback"}
    (group,) = finding["groups"]
    assert short(edges(group["path"])) == ["plant big"]
