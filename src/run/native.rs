//! The native control of a case: one more arm, whose process is libtorch without Python.

use std::path::Path;

use torchleak_protocol::{Policy, Start};

use super::conclude::{failure, judged_memory};
use super::folder::RunFolder;
use super::plan::PlannedArm;
use super::{ArmOutcome, RunOptions};
use crate::case::{Body, Resolved};
use crate::measure::Recording;
use crate::verdict::{Native, NativeEvidence, compare};
use crate::worker::Ending;

/// The arm's name.
pub const ARM: &str = "native";

/// Says which program runs the control of a case, or why none does. None where nobody asked.
pub fn program<'a>(case: &Resolved, options: &'a RunOptions) -> Option<Result<&'a Path, String>> {
    let program = options.native.as_ref()?;
    if case.ranks > 1 {
        return Some(Err("the case trains several ranks, and libtorch alone is one process".to_owned()));
    }
    Some(match (&case.body, program) {
        (Body::File { .. }, _) => Err("the case has a program of its own, which needs Python".to_owned()),
        (Body::Llama3(_), Ok(program)) => Ok(program),
        (Body::Llama3(_), Err(reason)) => Err(reason.clone()),
    })
}

/// The control as an arm of a case: it trains what any other arm does.
pub fn arm(other: &PlannedArm, number: u64, program: &Path, folder: &RunFolder) -> PlannedArm {
    let mut job = other.job.clone();
    job.log = folder.log(ARM);
    job.spec.arm = number;
    job.spec.policy = Policy::Uncollected;
    job.spec.start = Start::Spawn;
    job.spec.executable = Some(program.display().to_string());
    PlannedArm { name: ARM.to_owned(), job }
}

/// Compares the control of a case with its uncollected arm, once all arms are over.
pub fn conclude(case: &Resolved, arms: &[ArmOutcome], log: &str) -> Option<Native> {
    let arm = arms.iter().find(|arm| arm.name == ARM)?;
    let Body::Llama3(block) = &case.body else { return None };
    if matches!(arm.ending, None | Some(Ending::Interrupted)) {
        return Some(Native::unknown("interrupted before its last step".to_owned()));
    }
    if let Some(reason) = failure(arm, log) {
        return Some(Native::unknown(reason));
    }
    let empty = Recording::default();
    let python = arms.iter().find(|arm| arm.name == "uncollected").map_or(&empty, |arm| &arm.recording);
    Some(compare(&NativeEvidence {
        native: &arm.recording,
        uncollected: python,
        warmup: case.warmup,
        place: judged_memory(case.prediction.as_ref(), case.device).0,
        dtype: block.dtype,
        tolerance: case.tolerance,
    }))
}
