//! The findings as one page that needs no network: each with its sentence and a drawing.

use std::fmt::Write;

use super::sentence::{name, shape};
use super::{Diagnosis, dot::start};
use crate::bytes::human;
use torchleak_protocol::{Finding, Hop, Node, NodeKind, TensorGroup};

/// Sizes of the drawing, in pixels.
const BOX_WIDTH: usize = 216;
const BOX_HEIGHT: usize = 54;
const COLUMN: usize = BOX_WIDTH + 156;
const ROW: usize = BOX_HEIGHT + 56;
const MARGIN: usize = 50;
/// Characters of one line in a box.
const LINE: usize = 28;
/// Characters of an edge's label between two boxes.
const LABEL: usize = 19;
/// How many findings are drawn; `cycles.json` has all that were named.
const MOST_DRAWN: usize = 20;

const STYLE: &str = "\
body { margin: 2rem auto; max-width: 90rem; padding: 0 1.5rem; color: var(--ink); background: var(--paper);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2.5rem; }
p.sentence { max-width: 60rem; } p.repair { max-width: 60rem; }
";

/// The colours of a page with drawings, and the look of these.
pub const DRAWING_STYLE: &str = "\
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --quiet: #57606a; --box: #f3f5f7; --line: #8c959f;
  --tensor: #ffe7c2; --break: #c2410c; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --paper: #0d1117; --quiet: #9aa4af; --box: #1c232c;
  --line: #6e7681; --tensor: #4d3714; --break: #fb923c; } }
p.repair { color: var(--break); } .quiet { color: var(--quiet); }
code { font-family: ui-monospace, monospace; font-size: 0.92em; }
.drawing { overflow-x: auto; } .drawing svg { display: block; }
.drawing text { font: 12px ui-monospace, monospace; fill: var(--ink); } .drawing .label { fill: var(--quiet); }
.drawing rect { fill: var(--box); stroke: var(--line); } .drawing rect.tensor { fill: var(--tensor); }
.drawing path { fill: none; stroke: var(--line); stroke-width: 1.5; } .drawing path.break { stroke: var(--break);
  stroke-width: 2.5; stroke-dasharray: 6 3; } .drawing .break-label { fill: var(--break); font-weight: bold; }
.drawing marker path { fill: var(--line); stroke: none; } .drawing marker.break path { fill: var(--break); }
@media print, (min-width: 60rem) { .drawing svg { max-width: 100%; height: auto; } }
";

fn garbage_of(diagnosis: &Diagnosis) -> String {
    match diagnosis.over_steps {
        ..=1 => format!("step {}", diagnosis.step),
        steps => format!("the {steps} steps up to step {}", diagnosis.step),
    }
}

/// The page of a case's diagnosis.
pub fn html(case: &str, diagnosis: &Diagnosis) -> String {
    let report = &diagnosis.report;
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\">\n<title>{case}: cycles</title>\n<style>{DRAWING_STYLE}{STYLE}</style></head>\n<body>\n\
         <h1>{case}: what keeps tensors alive</h1>\n<p class=\"quiet\">The garbage of {}: {} objects, {} of which \
         lead to {} tensors of {}, in {} cycles.</p>\n",
        garbage_of(diagnosis),
        report.objects,
        report.leading,
        report.tensors,
        human(report.tensor_bytes as f64),
        report.components,
        case = escaped(case),
    );
    let unit = diagnosis.unit();
    for (number, (finding, explanation)) in diagnosis.findings().take(MOST_DRAWN).enumerate() {
        let _ = writeln!(
            page,
            "<h2>{}. {} {unit} in {} {}</h2>\n<p class=\"sentence\">{}</p>",
            number + 1,
            human(finding.exclusive_bytes as f64),
            finding.count,
            if finding.count == 1 { "cycle" } else { "such cycles" },
            with_code(&explanation.sentence),
        );
        if let Some(repair) = &explanation.repair {
            let _ = writeln!(page, "<p class=\"repair\">To repair: {}.</p>", with_code(repair));
        }
        let _ = writeln!(page, "<div class=\"drawing\">{}</div>", drawing(finding, number));
    }
    let left_out = report.findings_left_out as usize + report.findings.len().saturating_sub(MOST_DRAWN);
    if left_out > 0 {
        let _ = writeln!(page, "<p class=\"quiet\">{left_out} smaller findings are not drawn.</p>");
    }
    page.push_str("</body>\n</html>\n");
    page
}

