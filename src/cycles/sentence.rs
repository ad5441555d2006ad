//! A finding in one sentence that a person can act on.

use serde::Serialize;
use torchleak_protocol::{Edge, EdgeKind, Finding, Hop, Node, NodeKind, TensorGroup, TensorInfo};

use crate::bytes::human;

/// How many kinds of tensors a sentence names; the files have all.
const MOST_GROUPS: usize = 3;

/// How many equal steps of a path in a row are spelled out.
const LONGEST_SPELLED_OUT: usize = 3;

/// The attribute in which `torch._disable_dynamo` keeps its wrapper of a function.
const DYNAMO_DISABLE: &str = ".__dynamo_disable";

/// A finding in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// What holds what, and what that keeps.
    pub sentence: String,
    /// Where the cycle can be broken, if that is a place that can be changed.
    pub repair: Option<String>,
}

/// Explains one finding. `layers` is how often the program applies its block.
/// `unit` says what its bytes are for.
pub fn explain(finding: &Finding, layers: Option<u64>, unit: &str) -> Explanation {
    let kept = kept(finding, layers, unit);
    let others = if finding.feeds_others { ", and leads to what other findings keep" } else { "" };
    Explanation { sentence: format!("{}; {kept}{others}", circle(&finding.cycle)), repair: repair(finding) }
}

/// The cycle, from hop to hop and back.
fn circle(cycle: &[Hop]) -> String {
    if let Some(sentence) = disable_circle(cycle) {
        return sentence;
    }
    let Some((first, rest)) = cycle.split_first() else {
        return "the tensors are part of no cycle".to_owned();
    };
    let mut text = name(&first.node);
    // Each object with the reference that leads to it.
    let steps: Vec<(&Edge, &Node)> =
        cycle.iter().map(|hop| &hop.edge).zip(rest.iter().map(|hop| &hop.node)).collect();
    let is_alike = |(edge, node): &(&Edge, &Node), (next_edge, next): &(&Edge, &Node)| {
        edge.label == next_edge.label && node.type_name == next.type_name
    };
    let mut verb = " holds ";
    for alike in steps.chunk_by(is_alike) {
        let is_chain = alike.len() > LONGEST_SPELLED_OUT;
        for (edge, node) in &alike[..if is_chain { 1 } else { alike.len() }] {
            text.push_str(&format!("{verb}{} {}", name(node), by(edge)));
            verb = ", which holds ";
        }
        if is_chain {
            text.push_str(&format!(", and so on, {} of them, to the last", alike.len()));
        }
    }
    let edge = &cycle[cycle.len() - 1].edge;
    if rest.is_empty() {
        format!("{text} holds itself {}", by(edge))
    } else {
        format!("{text}, which holds the first again {}", by(edge))
    }
}

/// The cycle that `torch._disable_dynamo` makes on every function it is given.
fn disable_circle(cycle: &[Hop]) -> Option<String> {
    let [one, other] = cycle else { return None };
    let (function, wrapper) = if one.edge.label == DYNAMO_DISABLE { (one, other) } else { (other, one) };
    (function.edge.label == DYNAMO_DISABLE && wrapper.edge.kind == EdgeKind::Closure).then(|| {
        format!(
            "`torch._disable_dynamo` stored its wrapper on {}, whose closure variable `{}` holds the function again",
            name(&function.node),
            wrapper.edge.label,
        )
    })
}

fn kept(finding: &Finding, layers: Option<u64>, unit: &str) -> String {
    // A tensor without memory of its own, such as a wrapper of another, is worth a word only where there is nothing else.
    let has_memory = finding.exclusive_bytes > 0;
    let groups = || finding.groups.iter().filter(|group| group.bytes > 0 || !has_memory);
    let mut parts: Vec<String> = groups()
        .take(MOST_GROUPS)
        .map(|group| {
            let tensors = tensors(group, finding.count, layers);
            let bytes = human(group.bytes as f64);
            if group.path.is_empty() {
                format!("{tensors} in the cycle itself, {bytes} {unit}")
            } else {
                format!("through {} {tensors}, {bytes} {unit}", way(&group.path))
            }
        })
        .collect();
    if groups().count() > MOST_GROUPS {
        let rest: u64 = groups().skip(MOST_GROUPS).map(|group| group.bytes).sum();
        parts.push(format!("{} in other tensors", human(rest as f64)));
    }
    if parts.is_empty() {
        "it keeps no tensor of its own".to_owned()
    } else {
        format!("it keeps {}", parts.join(", and "))
    }
}

/// How many of which tensors.
fn tensors(group: &TensorGroup, components: u64, layers: Option<u64>) -> String {
    let what = shape(&group.tensor);
    // Alike cycles that hold different numbers of tensors have no "each".
    let (each, place) = if components <= 1 || !group.count.is_multiple_of(components) {
        (group.count, String::new())
    } else if layers == Some(components) {
        (group.count / components, " per layer".to_owned())
    } else {
        (group.count / components, format!(" in each of {components} such cycles"))
    };
    let noun = if each == 1 { "tensor" } else { "tensors" };
    format!("{each} {noun} {what}{place}")
}

