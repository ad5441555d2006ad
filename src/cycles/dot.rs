//! The findings as Graphviz text.

use std::fmt::Write;

use torchleak_protocol::{Finding, Hop};

use super::Diagnosis;
use super::sentence::{name, shape};
use crate::bytes::human;

/// One cluster for each finding: the cycle, and a path to each group of tensors.
pub fn dot(diagnosis: &Diagnosis) -> String {
    let mut text =
        String::from("digraph cycles {\n  rankdir=LR;\n  node [shape=box, fontname=\"monospace\"];\n");
    let unit = diagnosis.unit();
    for (number, finding) in diagnosis.report.findings.iter().enumerate() {
        cluster(&mut text, number, finding, &unit);
    }
    text.push_str("}\n");
    text
}

fn cluster(text: &mut String, number: usize, finding: &Finding, unit: &str) {
    let label = format!("{} x, {} {unit}", finding.count, human(finding.exclusive_bytes as f64));
    let _ = writeln!(text, "  subgraph cluster_{number} {{\n    label={};", quoted(&label));
    let cycle = &finding.cycle;
    for (index, hop) in cycle.iter().enumerate() {
        let next = (index + 1) % cycle.len();
        let style =
            if finding.breaking_edge == Some(index) { ", color=red, penwidth=2, style=dashed" } else { "" };
        let _ = writeln!(text, "    c{number}_{index} [label={}];", quoted(&name(&hop.node)));
        let _ = writeln!(
            text,
            "    c{number}_{index} -> c{number}_{next} [label={}{style}];",
            quoted(&hop.edge.label)
        );
    }
    for (group, tensors) in finding.groups.iter().enumerate() {
        let mut from = start(cycle, &tensors.path).map(|index| format!("c{number}_{index}"));
        for (index, hop) in tensors.path.iter().enumerate() {
            let node = match (&from, index) {
                (Some(node), 0) => node.clone(),
                _ => {
                    let node = format!("p{number}_{group}_{index}");
                    let _ = writeln!(text, "    {node} [label={}];", quoted(&name(&hop.node)));
                    node
                }
            };
            let next = if index + 1 == tensors.path.len() {
                format!("t{number}_{group}")
            } else {
                format!("p{number}_{group}_{}", index + 1)
            };
            let _ = writeln!(text, "    {node} -> {next} [label={}];", quoted(&hop.edge.label));
            from = None;
        }
        let label =
            format!("{} x {}\n{}", tensors.count, shape(&tensors.tensor), human(tensors.bytes as f64));
        let _ = writeln!(
            text,
            "    t{number}_{group} [label={}, style=filled, fillcolor=\"#ffe0b0\"];",
            quoted(&label)
        );
    }
    text.push_str("  }\n");
}

/// Which node of the cycle a path begins at.
pub fn start(cycle: &[Hop], path: &[Hop]) -> Option<usize> {
    let first = path.first()?;
    cycle.iter().position(|hop| hop.node == first.node)
}

/// A string as Graphviz reads it.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
