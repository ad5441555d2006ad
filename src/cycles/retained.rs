//! What holds tensors that no collect frees.

use serde::Serialize;
use torchleak_protocol::{Retention, RetentionReport};

use super::sentence::{expression, shape};
use crate::bytes::human;
use crate::measure::Recording;

/// What the last step of a diagnosis run left alive, in words.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Retained {
    /// One for each retention of the report, in its order.
    pub sentences: Vec<String>,
    pub report: RetentionReport,
}

/// Takes what holds the tensors that the last step left, if it left any.
pub fn retained(recording: &Recording) -> Option<Retained> {
    let report = recording.garbage.last()?.retained.clone()?;
    let sentences = report.retentions.iter().map(sentence).collect();
    Some(Retained { sentences, report })
}

fn sentence(retention: &Retention) -> String {
    let (noun, verb) = if retention.count == 1 { ("tensor", "is") } else { ("tensors", "are") };
    let through = if retention.path.is_empty() {
        String::new()
    } else {
        format!(" through `{}`", expression(&retention.path))
    };
    format!(
        "{} {noun} {}, {} per step, {verb} held by {}{through}",
        retention.count,
        shape(&retention.tensor),
        human(retention.bytes as f64),
        retention.root.description.trim_start_matches("held by "),
    )
}
