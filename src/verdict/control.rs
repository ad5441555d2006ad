//! The positive control: without a leak that is seen, "no leak" means nothing.

use super::{Evidence, Verdict, judge};

/// What each step of the control plants: one tensor of this many bytes in one reference cycle.
///
/// It is small on purpose. What is called flat is below [`super::judge`]'s tolerance, and a control
/// a few times larger shows that a leak of that size would not have been missed.
pub const CONTROL_BYTES: u64 = 16 * 1024;

/// What the positive control of an environment showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Control {
    /// The planted cycle was found, to the byte.
    Detected,
    /// It was not, with the reason.
    Missed(String),
}

/// Judges the recordings of the control like those of any case.
pub fn control_found(evidence: &Evidence<'_>) -> Control {
    let judgement = judge(evidence);
    if judgement.verdict == Verdict::Reproduced {
        Control::Detected
    } else {
        Control::Missed(format!("a planted cycle came out as {}: {}", judgement.verdict, judgement.reason))
    }
}