/// The cycle runs down the left side and back up; each path to tensors runs to the right from the
/// node at which it begins.
pub fn drawing(finding: &Finding, number: usize) -> String {
    let canvas = layout(finding);
    let description =
        format!("Finding {}: a cycle of {} objects and what it keeps", number + 1, finding.cycle.len());
    format!(
        "<svg width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\" role=\"img\" aria-label=\"{}\">\n\
         <defs><marker id=\"arrow{number}\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" \
         markerHeight=\"8\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\"/></marker>\
         <marker id=\"break{number}\" class=\"break\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"6\" \
         markerHeight=\"6\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\"/></marker></defs>\n{}</svg>",
        escaped(&description),
        canvas
            .text
            .replace("#arrow", &format!("#arrow{number}"))
            .replace("#break", &format!("#break{number}")),
        w = canvas.width,
        h = canvas.height,
    )
}

/// A drawing in the making.
#[derive(Default)]
struct Canvas {
    text: String,
    width: usize,
    height: usize,
}

fn layout(finding: &Finding) -> Canvas {
    let mut canvas = Canvas::default();
    let cycle = &finding.cycle;
    // Each node of the cycle gets as many rows as paths begin at it, and at least one.
    let mut row = 0;
    let mut rows = Vec::new();
    for index in 0..cycle.len() {
        rows.push(row);
        let paths = finding.groups.iter().filter(|group| start(cycle, &group.path) == Some(index));
        let mut used = 0;
        for group in paths {
            canvas.path(group, row, row + used);
            used += 1;
        }
        row += used.max(1);
    }
    for (index, hop) in cycle.iter().enumerate() {
        canvas.node(0, rows[index], &box_label(&hop.node), false);
        canvas.cycle_edge(finding, &rows, index);
    }
    for group in finding.groups.iter().filter(|group| start(cycle, &group.path).is_none()) {
        canvas.tensors(0, row, group);
        row += 1;
    }
    canvas
}

impl Canvas {
    /// A path from the first column, where it begins at a node in row `from`, to its tensors.
    fn path(&mut self, group: &TensorGroup, from: usize, row: usize) {
        let steps = steps(&group.path);
        for (column, (node, label)) in steps.iter().enumerate() {
            if column > 0 {
                self.node(column, row, &box_label(node), false);
            }
            self.edge_right(column, if column == 0 { from } else { row }, row, label);
        }
        self.tensors(steps.len(), row, group);
    }

    fn tensors(&mut self, column: usize, row: usize, group: &TensorGroup) {
        let label = format!("{} x {}, {}", group.count, shape(&group.tensor), human(group.bytes as f64));
        self.node(column, row, &label, true);
    }

    fn node(&mut self, column: usize, row: usize, label: &str, is_tensor: bool) {
        let (x, y) = (left(column), top(row));
        let class = if is_tensor { " class=\"tensor\"" } else { "" };
        let _ = writeln!(
            self.text,
            "<rect{class} x=\"{x}\" y=\"{y}\" width=\"{BOX_WIDTH}\" height=\"{BOX_HEIGHT}\" rx=\"6\"/>"
        );
        for (index, line) in wrapped(label, LINE).into_iter().take(2).enumerate() {
            let _ = writeln!(
                self.text,
                "<text x=\"{}\" y=\"{}\">{}</text>",
                x + 10,
                y + 23 + 18 * index,
                escaped(&line)
            );
        }
        self.width = self.width.max(x + BOX_WIDTH + 20);
        self.height = self.height.max(y + BOX_HEIGHT + 30);
    }

    /// An edge to the next column. One that begins in a row above leaves its node at the bottom.
    fn edge_right(&mut self, column: usize, from: usize, row: usize, label: &str) {
        let (right, y) = (left(column) + BOX_WIDTH, top(row) + BOX_HEIGHT / 2);
        let start = if from == row {
            format!("M{right} {y}")
        } else {
            format!("M{} {}V{y}", right - 24, top(from) + BOX_HEIGHT)
        };
        let _ = writeln!(self.text, "<path d=\"{start}H{}\" marker-end=\"url(#arrow)\"/>", left(column + 1));
        self.label(right + 8, y - 6, label, "label");
    }

