//! The rules.

use crate::bytes::human;
use crate::measure::{Place, Recording, freeing_steps, step_losses_differ};

use super::{Control, Numbers, Predicted, Verdict};

/// Growth of at most this many bytes per step is flat, unless a case says otherwise.
///
/// Clean arms of a small case were measured to drift by less than 1.5 KiB per step on Python 3.11 and by
/// 3 KiB on 3.10 (Python's objects of more than 512 bytes and glibc's own bookkeeping), and the positive
/// control is four times larger.
pub const FLAT_BYTES: f64 = 4096.0;

/// How far two sources may be apart that should agree: at least nine tenths of a leak must be seen.
const APART: f64 = 0.1;

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
    pub predicted: Option<Predicted>,
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
            loss,
            other_loss,
        ))
    })
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
    let tolerance = evidence.tolerance.map_or(FLAT_BYTES, |bytes| bytes as f64);
    let Numbers { growth, growth_collected, .. } = *numbers;
    if growth < -tolerance || growth_collected < -tolerance {
        return inconclusive(format!(
            "memory shrinks by {} per step, so the arms are still warming up: raise `warmup`",
            human(-growth.min(growth_collected)),
        ));
    }
    // One jump in the middle moves a slope and is no growth; the typical step tells them apart.
    let grows = growth > tolerance && numbers.typical_step > tolerance;
    let grows_collected = growth_collected > tolerance && numbers.typical_step_collected > tolerance;
    match (grows, grows_collected) {
        (false, false) => decide_flat(evidence, numbers, tolerance),
        // Beside a leak, what a collect leaves may be as large as the sources may be apart.
        (true, _) if growth_collected <= tolerance.max(APART * growth) => {
            decide_growth(evidence, numbers, tolerance)
        }
        (true, _) => decide_uncollected_growth(numbers, tolerance),
        (false, true) => inconclusive(format!(
            "the arm that collects grows by {} per step and the one that does not by only {}",
            human(growth_collected),
            human(growth),
        )),
    }
}

/// Neither arm grows: fixed, if every source says so.
fn decide_flat(evidence: &Evidence<'_>, numbers: &Numbers, tolerance: f64) -> (Verdict, String) {
    let garbage = &numbers.garbage;
    if garbage.steps > 1 {
        let memory =
            if numbers.growth > tolerance { "a typical step adds nothing" } else { "memory stays flat" };
        return inconclusive(format!(
            "{memory}, but a collect finds tensors in garbage at {} steps after the warm-up (up to {})",
            garbage.steps,
            human(garbage.range.1 as f64),
        ));
    }
    if garbage.total as f64 > tolerance || garbage.steps > 0 {
        return decide_once(evidence, numbers, tolerance, Once::tensors(garbage.total as f64));
    }
    if let Some(reason) = not_flat(evidence, numbers, tolerance) {
        return inconclusive(reason);
    }
    if let Some(once) = kept_outside_garbage(evidence, numbers, tolerance) {
        return decide_once(evidence, numbers, tolerance, once);
    }
    if let Some(reason) = not_controlled(evidence) {
        return inconclusive(reason);
    }
    let seen = if garbage.total == 0 {
        "no tensor".to_owned()
    } else {
        format!("no tensor after the warm-up (and {} bytes in it)", garbage.total)
    };
    (
        Verdict::Fixed,
        format!(
            "memory stays flat with and without collection (within {} per step), {seen} is in garbage, and the planted \
             cycle of the positive control was detected in the same environment",
            human(tolerance),
        ),
    )
}

/// Why memory may not be as flat as it looks.
fn not_flat(evidence: &Evidence<'_>, numbers: &Numbers, tolerance: f64) -> Option<String> {
    if numbers.garbage.elsewhere > 0 {
        return Some(format!(
            "memory stays flat where it is judged, but {} of tensors were in garbage in other memory",
            human(numbers.garbage.elsewhere as f64),
        ));
    }
    if let Some(growth) = numbers.census_growth.into_iter().find(|growth| *growth > tolerance) {
        return Some(format!(
            "the {} stay flat, but the live tensors that Python knows of grow by {} per step: they may lie in shared, \
             mapped or pinned memory",
            evidence.place.counter(),
            human(growth),
        ));
    }
    for (name, recording) in [("uncollected", evidence.uncollected), ("garbage", evidence.garbage)] {
        if let Some(step) = recording.foreign_collection(evidence.warmup) {
            return Some(format!(
                "nothing grows, but the program itself collected during step {step} of the {name} arm, which would hide \
                 a leak",
            ));
        }
    }
    None
}

