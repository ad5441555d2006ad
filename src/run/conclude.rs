//! From the arms of a case to its outcome.

use torchleak_protocol::Device;

use super::control::{ControlResults, place};
use super::ranks::{self, RankOutcome};
use super::{ArmOutcome, Outcome, native};
use crate::case::{Prediction, Resolved, Verdict};
use crate::cycles::{Diagnosis, Retained, diagnose, retained};
use crate::measure::{Place, Recording};
use crate::verdict::{Evidence, Judgement, Predicted, judge};
use crate::worker::{Ending, tail};

/// How many lines of a failed arm's traceback or output the reason shows; its log has the rest.
const DETAIL_LINES: usize = 6;

/// Judges a case whose arms are all over, and the ranks of one that has several.
pub fn conclude(
    case: &Resolved,
    arms: &[ArmOutcome],
    control: &ControlResults,
    log: &str,
) -> (Outcome, Vec<Judgement>) {
    // What libtorch alone does says nothing of the case.
    let arms: Vec<&ArmOutcome> = arms.iter().filter(|arm| arm.name != native::ARM).collect();
    if arms.iter().any(|arm| matches!(arm.ending, None | Some(Ending::Interrupted))) {
        return (Outcome::Interrupted, Vec::new());
    }
    if let Some(reason) = arms.iter().find_map(|arm| failure(arm, log)) {
        let judgement = Judgement { verdict: Verdict::Error, reason, numbers: None };
        return (Outcome::Judged(judgement), Vec::new());
    }
    let first = judge_rank(case, &arms, 0, control);
    if case.ranks == 1 {
        return (Outcome::Judged(first), Vec::new());
    }
    let others: Vec<Judgement> =
        (1..case.ranks as usize).map(|rank| judge_rank(case, &arms, rank, control)).collect();
    let merged = ranks::merged(&first, &others);
    (Outcome::Judged(merged), std::iter::once(first).chain(others).collect())
}

/// What keeps tensors, as far as the arms tell it.
pub struct Explained {
    /// Of the first rank that has one.
    pub diagnosis: Option<Diagnosis>,
    /// What holds tensors that no collect freed, where the verdict says that there are such.
    pub retained: Option<Retained>,
    pub ranks: Vec<RankOutcome>,
}

/// Explains what stays, of each rank.
pub fn explain(
    arms: &[ArmOutcome],
    layers: Option<u64>,
    outcome: &Outcome,
    judged: Vec<Judgement>,
) -> Explained {
    let garbage = arms.iter().find(|arm| arm.name == "garbage");
    let recordings = || garbage.into_iter().flat_map(ArmOutcome::recordings);
    let diagnoses: Vec<_> = recordings().map(|recording| diagnose(recording, layers)).collect();
    // Elsewhere a tensor that outlives a step, such as a cached batch, is nobody's leak.
    let is_uncollectable =
        matches!(outcome, Outcome::Judged(judgement) if judgement.verdict == Verdict::Uncollectable);
    Explained {
        diagnosis: diagnoses.iter().flatten().next().cloned(),
        retained: is_uncollectable.then(|| recordings().find_map(retained)).flatten(),
        ranks: judged
            .into_iter()
            .zip(diagnoses)
            .map(|(judgement, diagnosis)| RankOutcome { judgement, diagnosis })
            .collect(),
    }
}

/// Judges what one rank reported; a case without ranks is rank 0.
fn judge_rank(case: &Resolved, arms: &[&ArmOutcome], rank: usize, control: &ControlResults) -> Judgement {
    let (place, predicted) = judged_memory(case.prediction.as_ref(), case.device);
    let empty = Recording::default();
    let recordings: Vec<(&str, &Recording)> =
        arms.iter().map(|arm| (arm.name.as_str(), arm.recordings().nth(rank).unwrap_or(&empty))).collect();
    let recording =
        |wanted| recordings.iter().find(|(name, _)| *name == wanted).map_or(&empty, |(_, found)| *found);
    let others: Vec<(String, &Recording)> = recordings
        .iter()
        .filter(|(name, _)| !matches!(*name, "uncollected" | "collected" | "garbage"))
        .map(|(name, recording)| ((*name).to_owned(), *recording))
        .collect();
    let control = match case.ranks {
        1 => control.of(place).clone(),
        _ => ranks::control(control.of(place), &recordings),
    };
    judge(&Evidence {
        uncollected: recording("uncollected"),
        collected: recording("collected"),
        garbage: recording("garbage"),
        others: &others,
        steps: case.steps,
        warmup: case.warmup,
        place,
        predicted,
        tolerance: case.tolerance,
        control: Some(&control),
    })
}

/// Says how an arm failed, if it did.
pub fn failure(arm: &ArmOutcome, log: &str) -> Option<String> {
    let ending = arm.ending.as_ref().filter(|ending| **ending != Ending::Done)?;
    let details = tail(ending.details(), DETAIL_LINES);
    let separator = if details.is_empty() { " " } else { "\n" };
    let reached = ranks_reached(arm, ending);
    Some(format!("the {} arm {}{reached}{separator}{details}(log: {log})", arm.name, ending.reason()))
}

/// How far each of several ranks came that ran out of time together: the one that hangs is behind.
fn ranks_reached(arm: &ArmOutcome, ending: &Ending) -> String {
    if arm.peers.is_empty() || !matches!(ending, Ending::TimedOut { .. }) {
        return String::new();
    }
    let steps: Vec<String> = arm
        .recordings()
        .enumerate()
        .map(|(rank, recording)| format!("rank {rank} reported {} steps", recording.losses().len()))
        .collect();
    format!("; {}", steps.join(", "))
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use torchleak_protocol::{ArmEvent, GarbageRecord};

    use super::*;

    #[test]
    fn ranks_that_run_out_of_time_show_which_is_behind() {
        let steps = |count| {
            let mut recording = Recording::default();
            for step in 1..=count {
                recording
                    .push(&ArmEvent::Garbage(Box::new(GarbageRecord { step, ..GarbageRecord::default() })));
            }
            recording
        };
        let arm = ArmOutcome {
            name: "garbage".to_owned(),
            recording: steps(3),
            peers: vec![steps(2)],
            ending: Some(Ending::TimedOut { after: Duration::from_secs(9) }),
            start_note: None,
        };
        assert_eq!(
            failure(&arm, "stdout.log").unwrap(),
            "the garbage arm ran past its deadline of 9 s and was killed (raise it with --deadline); rank 0 reported \
             3 steps, rank 1 reported 2 steps (log: stdout.log)"
        );
    }
}
