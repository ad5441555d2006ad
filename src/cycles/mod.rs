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
    /// One for each finding of the report, in its order.
    pub explanations: Vec<Explanation>,
    pub report: CycleReport,
}

impl Diagnosis {
    /// The findings with their words, most bytes first.
    pub fn findings(&self) -> impl Iterator<Item = (&Finding, &Explanation)> {
        self.report.findings.iter().zip(&self.explanations)
    }
}

/// Explains a diagnosis run by the last step that left tensors in garbage: the steps before it may
/// have left what only a warm-up leaves. `layers` is how often the program applies its block, if it
/// has one.
pub fn diagnose(recording: &Recording, layers: Option<u64>) -> Option<Diagnosis> {
    let with_tensors = |report: &&CycleReport| report.tensors > 0;
    let (step, report) = recording
        .garbage
        .iter()
        .rev()
        .find_map(|record| Some((record.step, record.cycles.as_ref().filter(with_tensors)?)))?;
    let explanations = report.findings.iter().map(|finding| sentence::explain(finding, layers)).collect();
    Some(Diagnosis { step, explanations, report: report.clone() })
}
