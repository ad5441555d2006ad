//! The verdict on a case: a pure function of what was recorded and what was predicted.
//!
//! `docs/verdict.md` explains the rules to users; [`judge`] is their only implementation.

mod control;
mod judge;
mod native;
mod numbers;
mod predicted;

pub use crate::case::Verdict;
pub use control::{CONTROL_BYTES, Control, control_found};
pub use judge::{Evidence, FLAT_BYTES, Judgement, judge};
pub use native::{Native, NativeEvidence, compare};
pub use numbers::Numbers;
pub use predicted::Predicted;
