//! From the arms of a case to its outcome.

use torchleak_protocol::Device;

use super::control::{ControlResults, place};
use super::{ArmOutcome, Outcome, native};
use crate::case::{Prediction, Resolved, Verdict};
use crate::measure::{Place, Recording};
use crate::verdict::{Evidence, Judgement, Predicted, judge};
use crate::worker::{Ending, tail};

/// How many lines of a failed arm's traceback or output the reason shows; its log has the rest.
const DETAIL_LINES: usize = 6;

/// Judges a case whose arms are all over.
pub fn conclude(case: &Resolved, arms: &[ArmOutcome], control: &ControlResults, log: &str) -> Outcome {
    if arms.iter().any(|arm| matches!(arm.ending, None | Some(Ending::Interrupted))) {
        return Outcome::Interrupted;
    }
    // What libtorch alone does says nothing of the case.
    let arms = || arms.iter().filter(|arm| arm.name != native::ARM);
    if let Some(reason) = arms().find_map(|arm| failure(arm, log)) {
        return Outcome::Judged(Judgement { verdict: Verdict::Error, reason, numbers: None });
    }
    let (place, predicted) = judged_memory(case.prediction.as_ref(), case.device);
    let empty = Recording::default();
    let recording = |name| arms().find(|arm| arm.name == name).map_or(&empty, |arm| &arm.recording);
    let others: Vec<(String, &Recording)> = arms()
        .filter(|arm| !matches!(arm.name.as_str(), "uncollected" | "collected" | "garbage"))
        .map(|arm| (arm.name.clone(), &arm.recording))
        .collect();
    Outcome::Judged(judge(&Evidence {
        uncollected: recording("uncollected"),
        collected: recording("collected"),
        garbage: recording("garbage"),
        others: &others,
        steps: case.steps,
        warmup: case.warmup,
        place,
        predicted,
        tolerance: case.tolerance,
        control: Some(control.of(place)),
    }))
}

/// Says how an arm failed, if it did.
pub fn failure(arm: &ArmOutcome, log: &str) -> Option<String> {
    let ending = arm.ending.as_ref().filter(|ending| **ending != Ending::Done)?;
    let details = tail(ending.details(), DETAIL_LINES);
    let separator = if details.is_empty() { " " } else { "\n" };
    Some(format!("the {} arm {}{separator}{details}(log: {log})", arm.name, ending.reason()))
}

/// Which memory a case is judged by, and what is predicted there.
///
/// On a GPU that is the device's memory, unless all that the case retains lies on the host, as the
/// random-number states of a checkpoint do.
pub fn judged_memory(prediction: Option<&Prediction>, device: Device) -> (Place, Option<Predicted>) {
    let Some(prediction) = prediction else { return (place(device), None) };
    let (place, total) = match device {
        Device::Cpu => (Place::Host, prediction.total_bytes()),
        Device::Cuda if prediction.device_bytes == 0 => (Place::Host, prediction.host_bytes),
        Device::Cuda => (Place::Device, prediction.device_bytes),
    };
    // What C++ holds is part of the device's bytes, which are among the total wherever there are any.
    let in_garbage = total.saturating_sub(prediction.cpp_bytes);
    (place, Some(Predicted { total, in_garbage }))
}
