//! The rules.

use crate::bytes::human;
use crate::measure::{Place, Recording, step_losses_differ};

use super::{Control, Numbers, Verdict};

/// Growth below this many bytes per step is flat where no prediction says what would be much.
///
/// Clean arms of a small case were measured to drift by less than 1 KiB per step (Python's objects of
/// more than 512 bytes and glibc's own bookkeeping), and the positive control is four times larger.
const FLAT_BYTES: f64 = 4096.0;

/// Growth below this part of the prediction is flat, and at least the rest must be seen.
const FLAT_PART: f64 = 0.1;

/// What the arms may differ by for good without a tensor in garbage. An import in the middle of a cold
/// arm leaves this much of Python's own cycles behind (20 to 35 MB were measured for torch._dynamo).
const ONCE_BYTES: f64 = 64.0 * 1024.0 * 1024.0;

/// Bytes outside tensors that one garbage object may take: Python's own objects.
const OBJECT_BYTES: f64 = 512.0;

/// What a verdict is reached from.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    pub uncollected: &'a Recording,
    pub collected: &'a Recording,
    pub garbage: &'a Recording,
    /// Further arms by name, whose losses must agree with the rest.
    pub others: &'a [(String, &'a Recording)],
    /// How many steps each arm was to do.
    pub steps: u32,
    /// How many of them are dropped.
    pub warmup: u32,
    /// The memory in which retention is predicted, or that of the device where none is.
    pub place: Place,
    /// Bytes per step that the case says are retained there.
    pub predicted: Option<u64>,
    /// Bytes per step below which the case wants growth to count as flat.
    pub tolerance: Option<u64>,
    /// What the positive control showed in the same environment and host. None for the control itself.
    pub control: Option<&'a Control>,
}

/// A verdict with its reason and its numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    pub verdict: Verdict,
    /// One sentence.
    pub reason: String,
    /// None where too little was recorded to have any.
    pub numbers: Option<Numbers>,
}

/// Reaches the verdict.
pub fn judge(evidence: &Evidence<'_>) -> Judgement {
    if let Some(reason) = not_one_experiment(evidence) {
        return Judgement { verdict: Verdict::Error, reason, numbers: None };
    }
    if let Some(reason) = missing_steps(evidence) {
        return Judgement { verdict: Verdict::Inconclusive, reason, numbers: None };
    }
    match Numbers::of(evidence) {
        Ok(numbers) => {
            let (verdict, reason) = decide(evidence, &numbers);
            Judgement { verdict, reason, numbers: Some(numbers) }
        }
        Err(reason) => Judgement { verdict: Verdict::Inconclusive, reason, numbers: None },
    }
}

/// Arms that do not have the same losses did not do the same work, and comparing them means nothing.
fn not_one_experiment(evidence: &Evidence<'_>) -> Option<String> {
    let needed = [("collected", evidence.collected), ("garbage", evidence.garbage)];
    let others = evidence.others.iter().map(|(name, recording)| (name.as_str(), *recording));
    needed.into_iter().chain(others).find_map(|(name, other)| {
        let (step, loss, other_loss) = step_losses_differ(evidence.uncollected, other)?;
        Some(format!(
            "the arms are not the same experiment: at step {step} the loss is {} in the uncollected arm and {} in the \
             {name} arm",
            shown(loss),
            shown(other_loss),
        ))
    })
}

fn shown(loss: Option<f64>) -> String {
    loss.map_or_else(|| "not a number".to_owned(), |loss| loss.to_string())
}

fn missing_steps(evidence: &Evidence<'_>) -> Option<String> {
    let expected: Vec<u32> = (1..=evidence.steps).collect();
    let arms = [
        ("uncollected", evidence.uncollected),
        ("collected", evidence.collected),
        ("garbage", evidence.garbage),
    ];
    arms.into_iter().find_map(|(name, recording)| {
        let steps: Vec<u32> = recording.losses().into_iter().map(|(step, _)| step).collect();
        (steps != expected)
            .then(|| format!("the {name} arm reported {} of {} steps", steps.len(), expected.len()))
    })
}

fn decide(evidence: &Evidence<'_>, numbers: &Numbers) -> (Verdict, String) {
    let predicted = numbers.predicted.unwrap_or(0) as f64;
    let tolerance =
        evidence.tolerance.map_or_else(|| FLAT_BYTES.max(FLAT_PART * predicted), |bytes| bytes as f64);
    let Numbers { growth, growth_collected, .. } = *numbers;
    if growth < -tolerance || growth_collected < -tolerance {
        return inconclusive(format!(
            "memory shrinks by {} per step, so the arms are still warming up: raise `warmup`",
            human(-growth.min(growth_collected)),
        ));
    }
    let grows = growth > tolerance && numbers.typical_step > tolerance;
    match (grows, growth_collected > tolerance) {
        (false, false) => decide_flat(evidence, numbers, tolerance),
        (true, false) => decide_growth(numbers, tolerance),
        (true, true) => decide_uncollected_growth(numbers, tolerance),
        (false, true) => inconclusive(format!(
            "the arm that collects grows by {} per step and the one that does not stays flat",
            human(growth_collected),
        )),
    }
}