/// Why nothing that stays flat here can be called fixed.
fn not_controlled(evidence: &Evidence<'_>) -> Option<String> {
    match evidence.control {
        Some(Control::Detected) => None,
        Some(Control::Missed(reason)) => {
            Some(format!("nothing grows, but the positive control was not detected either: {reason}"))
        }
        None => Some("nothing grows".to_owned()),
    }
}

/// What is kept once.
#[derive(Debug, Clone, Copy)]
struct Once {
    bytes: f64,
    /// What they are, for a person.
    what: &'static str,
}

impl Once {
    fn tensors(bytes: f64) -> Self {
        Self { bytes, what: "of tensors" }
    }
}

/// What is kept in flat arms though no tensor is in garbage: live tensors of the one arm that the other no
/// longer has, or bytes alone that collects freed. C++ can hold both, as it does a leaf and its gradient.
fn kept_outside_garbage(evidence: &Evidence<'_>, numbers: &Numbers, tolerance: f64) -> Option<Once> {
    if numbers.census_gap > tolerance {
        return Some(Once::tensors(numbers.census_gap));
    }
    let steps = f64::from(evidence.steps);
    let explained = tolerance * steps + OBJECT_BYTES * steps * numbers.garbage.objects as f64;
    let freed: f64 =
        freeing_steps(evidence.collected, evidence.place, tolerance).iter().map(|(_, freed)| freed).sum();
    // A buffer that a thread still has in one arm is no leak: no collect frees it in the other.
    let is_kept = numbers.gap > explained && freed >= (1.0 - APART) * numbers.gap;
    is_kept.then_some(Once { bytes: numbers.gap, what: "outside tensors" })
}

/// Something is kept at one step after the warm-up at most: it is kept once, if the steps that follow are
/// enough to say so and the allocator shows it.
fn decide_once(evidence: &Evidence<'_>, numbers: &Numbers, tolerance: f64, once: Once) -> (Verdict, String) {
    let Once { bytes, what } = once;
    let kept = human(bytes);
    let freeing = freeing_steps(evidence.collected, evidence.place, tolerance);
    let Some(last) = numbers.garbage.last.max(freeing.last().map(|(step, _)| *step)) else {
        return inconclusive(format!(
            "without collection {kept} {what} are alive at the end that are not alive with it, and no collect frees them",
        ));
    };
    if evidence.steps - last.min(evidence.steps) < last {
        return inconclusive(format!(
            "a collect frees {kept} {what} at step {last}, and too few steps follow to say whether that repeats: raise \
             `steps`",
        ));
    }
    if numbers.gap < (1.0 - APART) * bytes {
        return inconclusive(format!(
            "a collect finds {kept} {what} by step {last}, but without collection memory ends only {} higher",
            human(numbers.gap),
        ));
    }
    (
        Verdict::OneOff,
        format!(
            "{kept} {what} are kept by step {last} and not again: without collection memory ends {} higher and stays \
             flat after that step, and a collect frees it",
            human(numbers.gap),
        ),
    )
}

/// Only the arm that does not collect grows: reproduced, if the sources agree on how much.
fn decide_growth(evidence: &Evidence<'_>, numbers: &Numbers, tolerance: f64) -> (Verdict, String) {
    let Some(predicted) = numbers.predicted else {
        return decide_unpredicted_growth(evidence, numbers, tolerance);
    };
    let Numbers { growth, freed, garbage, .. } = numbers;
    let Predicted { total, in_garbage } = predicted;
    if garbage.range != (in_garbage, in_garbage) {
        return inconclusive(format!(
            "{in_garbage} bytes of tensors per step are predicted in garbage and {} were found",
            exact_range(garbage.range),
        ));
    }
    let least = (1.0 - APART) * total as f64;
    if *growth < least || *freed < least {
        return inconclusive(format!(
            "memory grows by {} per step and each collect frees {}, not both nine tenths of the predicted {}",
            human(*growth),
            human(*freed),
            human(total as f64),
        ));
    }
    if let Some(reason) = more_than_predicted(numbers, total, tolerance) {
        return inconclusive(reason);
    }
    (
        Verdict::Reproduced,
        format!(
            "{}; without collection memory grows by {} per step, with it memory stays flat",
            found_as_predicted(predicted),
            human(*growth),
        ),
    )
}

/// What a collect did, where all of it is as predicted.
fn found_as_predicted(predicted: Predicted) -> String {
    let Predicted { total, in_garbage } = predicted;
    let exactly = format!(
        "a collect finds exactly the predicted {in_garbage} bytes of tensors in garbage at every step"
    );
    match (in_garbage, predicted.held_by_cpp()) {
        (_, 0) => exactly,
        (0, _) => {
            format!(
                "a collect finds no tensor in garbage and frees the predicted {total} bytes, which C++ holds"
            )
        }
        (_, by_cpp) => format!("{exactly}, and frees with them the predicted {by_cpp} bytes that C++ holds"),
    }
}