    /// The edge from one node of the cycle to the next below it, or from the last back to the first.
    fn cycle_edge(&mut self, finding: &Finding, rows: &[usize], index: usize) {
        let is_break = finding.breaking_edge == Some(index);
        let (class, marker) = if is_break { ("break", "break") } else { ("", "arrow") };
        let label = &finding.cycle[index].edge.label;
        let label_class = if is_break { "break-label" } else { "label" };
        if index + 1 < rows.len() {
            let (x, y) = (left(0) + 24, top(rows[index]) + BOX_HEIGHT);
            let end = top(rows[index + 1]);
            let _ = writeln!(
                self.text,
                "<path class=\"{class}\" d=\"M{x} {y}V{end}\" marker-end=\"url(#{marker})\"/>"
            );
            self.label(x + 8, y + 32, label, label_class);
        } else {
            let (x, from, to) = (left(0), top(rows[index]) + BOX_HEIGHT / 2, top(rows[0]) + BOX_HEIGHT / 2);
            // A cycle of one node still needs a loop that can be seen.
            let to = if from == to { to - 16 } else { to };
            let _ = writeln!(
                self.text,
                "<path class=\"{class}\" d=\"M{x} {from}H{out}V{to}H{x}\" marker-end=\"url(#{marker})\"/>",
                out = x - 30
            );
            self.label(x - 30, top(rows[index]) + BOX_HEIGHT + 16, label, label_class);
        }
    }

    fn label(&mut self, x: usize, y: usize, label: &str, class: &str) {
        let short = shortened(label, LABEL);
        let _ = writeln!(
            self.text,
            "<text class=\"{class}\" x=\"{x}\" y=\"{y}\"><title>{}</title>{}</text>",
            escaped(label),
            escaped(&short)
        );
    }
}

/// A path without its plain containers, whose labels join into one expression: what a dict or a list
/// on the way is called says nothing.
fn steps(path: &[Hop]) -> Vec<(&Node, String)> {
    let mut steps: Vec<(&Node, String)> = Vec::new();
    for hop in path {
        let is_plain =
            matches!(hop.node.kind, NodeKind::Dict | NodeKind::List | NodeKind::Tuple | NodeKind::Set);
        match steps.last_mut() {
            Some((_, label)) if is_plain => label.push_str(&hop.edge.label),
            _ => steps.push((&hop.node, hop.edge.label.clone())),
        }
    }
    steps
}

/// A node's name without the marks and articles of a sentence.
fn box_label(node: &Node) -> String {
    let name = name(node).replace('`', "");
    name.strip_prefix("a ").map(str::to_owned).unwrap_or(name)
}

fn left(column: usize) -> usize {
    MARGIN + column * COLUMN
}

fn top(row: usize) -> usize {
    20 + row * ROW
}

fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    // The end of a qualified name says more than its beginning.
    let tail: String = text.chars().skip(text.chars().count() - (most - 1)).collect();
    format!("\u{2026}{tail}")
}

/// Breaks a label at spaces, and a word that is too long anywhere.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last().map_or(0, |line| line.chars().count());
        if last > 0 && last + 1 + word.chars().count() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(&shortened(word, width));
        }
    }
    lines
}

/// Text in HTML and in attributes.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A sentence with its back-quoted parts set as code.
pub fn with_code(sentence: &str) -> String {
    let mut is_code = false;
    escaped(sentence).split('`').fold(String::new(), |mut html, part| {
        if is_code {
            let _ = write!(html, "<code>{part}</code>");
        } else {
            html.push_str(part);
        }
        is_code = !is_code;
        html
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_cannot_become_markup() {
        assert_eq!(with_code("`<b>` & \"x\""), "<code>&lt;b&gt;</code> &amp; &quot;x&quot;");
    }

    #[test]
    fn long_names_keep_their_end() {
        assert_eq!(shortened("torch.utils.checkpoint.Thing", 12), "\u{2026}point.Thing");
        assert_eq!(wrapped("a bb ccc", 4), ["a bb", "ccc"]);
    }
}
