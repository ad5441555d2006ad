//! Why tensors stay: the probe's findings, chosen, put into sentences and drawn.
//!
//! The probe has already found the cycles and their names where the objects are
//! (`harness/probe/src/graph`). What is left here is words and pictures.

mod dot;
mod html;
mod retained;
mod sentence;
mod text;
mod torch_graph;

pub use dot::dot;
pub use html::html;
pub(crate) use html::{DRAWING_STYLE, drawing, with_code};
pub use retained::{Retained, retained};
pub use sentence::Explanation;
pub use text::blame_text;
pub use torch_graph::{graph_text, warning_lines};

use serde::Serialize;
use torchleak_protocol::{CycleReport, Finding};

use crate::measure::Recording;

/// A diagnosis in words.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diagnosis {
    /// The step whose garbage is explained.
    pub step: u32,
    /// Steps that left this garbage; the numbers of findings are for all of them.
    pub over_steps: u32,
    /// One for each finding of the report, in its order.
    pub explanations: Vec<Explanation>,
    pub report: CycleReport,
}

impl Diagnosis {
    /// Explains what was found after `step` in the garbage of so many steps. `layers` is how often the program
    /// applies its block, if it has one.
    pub fn of(report: &CycleReport, step: u32, over_steps: u32, layers: Option<u64>) -> Self {
        let unit = unit(over_steps);
        let explained = report.findings.iter().map(|finding| sentence::explain(finding, layers, &unit));
        Self { step, over_steps, explanations: explained.collect(), report: report.clone() }
    }

    /// The findings with their words, most bytes first.
    pub fn findings(&self) -> impl Iterator<Item = (&Finding, &Explanation)> {
        self.report.findings.iter().zip(&self.explanations)
    }

    /// What the bytes of the findings are for.
    fn unit(&self) -> String {
        unit(self.over_steps)
    }
}

fn unit(over_steps: u32) -> String {
    if over_steps > 1 { format!("in {over_steps} steps") } else { "per step".to_owned() }
}

/// Explains a diagnosis run by the last step that left memory in garbage: the steps before it may have left what only a
/// warm-up leaves. Further steps together may have left more, and where no memory was left, tensors without any are
/// explained.
pub fn diagnose(recording: &Recording, layers: Option<u64>) -> Option<Diagnosis> {
    let steps = || {
        recording.garbage.iter().rev().filter_map(|record| Some((record.step, 1, record.cycles.as_ref()?)))
    };
    let round = recording.round.as_ref();
    let round = round.and_then(|round| Some((round.step, round.over_steps, round.cycles.as_ref()?)));
    let of_a_step = steps().find(|(.., report)| report.tensor_bytes > 0);
    let per_step = |found: &(u32, u32, &CycleReport)| found.2.tensor_bytes / u64::from(found.1.max(1));
    let (step, over_steps, report) = round
        .filter(|(.., report)| report.tensor_bytes > 0)
        .into_iter()
        .chain(of_a_step)
        .max_by_key(per_step)
        .or_else(|| steps().find(|(.., report)| report.tensors > 0))?;
    Some(Diagnosis::of(report, step, over_steps, layers))
}
