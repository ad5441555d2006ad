//! The output of torch's own `torch.utils.viz._cycles`, made comparable.

use std::collections::BTreeMap;

use torchleak_protocol::{TorchCycles, TorchNode};

/// The lines that torch logged, without folders and addresses.
pub fn warning_lines(cycles: &TorchCycles) -> String {
    cycles.lines.iter().map(|line| normal(line) + "\n").collect()
}

/// The graph as sorted text: each reference once, with how often it occurs. The order of objects,
/// addresses, folders and line numbers, and the sizes of containers (those of torch's own grow with
/// its source) are left out; the tensors are counted, so that one more changes the text.
pub fn graph_text(nodes: &[TorchNode]) -> String {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for node in nodes {
        let label = normal(&node.label);
        if node.root {
            *counts.entry(format!("tensor: {label}")).or_default() += 1;
        }
        for (edge, target) in &node.references {
            let target = nodes.get(*target).map_or_else(|| "?".to_owned(), |node| normal(&node.label));
            // Which of a closure's variables it is depends on how many the source has.
            let edge = if label.starts_with("(cell") { "[#]".to_owned() } else { normal(edge) };
            *counts.entry(format!("{label} -- {edge} --> {target}")).or_default() += 1;
        }
    }
    counts.iter().map(|(line, count)| format!("{count} x {line}\n")).collect()
}

/// Makes a label equal on every machine.
fn normal(label: &str) -> String {
    let line = label.replace('\n', " ");
    line.split_inclusive([' ', ',', '(', ')']).map(normal_word).collect()
}

fn normal_word(word: &str) -> String {
    let (body, end) = match word.strip_suffix([' ', ',', '(', ')']) {
        Some(body) => (body, &word[body.len()..]),
        None => (word, ""),
    };
    let normal = if let Some(size) = body.strip_prefix("dict[").and_then(|rest| rest.strip_suffix(']')) {
        if size.bytes().all(|byte| byte.is_ascii_digit()) { "dict[#]".to_owned() } else { body.to_owned() }
    } else if body
        .strip_prefix("...")
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
    {
        "...#".to_owned()
    } else if body.starts_with("0x") {
        "0x#".to_owned()
    } else if let Some((path, line)) = body.rsplit_once(".py:")
        && line.bytes().all(|byte| byte.is_ascii_digit())
    {
        format!("{}.py:#", file_name(path))
    } else if body.starts_with('/') || body.starts_with("...") {
        file_name(body).to_owned()
    } else {
        body.to_owned()
    };
    normal + end
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("function\nrecompute_fn", "function recompute_fn")]
    #[case("dict[19]", "dict[#]")]
    #[case("(cell,cell, ...6)", "(cell,cell, ...#)")]
    #[case("weakref to id 0x7f00aa", "weakref to id 0x#")]
    #[case("frame\n.../site-packages/torch/x.py:12", "frame x.py:#")]
    #[case(
        "see visualization of cycle /tmp/a/torch-cycles.html",
        "see visualization of cycle torch-cycles.html"
    )]
    #[case("object\ntorch.Tensor (torch.Size([256, 512]))", "object torch.Tensor (torch.Size([256, 512]))")]
    fn what_differs_between_machines_is_left_out(#[case] label: &str, #[case] text: &str) {
        assert_eq!(normal(label), text);
    }

    fn node(label: &str, root: bool, references: &[(&str, usize)]) -> TorchNode {
        let references = references.iter().map(|(label, target)| ((*label).to_owned(), *target)).collect();
        TorchNode { label: label.to_owned(), root, references }
    }

    #[test]
    fn the_order_of_objects_does_not_matter_and_one_more_tensor_does() {
        let one = [node("f", false, &[("x", 1)]), node("t", true, &[])];
        let turned = [node("t", true, &[]), node("f", false, &[("x", 0)])];
        assert_eq!(graph_text(&one), graph_text(&turned));
        let more = [node("f", false, &[("x", 1)]), node("t", true, &[]), node("t", true, &[])];
        assert_ne!(graph_text(&one), graph_text(&more));
    }
}
