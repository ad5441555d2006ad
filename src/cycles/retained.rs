//! What holds tensors that no collect frees.

use serde::Serialize;
use torchleak_protocol::{Retention, RetentionReport};

use super::sentence::{expression, shape};
use crate::bytes::human;
use crate::measure::Recording;

/// What one step made and later steps left alive, in words.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Retained {
    /// One for each retention of the report, in its order.
    pub sentences: Vec<String>,
    pub report: RetentionReport,
}

impl Retained {
    /// Puts into words what holds the tensors that live on.
    pub fn of(report: &RetentionReport) -> Self {
        Self { sentences: report.retentions.iter().map(sentence).collect(), report: report.clone() }
    }
}

/// Takes what holds the tensors that live on, if there are any.
pub fn retained(recording: &Recording) -> Option<Retained> {
    recording.garbage.last()?.retained.as_ref().map(Retained::of)
}

fn sentence(retention: &Retention) -> String {
    let (noun, verb, keeps, whose) = if retention.count == 1 {
        ("tensor", "is", "keeps", "its graph")
    } else {
        ("tensors", "are", "keep", "their graphs")
    };
    let through = if retention.path.is_empty() {
        String::new()
    } else {
        format!(" through `{}`", expression(&retention.path))
    };
    // A loss has four bytes; what grows is what made it, which no Python object shows.
    let graph =
        retention.tensor.grad_fn.as_deref().map_or_else(String::new, |made_by| {
            format!(" and {keeps} {whose} of autograd ({made_by}) alive")
        });
    format!(
        "{} {noun} {}, {} per step, {verb} held by {}{through}{graph}",
        retention.count,
        shape(&retention.tensor),
        human(retention.bytes as f64),
        retention.root.description.trim_start_matches("held by "),
    )
}