/// Says so if memory grows by more than the prediction and Python's own garbage objects explain.
fn more_than_predicted(numbers: &Numbers, total: u64, tolerance: f64) -> Option<String> {
    let Numbers { growth, garbage, .. } = numbers;
    let most = (1.0 + APART) * total as f64 + OBJECT_BYTES * garbage.objects as f64 + tolerance;
    (*growth > most).then(|| {
        format!(
            "memory grows by {} per step, more than the predicted {} and {} garbage objects explain",
            human(*growth),
            human(total as f64),
            garbage.objects,
        )
    })
}

/// As [`decide_growth`], where the case does not say how much: what grows must be what a collect frees.
/// Tensors need not be among the garbage, because C++ or a storage may hold the memory; the reason
/// says how much of it they are.
fn decide_unpredicted_growth(
    evidence: &Evidence<'_>,
    numbers: &Numbers,
    tolerance: f64,
) -> (Verdict, String) {
    let Numbers { growth, freed, garbage, .. } = numbers;
    if *freed < (1.0 - APART) * growth {
        // Of a small leak Python's own objects are a large part, in which the arms differ. Tensors that are the
        // same bytes at every step and account for the growth are as good as predicted ones.
        let found = Predicted::held_by_python(garbage.bytes);
        let as_predicted = Numbers { predicted: Some(found), ..numbers.clone() };
        if garbage.bytes > 0 && decide_growth(evidence, &as_predicted, tolerance).0 == Verdict::Reproduced {
            return (
                Verdict::Reproduced,
                format!(
                    "memory grows by {} per step without collection and stays flat with it; a collect finds the same \
                     {} bytes of tensors in garbage at every step, and {} garbage objects explain the rest",
                    human(*growth),
                    garbage.bytes,
                    garbage.objects,
                ),
            );
        }
        // The arms alone tell of it: what a cycle keeps may be held by the program, too, until its next step, as a
        // batch is. Then the collect frees the cycle, and the program the rest.
        let steps = evidence.steps.saturating_sub(evidence.warmup);
        let is_held = garbage.objects > 0 && garbage.range.1 == 0 && *freed <= APART * growth;
        if is_held && numbers.gap >= (1.0 - APART) * growth * f64::from(steps) {
            return (
                Verdict::Reproduced,
                format!(
                    "memory grows by {} per step without collection, and does not if each step is followed by a \
                     collect, which leaves it {} lower at the end; the collect itself frees only {}, because the program \
                     still holds what the cycles keep, until its next step",
                    human(*growth),
                    human(numbers.gap),
                    human(*freed),
                ),
            );
        }
        return inconclusive(format!(
            "memory grows by {} per step without collection, but a collect frees only {}",
            human(*growth),
            human(*freed),
        ));
    }
    let tensors = match garbage.range {
        (_, 0) => "none of it in tensors that are garbage themselves (what hangs on them in C++, such as a gradient: \
                    `held_by: c++` in a prediction)"
            .to_owned(),
        (least, most) if least == most => format!("{} of it in tensors", human(most as f64)),
        (least, most) => {
            format!(
                "in which there are between {} and {} of tensors",
                human(least as f64),
                human(most as f64)
            )
        }
    };
    (
        Verdict::Reproduced,
        format!(
            "memory grows by {} per step without collection, stays flat with it, and each collect frees {}, {tensors}",
            human(*growth),
            human(*freed),
        ),
    )
}

/// Both arms grow: uncollectable, if collecting changes next to nothing and a prediction is met.
fn decide_uncollected_growth(numbers: &Numbers, tolerance: f64) -> (Verdict, String) {
    let Numbers { growth, growth_collected, predicted, .. } = *numbers;
    if (growth - growth_collected).abs() > (APART * growth).max(tolerance) {
        return inconclusive(format!(
            "memory grows by {} per step, and a full collect after each step frees only a part: {} per step stay",
            human(growth),
            human(growth_collected),
        ));
    }
    if let Some(Predicted { total, .. }) = predicted {
        if growth < (1.0 - APART) * total as f64 {
            return inconclusive(format!(
                "memory grows by {} per step and no collect frees it, which is less than nine tenths of the predicted {}",
                human(growth),
                human(total as f64),
            ));
        }
        if let Some(reason) = more_than_predicted(numbers, total, tolerance) {
            return inconclusive(format!("{reason}, and no collect frees it"));
        }
    }
    let as_predicted =
        predicted.map_or_else(String::new, |predicted| format!(": {} bytes are predicted", predicted.total));
    (
        Verdict::Uncollectable,
        format!(
            "memory grows by {} per step, and by {} per step when every step is followed by a full \
             collect{as_predicted}",
            human(growth),
            human(growth_collected),
        ),
    )
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
