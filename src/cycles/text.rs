//! A diagnosis as plain text that is equal wherever the same things are retained the same way.

use std::fmt::Write;

use torchleak_protocol::{CycleReport, Hop, Node};

use super::sentence::{expression, shape};

/// The blame of a report, without what differs from machine to machine and between torch's releases:
/// folders and line numbers. What is retained, how often and by what stays.
pub fn blame_text(report: &CycleReport) -> String {
    let mut text = format!(
        "{} tensors, {} bytes, {} components, {} bytes unexplained\n",
        report.tensors, report.tensor_bytes, report.components, report.unexplained_bytes
    );
    for finding in &report.findings {
        let _ = writeln!(text, "\nfinding: {} times, {} bytes", finding.count, finding.exclusive_bytes);
        for (index, hop) in finding.cycle.iter().enumerate() {
            let mark = if finding.breaking_edge == Some(index) { "  <- break here" } else { "" };
            let _ = writeln!(text, "  {}{mark}", hop_text(hop));
        }
        for group in &finding.groups {
            let _ =
                writeln!(text, "  keeps {} x {} ({} bytes)", group.count, shape(&group.tensor), group.bytes);
            let _ = writeln!(text, "    {}", without_numbers(&expression(&group.path)));
        }
    }
    text
}

/// A path without the positions at which things lie in torch's own lists and dicts.
fn without_numbers(path: &str) -> String {
    path.split_inclusive('[').fold(String::new(), |mut text, part| {
        let is_index = text.ends_with('[');
        match part.split_once(']') {
            Some((inside, rest))
                if is_index && (inside == "int" || inside.bytes().all(|byte| byte.is_ascii_digit())) =>
            {
                text.push_str("#]");
                text.push_str(rest);
            }
            _ => text.push_str(part),
        }
        text
    })
}

fn hop_text(hop: &Hop) -> String {
    format!("{} {:?} {}", node_text(&hop.node), hop.edge.kind, hop.edge.label)
}

fn node_text(node: &Node) -> String {
    let file = node.location.as_deref().map(|location| {
        let name = location.rsplit('/').next().unwrap_or(location);
        format!(" ({})", name.split(':').next().unwrap_or(name))
    });
    format!("{} {}{}", node.type_name, node.name.as_deref().unwrap_or("-"), file.unwrap_or_default())
}
