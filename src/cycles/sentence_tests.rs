//! Sentences of made-up findings; `tests/cycles.rs` has those of real ones.

use torchleak_protocol::CycleReport;

use super::super::Diagnosis;
use super::*;

fn node(kind: NodeKind, type_name: &str, name: Option<&str>, location: Option<&str>) -> Node {
    Node {
        kind,
        type_name: type_name.to_owned(),
        name: name.map(str::to_owned),
        location: location.map(str::to_owned),
        length: None,
        value: None,
    }
}

fn hop(node: Node, kind: EdgeKind, label: &str) -> Hop {
    Hop { node, edge: Edge { kind, label: label.to_owned() } }
}

fn function(name: &str, location: &str) -> Node {
    node(NodeKind::Function, "function", Some(name), Some(location))
}

fn tensor(shape: &[u64]) -> TensorInfo {
    TensorInfo {
        class: None,
        shape: Some(shape.to_vec()),
        dtype: "float32".to_owned(),
        device: "cpu".to_owned(),
        bytes: 4 * shape.iter().product::<u64>(),
        requires_grad: false,
        grad_fn: None,
        shares_storage: false,
        storage_is_live: false,
    }
}

fn finding(cycle: Vec<Hop>, groups: Vec<TensorGroup>, count: u64, breaking_edge: Option<usize>) -> Finding {
    Finding {
        signature: String::new(),
        count,
        objects: cycle.len() as u64,
        cycle,
        exclusive_bytes: groups.iter().map(|group| group.bytes).sum(),
        groups,
        breaking_edge,
        breaking_edge_suffices: true,
        feeds_others: false,
    }
}

#[test]
fn the_garbage_of_a_round_is_told_as_that_and_not_per_step() {
    let cycle = vec![hop(function("f", "/a.py:1"), EdgeKind::Attribute, ".me")];
    let group = TensorGroup { path: cycle.clone(), tensor: tensor(&[8]), count: 7, bytes: 7 << 20 };
    let report =
        CycleReport { findings: vec![finding(cycle, vec![group], 7, Some(0))], ..CycleReport::default() };
    let sentence = |over_steps| Diagnosis::of(&report, 20, over_steps, None).explanations[0].sentence.clone();
    assert!(sentence(8).ends_with("in each of 7 such cycles, 7.00 MiB in 8 steps"), "{}", sentence(8));
    assert!(sentence(1).ends_with("in each of 7 such cycles, 7.00 MiB per step"), "{}", sentence(1));
}

#[test]
fn the_dynamo_disable_cycle_is_told_as_what_it_is_from_either_end() {
    let recompute = function("outer.<locals>.recompute_fn", "/torch/utils/checkpoint.py:1497");
    let wrapper = function("DisableContext.__call__.<locals>._fn", "/torch/_dynamo/eval_frame.py:9");
    let mut cycle =
        vec![hop(recompute, EdgeKind::Attribute, ".__dynamo_disable"), hop(wrapper, EdgeKind::Closure, "fn")];
    let group =
        TensorGroup { path: vec![cycle[0].clone()], tensor: tensor(&[256, 256]), count: 4, bytes: 4 << 20 };
    let first = explain(&finding(cycle.clone(), vec![group.clone()], 4, Some(0)), Some(4), "per step");
    assert_eq!(
        first.sentence,
        "`torch._disable_dynamo` stored its wrapper on `recompute_fn` (checkpoint.py:1497), whose closure variable `fn` \
         holds the function again; it keeps through `.__dynamo_disable` 1 tensor [256, 256] float32 per layer, 4.00 MiB \
         per step"
    );
    assert_eq!(
        first.repair.as_deref(),
        Some(
            "do not set the attribute `.__dynamo_disable` of `recompute_fn` (checkpoint.py:1497), or remove it: no other \
             reference closes this cycle"
        )
    );
    cycle.reverse();
    assert_eq!(explain(&finding(cycle, vec![group], 4, Some(1)), Some(4), "per step"), first);
}

#[test]
fn a_longer_cycle_is_told_hop_by_hop() {
    let cycle = vec![
        hop(node(NodeKind::Instance, "app.Trainer", None, None), EdgeKind::Attribute, ".hooks"),
        hop(node(NodeKind::List, "list", None, None), EdgeKind::Index, "[0]"),
        hop(
            node(NodeKind::Method, "method", Some("Trainer.hook"), Some("/app/train.py:7")),
            EdgeKind::SelfOf,
            "__self__",
        ),
    ];
    let explained = explain(&finding(cycle, Vec::new(), 1, Some(0)), None, "per step");
    assert_eq!(
        explained.sentence,
        "a `app.Trainer` holds a `list` in its attribute `.hooks`, which holds `Trainer.hook` (train.py:7) at `[0]`, \
         which holds the first again as the object it is bound to; it keeps no tensor of its own"
    );
}

#[test]
fn an_object_that_holds_itself_and_the_tensor_has_the_shortest_sentence() {
    let list = || node(NodeKind::List, "list", None, None);
    let cycle = vec![hop(list(), EdgeKind::Index, "[1]")];
    let group = TensorGroup {
        path: vec![hop(list(), EdgeKind::Index, "[0]")],
        tensor: tensor(&[8]),
        count: 3,
        bytes: 96,
    };
    assert_eq!(
        explain(&finding(cycle, vec![group], 3, None), None, "per step").sentence,
        "a `list` holds itself at `[1]`; it keeps through `[0]` 1 tensor [8] float32 in each of 3 such cycles, 96 B per \
         step"
    );
}

#[test]
fn a_chain_of_alike_objects_is_told_by_its_length() {
    let link = |label: &str| hop(node(NodeKind::Traceback, "traceback", None, None), EdgeKind::Chain, label);
    let error =
        hop(node(NodeKind::Exception, "RuntimeError", None, None), EdgeKind::Attribute, ".__traceback__");
    let frame =
        hop(node(NodeKind::Frame, "frame", Some("step"), Some("/app/train.py:7")), EdgeKind::Local, "error");
    let mut cycle = vec![error];
    cycle.extend([".tb_next", ".tb_next", ".tb_next", ".tb_next", ".tb_frame"].map(link));
    cycle.push(frame.clone());
    let back = || hop(node(NodeKind::Frame, "frame", None, None), EdgeKind::Chain, ".f_back");
    let path: Vec<Hop> = (0..40).map(|_| back()).chain([frame]).collect();
    let group = TensorGroup { path, tensor: tensor(&[8]), count: 1, bytes: 32 };
    let told = explain(&finding(cycle, vec![group], 1, Some(0)), None, "per step");
    assert_eq!(
        told.repair.as_deref(),
        Some(
            "let the frame of `step` (train.py:7) end without its local variable `error`: `del` it in a `finally`, because \
             Python itself sets `.__traceback__` of what is raised"
        )
    );
    assert_eq!(
        told.sentence,
        "a `RuntimeError` holds a `traceback` in its attribute `.__traceback__`, which holds a `traceback` by `.tb_next`, \
         and so on, 4 of them, to the last, which holds the frame of `step` (train.py:7) by `.tb_frame`, which holds the \
         first again in its local variable `error`; it keeps through `.f_back (40 times) > error` 1 tensor [8] float32, 32 B \
         per step"
    );
}