/// A tensor as people write it: `[256, 512] float32`.
pub fn shape(tensor: &TensorInfo) -> String {
    let class = tensor.class.as_deref().map_or_else(String::new, |class| format!("`{class}` "));
    let shape =
        tensor.shape.as_ref().map_or_else(|| "of unknown shape".to_owned(), |shape| format!("{shape:?}"));
    let device = if matches!(tensor.device.as_str(), "cpu" | "") {
        String::new()
    } else {
        format!(" on {}", tensor.device)
    };
    let view = if tensor.storage_is_live {
        " (of a storage that is alive anyway)".to_owned()
    } else if is_view(tensor) {
        format!(" (a view of a storage of {})", human(tensor.bytes as f64))
    } else {
        String::new()
    };
    format!("{class}{shape} {}{device}{view}", tensor.dtype)
}

/// Whether a tensor keeps clearly more memory than its own elements need.
fn is_view(tensor: &TensorInfo) -> bool {
    // The widest element, a complex number of two doubles, has 16 bytes.
    let elements = tensor.shape.as_ref().map(|shape| shape.iter().product::<u64>());
    elements.is_some_and(|elements| tensor.bytes > 16 * elements.max(1))
}

/// A path as an expression: `recompute_context.storage[int].val`. A chain, such as that of a frame's callers, is told by
/// its length.
pub fn expression(path: &[Hop]) -> String {
    let mut text = String::new();
    for alike in path.chunk_by(|one, next| one.edge.label == next.edge.label) {
        let label = &alike[0].edge.label;
        let is_chain = alike.len() > LONGEST_SPELLED_OUT;
        for _ in 0..if is_chain { 1 } else { alike.len() } {
            if !text.is_empty() && !label.starts_with(['.', '[']) {
                text.push_str(" > ");
            }
            text.push_str(label);
        }
        if is_chain {
            text.push_str(&format!(" ({} times)", alike.len()));
        }
    }
    text
}

fn way(path: &[Hop]) -> String {
    let through =
        |hop: &Hop| hop.edge.label == ".storage" && hop.node.type_name.ends_with("TorchDispatchMode");
    let expression = expression(path);
    if path.iter().any(through) {
        format!("the SAC storage (`{expression}`)")
    } else {
        format!("`{expression}`")
    }
}

fn repair(finding: &Finding) -> Option<String> {
    let hop = &finding.cycle[finding.breaking_edge?];
    if hop.edge.label == ".__traceback__"
        && let Some(local) = finding.cycle.iter().find(|hop| hop.edge.kind == EdgeKind::Local)
    {
        // Python sets that attribute itself; the variable is the program's own.
        return Some(format!(
            "let {} end without its local variable `{}`: `del` it in a `finally`, because Python itself sets `.__traceback__` \
             of what is raised",
            name(&local.node),
            local.edge.label,
        ));
    }
    let what = match hop.edge.kind {
        EdgeKind::Attribute | EdgeKind::Slot => {
            format!("the attribute `{}` of {}", hop.edge.label, name(&hop.node))
        }
        _ => format!("the entry `{}` of {}", hop.edge.label, name(&hop.node)),
    };
    let rest = if finding.breaking_edge_suffices {
        "no other reference closes this cycle"
    } else {
        "other references close cycles through the same objects"
    };
    Some(format!("do not set {what}, or remove it: {rest}"))
}

/// A node in a sentence.
pub fn name(node: &Node) -> String {
    let place =
        node.location.as_deref().map_or_else(String::new, |location| format!(" ({})", short(location)));
    let named = node.name.as_deref().map(own_name);
    match (node.kind, named) {
        (NodeKind::Function | NodeKind::Method, Some(named)) => format!("`{named}`{place}"),
        (NodeKind::Frame, Some(named)) => format!("the frame of `{named}`{place}"),
        (NodeKind::Generator, Some(named)) => format!("the generator `{named}`{place}"),
        (NodeKind::Coroutine, Some(named)) => format!("the coroutine `{named}`{place}"),
        (NodeKind::Module, Some(named)) => format!("the module `{named}`"),
        (NodeKind::Type, Some(named)) => format!("the class `{named}`"),
        (NodeKind::Tensor, _) => "a tensor".to_owned(),
        _ => format!("a `{}`{place}", node.type_name),
    }
}

/// The file's name and the line, without the folders.
fn short(location: &str) -> &str {
    location.rsplit('/').next().unwrap_or(location)
}

/// A function's own name, without those it is defined in.
fn own_name(qualified: &str) -> &str {
    qualified.rsplit("<locals>.").next().unwrap_or(qualified)
}

fn by(edge: &Edge) -> String {
    let label = &edge.label;
    match edge.kind {
        EdgeKind::Attribute | EdgeKind::Slot => format!("in its attribute `{label}`"),
        EdgeKind::Item | EdgeKind::Index => format!("at `{label}`"),
        EdgeKind::Key => "as a key".to_owned(),
        EdgeKind::Closure => format!("by its closure variable `{label}`"),
        EdgeKind::Default | EdgeKind::KwDefault => format!("as a default of its parameters (`{label}`)"),
        EdgeKind::Globals => "by its globals".to_owned(),
        EdgeKind::SelfOf => "as the object it is bound to".to_owned(),
        EdgeKind::Function => "as its function".to_owned(),
        EdgeKind::Local => format!("in its local variable `{label}`"),
        EdgeKind::Type => "as its class".to_owned(),
        EdgeKind::Base => "as a base class".to_owned(),
        EdgeKind::WeakrefCallback => "as its callback".to_owned(),
        EdgeKind::Dict => "as its dict".to_owned(),
        EdgeKind::Wrapped => format!("as what it calls or passes (`{label}`)"),
        EdgeKind::Chain => format!("by `{label}`"),
        EdgeKind::Internal => "in C or C++".to_owned(),
    }
}

#[cfg(test)]
#[path = "sentence_tests.rs"]
mod tests;