/// Neither arm grows: fixed, unless something was kept once or the sources disagree.
fn decide_flat(evidence: &Evidence<'_>, numbers: &Numbers, tolerance: f64) -> (Verdict, String) {
    let garbage = &numbers.garbage;
    if garbage.bytes > 0 {
        return inconclusive(format!(
            "memory stays flat but a collect finds {} of tensors in garbage at every step",
            human(garbage.bytes as f64),
        ));
    }
    let once = garbage.total as f64;
    if once > tolerance && garbage.steps > 1 {
        return inconclusive(format!(
            "a collect finds tensors in garbage at {} steps after the warm-up and not at the others: raise `steps`",
            garbage.steps,
        ));
    }
    // What garbage held at one step must also be missing from the allocator: two sources agree or
    // there is no verdict.
    if once > tolerance || numbers.gap > tolerance.max(ONCE_BYTES) {
        return decide_once(once, numbers.gap);
    }
    match evidence.control {
        Some(Control::Missed(reason)) => {
            inconclusive(format!("nothing grows, but the positive control was not detected either: {reason}"))
        }
        None => inconclusive("nothing grows".to_owned()),
        Some(Control::Detected) => (
            Verdict::Fixed,
            format!(
                "memory stays flat with and without collection (within {} per step), no tensor is in garbage, and the \
                 planted cycle of the positive control was detected in the same environment",
                human(tolerance),
            ),
        ),
    }
}

/// Something is kept once.
fn decide_once(garbage: f64, gap: f64) -> (Verdict, String) {
    if garbage > 0.0 && gap < (1.0 - FLAT_PART) * garbage {
        return inconclusive(format!(
            "a collect finds {} of tensors in garbage at one step, but without collection memory ends only {} higher",
            human(garbage),
            human(gap),
        ));
    }
    (
        Verdict::OneOff,
        format!(
            "{} are kept once and not again ({} of tensors in garbage): memory stays flat after it, and a collect frees \
             them",
            human(gap),
            human(garbage),
        ),
    )
}

/// Only the arm that does not collect grows: reproduced, if the sources agree on how much.
fn decide_growth(numbers: &Numbers, tolerance: f64) -> (Verdict, String) {
    let Numbers { growth, freed, garbage, predicted, .. } = numbers;
    let least = 1.0 - FLAT_PART;
    let Some(predicted) = *predicted else {
        if *freed < least * growth {
            return inconclusive(format!(
                "memory grows by {} per step without collection, but a collect frees only {}",
                human(*growth),
                human(*freed),
            ));
        }
        return (
            Verdict::Reproduced,
            format!(
                "memory grows by {} per step without collection, stays flat with it, and each collect frees {}",
                human(*growth),
                human(*freed),
            ),
        );
    };
    let wanted = predicted as f64;
    if garbage.range != (predicted, predicted) {
        return inconclusive(format!(
            "{predicted} bytes of tensors per step are predicted in garbage and {} were found",
            exact_range(garbage.range),
        ));
    }
    if *growth < least * wanted {
        return inconclusive(format!(
            "memory grows by {} per step, less than nine tenths of the predicted {}",
            human(*growth),
            human(wanted),
        ));
    }
    if *freed < least * wanted {
        return inconclusive(format!(
            "each collect frees {}, less than nine tenths of the predicted {}",
            human(*freed),
            human(wanted),
        ));
    }
    let most = wanted + FLAT_PART * wanted + OBJECT_BYTES * garbage.objects as f64 + tolerance;
    if *growth > most {
        return inconclusive(format!(
            "memory grows by {} per step, more than the predicted {} and {} garbage objects explain",
            human(*growth),
            human(wanted),
            garbage.objects,
        ));
    }
    (
        Verdict::Reproduced,
        format!(
            "a collect finds exactly the predicted {predicted} bytes of tensors in garbage at every step; without \
             collection memory grows by {} per step, with it memory stays flat",
            human(*growth),
        ),
    )
}

/// Both arms grow: uncollectable, if collecting changes next to nothing.
fn decide_uncollected_growth(numbers: &Numbers, tolerance: f64) -> (Verdict, String) {
    let Numbers { growth, growth_collected, .. } = *numbers;
    if (growth - growth_collected).abs() <= (FLAT_PART * growth).max(tolerance) {
        return (
            Verdict::Uncollectable,
            format!(
                "memory grows by {} per step, and by {} per step when every step is followed by a full collect",
                human(growth),
                human(growth_collected),
            ),
        );
    }
    inconclusive(format!(
        "memory grows by {} per step, and a full collect after each step frees only a part: {} per step stay",
        human(growth),
        human(growth_collected),
    ))
}

fn exact_range((least, most): (u64, u64)) -> String {
    if least == most { format!("{least}") } else { format!("between {least} and {most}") }
}

fn inconclusive(reason: String) -> (Verdict, String) {
    (Verdict::Inconclusive, reason)
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
