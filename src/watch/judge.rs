//! The verdict on one process. `docs/watch.md` explains the rules; they are those of `verdict`, as far as one
//! run of somebody else's script has the same evidence.

use torchleak_protocol::WatchMode;

use crate::bytes::human;
use crate::verdict::Verdict;

use super::numbers::RankNumbers;

/// How far two sources may be apart that should agree.
const APART: f64 = 0.1;

/// So many full collections of others say what collecting does.
const ENOUGH_COLLECTIONS: usize = 2;

/// So many collections that free something are no chance.
const REPEATED: usize = 3;

/// A verdict with one sentence that gives the reason.
#[derive(Debug, Clone, PartialEq)]
pub struct RankVerdict {
    pub verdict: Verdict,
    pub reason: String,
}

/// Judges what one process measured. `control` says whether a planted cycle was detected there.
pub fn judge(
    mode: WatchMode,
    numbers: &RankNumbers,
    control: Option<&(bool, String)>,
    tolerance: f64,
) -> RankVerdict {
    let Some(growth) = numbers.growth else {
        if numbers.others > 0 && numbers.steps > 3 {
            return inconclusive(format!(
                "the script collected {} times itself, so that too few steps in a row show a growth",
                numbers.others
            ));
        }
        return inconclusive(format!(
            "{} steps were made, which are too few after the warm-up to tell a growth",
            numbers.steps
        ));
    };
    match mode {
        WatchMode::Observe => observed(numbers, growth, tolerance),
        WatchMode::Periodic => periodic(numbers, growth, tolerance),
        WatchMode::Debug | WatchMode::Compare => compared(mode, numbers, growth, control, tolerance),
    }
}

/// Full collections were made on purpose, so there is evidence of what they free.
fn compared(
    mode: WatchMode,
    numbers: &RankNumbers,
    growth: f64,
    control: Option<&(bool, String)>,
    tolerance: f64,
) -> RankVerdict {
    let (Some(freed), Some(growth_collected)) = (frees(numbers), numbers.growth_collected) else {
        return inconclusive(format!(
            "memory grows by {} per step without collection, but the script ended before a collect could follow",
            human(growth)
        ));
    };
    if growth < -tolerance || growth_collected < -tolerance {
        return inconclusive(format!(
            "memory shrinks by {} per step, so the script is still warming up: raise --warmup",
            human(-growth.min(growth_collected))
        ));
    }
    if !numbers.grows(tolerance) {
        return flat(numbers, growth_collected, control, tolerance);
    }
    let (grows, frees) = (human(growth), human(freed));
    // What the script holds until its next step is in the slope of each round and not in what its steps rose by.
    let to_free = growth.min(numbers.risen_mean.unwrap_or(growth).max(tolerance));
    let bound = tolerance.max(APART * growth);
    let stays = growth_collected.min(numbers.typical_collected.unwrap_or(growth_collected)) <= bound;
    if stays && freed >= (1.0 - APART) * to_free {
        let tensors = match numbers.garbage_bytes {
            // At a step that left something there is more than a mean of all steps.
            Some(bytes) if bytes > (1.0 + APART) * freed => {
                format!("{} of tensors at {} of the looks", human(bytes), numbers.garbage_looks)
            }
            Some(bytes) => format!("{} of it in tensors", human(bytes)),
            None if mode == WatchMode::Debug => "none of it in tensors".to_owned(),
            None => {
                "none of it seen in tensors at the steps that were looked at (--mode debug looks at each)"
                    .to_owned()
            }
        };
        return RankVerdict {
            verdict: Verdict::Reproduced,
            reason: format!(
                "memory grows by {grows} per step until it is collected, a full collect frees {frees} per step, {tensors}, \
                 and what stays after a collect {}",
                if growth_collected <= bound {
                    "does not grow"
                } else {
                    "grows in jumps and not with each step"
                }
            ),
        };
    }
    if numbers.others > 0 && mode == WatchMode::Compare && !stays && !numbers.collects_itself {
        return inconclusive(format!(
            "memory grows by {grows} per step and a collect frees {frees} of it, but the script collected {} times itself",
            numbers.others
        ));
    }
    if let Some((false, reason)) = control {
        return inconclusive(format!(
            "memory grows by {grows} per step, but a planted cycle was not detected either: {reason}"
        ));
    }
    if (growth - growth_collected).abs() <= (APART * growth).max(tolerance) {
        return RankVerdict {
            verdict: Verdict::Uncollectable,
            reason: format!(
                "memory grows by {grows} per step, and by {} per step from one full collect to the next",
                human(growth_collected)
            ),
        };
    }
    inconclusive(format!(
        "memory grows by {grows} per step, a full collect frees {frees} per step, and {} per step stay",
        human(growth_collected)
    ))
}

/// What full collections free per step: at a typical one, or of all steps, which counts what comes in few of them.
fn frees(numbers: &RankNumbers) -> Option<f64> {
    numbers.freed_per_step.into_iter().chain(numbers.freed_mean).max_by(f64::total_cmp)
}

fn flat(
    numbers: &RankNumbers,
    growth_collected: f64,
    control: Option<&(bool, String)>,
    tolerance: f64,
) -> RankVerdict {
    if growth_collected > tolerance {
        return inconclusive(format!(
            "memory is flat between collections, but grows by {} per step from one to the next",
            human(growth_collected)
        ));
    }
    if let Some(repeated) = repeated(numbers, tolerance) {
        return repeated;
    }
    if let Some(bytes) = numbers.garbage_bytes {
        return inconclusive(format!(
            "a typical step adds nothing, but at {} of the looks tensors were in garbage, {} for each step since the \
             collect before",
            numbers.garbage_looks,
            human(bytes)
        ));
    }
    if numbers.has_garbage {
        return inconclusive("memory stays flat, but tensors in another memory were in garbage".to_owned());
    }
    if numbers.longest < 2 {
        return inconclusive(
            "no tensor was in garbage, but a full collect followed each step, so what the script itself still holds until \
             its next step could not add up: --mode compare lets it"
                .to_owned(),
        );
    }
    if let Some(why) = rare(numbers, tolerance) {
        return inconclusive(why);
    }
    if numbers.others > 0 {
        return inconclusive(format!(
            "nothing grows, but the script collected {} times itself, which would hide a leak",
            numbers.others
        ));
    }
    match control {
        Some((true, _)) => RankVerdict {
            verdict: Verdict::Fixed,
            reason: format!(
                "memory stays flat with and without collection (within {} per step), no tensor is in garbage, and a \
                 cycle that was planted in the same process was detected",
                human(tolerance)
            ),
        },
        Some((false, reason)) => {
            inconclusive(format!("nothing grows, but a planted cycle was not detected either: {reason}"))
        }
        None => inconclusive(
            "nothing grows, but no cycle was planted to see that it would be detected".to_owned(),
        ),
    }
}

/// A leak in few of the steps, which a typical step does not show: one collect after another frees something.
fn repeated(numbers: &RankNumbers, tolerance: f64) -> Option<RankVerdict> {
    let freed = numbers.freed_mean.filter(|mean| *mean > tolerance)?;
    let is_kept = numbers.rise_collected.is_some_and(|rise| rise > tolerance);
    (numbers.late_frees >= REPEATED && !is_kept).then(|| RankVerdict {
        verdict: Verdict::Reproduced,
        reason: format!(
            "some of the steps leave what only a full collect frees: {} collects after the first third of the steps freed \
             something, all together {} per step on average, and what stays after a collect does not grow",
            numbers.late_frees,
            human(freed)
        ),
    })
}

/// What a typical step does not show: means over all steps count what comes in few of them.
fn rare(numbers: &RankNumbers, tolerance: f64) -> Option<String> {
    let exceeds = |mean: Option<f64>| mean.filter(|mean| *mean > tolerance).map(human);
    let freed = exceeds(numbers.freed_mean)
        .map(|mean| format!("a typical step adds nothing, but on average collects freed {mean} per step"));
    let kept = exceeds(numbers.rise_collected).map(|mean| {
        format!(
            "a typical step adds nothing, but on average {mean} per step stayed after collects; if that is the script's \
             beginning, raise --warmup"
        )
    });
    let live = exceeds(numbers.rise_live).map(|mean| {
        format!(
            "the judged memory stays flat, but live tensors grew by {mean} per step on average, perhaps in memory that \
             its counter does not show, such as shared memory"
        )
    });
    freed.or(kept).or(live)
}

/// torchtitan's collections find what is young; what they leave may be old or no garbage.
fn periodic(numbers: &RankNumbers, growth: f64, tolerance: f64) -> RankVerdict {
    if !numbers.grows(tolerance) {
        return inconclusive(
            "memory stays flat between collections; --mode compare plants a cycle to see that one would be found"
                .to_owned(),
        );
    }
    let grows = human(growth);
    match (numbers.freed_per_step, numbers.growth_collected) {
        (Some(freed), Some(after))
            if freed >= (1.0 - APART) * growth && after <= tolerance.max(APART * growth) =>
        {
            RankVerdict {
                verdict: Verdict::Reproduced,
                reason: format!(
                    "memory grows by {grows} per step, and each collect of generation 1 frees it: {} per step",
                    human(freed)
                ),
            }
        }
        (Some(freed), Some(after)) => inconclusive(format!(
            "memory grows by {grows} per step, a collect of generation 1 frees {} per step, and {} per step stay; only \
             a full collect tells whether they are garbage: --mode compare",
            human(freed),
            human(after)
        )),
        _ => inconclusive(format!(
            "memory grows by {grows} per step, and no collect followed: lower --gc-freq, or use --mode compare"
        )),
    }
}

/// Nothing was collected on purpose. Only where Python itself made full collections is it known what they do.
fn observed(numbers: &RankNumbers, growth: f64, tolerance: f64) -> RankVerdict {
    let others = numbers.others;
    if !numbers.grows(tolerance) {
        let memory = match human(growth) {
            mean if growth > tolerance => {
                format!("memory grows by {mean} per step, but a typical step adds nothing")
            }
            _ => "memory stays flat".to_owned(),
        };
        let collected = match others {
            0 => "Python collected nothing by itself".to_owned(),
            _ => format!("Python collected by itself {others} times"),
        };
        return inconclusive(format!(
            "{memory}, and {collected} after the warm-up; --mode compare tells what a full collect frees"
        ));
    }
    let grows = human(growth);
    let collections = numbers.collections;
    let freed = numbers.freed_per_step.filter(|_| collections >= ENOUGH_COLLECTIONS);
    match freed {
        Some(freed) if freed >= (1.0 - APART) * growth => RankVerdict {
            verdict: Verdict::Reproduced,
            reason: format!(
                "memory grows by {grows} per step, and Python's own {collections} full collections freed {} per step",
                human(freed)
            ),
        },
        Some(freed) if freed <= APART * growth => RankVerdict {
            verdict: Verdict::Uncollectable,
            reason: format!(
                "memory grows by {grows} per step, and Python's own {collections} full collections freed only {} per step",
                human(freed)
            ),
        },
        Some(freed) => inconclusive(format!(
            "memory grows by {grows} per step, and Python's own {collections} full collections freed {} per step, a part \
             of it",
            human(freed)
        )),
        None => inconclusive(format!(
            "memory grows by {grows} per step, and {collections} full collections were made, too few to tell whether they \
             free it: --mode compare makes some",
        )),
    }
}

fn inconclusive(reason: String) -> RankVerdict {
    RankVerdict { verdict: Verdict::Inconclusive, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLERANCE: f64 = 4096.0;

    fn numbers(growth: f64, freed: f64, growth_collected: f64) -> RankNumbers {
        RankNumbers {
            steps: 20,
            growth: Some(growth),
            typical_step: Some(growth),
            growth_collected: Some(growth_collected),
            typical_collected: Some(growth_collected),
            freed_per_step: Some(freed),
            freed_per_collect: Some(8.0 * freed),
            longest: 8,
            collections: 3,
            ..RankNumbers::default()
        }
    }

    fn compare(numbers: &RankNumbers, detected: Option<bool>) -> Verdict {
        let control = detected.map(|detected| (detected, "it says".to_owned()));
        judge(WatchMode::Compare, numbers, control.as_ref(), TOLERANCE).verdict
    }

    #[test]
    fn what_a_collect_frees_is_reproduced() {
        assert_eq!(compare(&numbers(1e6, 1e6, 0.0), Some(true)), Verdict::Reproduced);
        assert_eq!(compare(&numbers(1e6, 1e6, 0.0), None), Verdict::Reproduced);
    }

    #[test]
    fn tensors_of_a_rare_step_are_no_part_of_what_is_freed_per_step() {
        let told = |bytes| {
            let seen = RankNumbers { garbage_bytes: Some(bytes), garbage_looks: 2, ..numbers(1e6, 1e6, 0.0) };
            judge(WatchMode::Compare, &seen, None, TOLERANCE).reason
        };
        assert!(told(1e6).contains(", 976.56 KiB of it in tensors,"), "{}", told(1e6));
        assert!(told(5e6).contains(", 4.77 MiB of tensors at 2 of the looks,"), "{}", told(5e6));
    }

    #[test]
    fn what_the_script_holds_until_its_next_step_is_freed_in_all_but_one_step_of_a_round() {
        let held =
            RankNumbers { freed_mean: Some(875e3), risen_mean: Some(875e3), ..numbers(1e6, 875e3, 0.0) };
        assert_eq!(compare(&held, Some(true)), Verdict::Reproduced);
        let kept = RankNumbers { freed_mean: Some(5e5), risen_mean: Some(1e6), ..numbers(1e6, 5e5, 0.0) };
        assert_eq!(compare(&kept, Some(true)), Verdict::Inconclusive);
    }

    #[test]
    fn a_leak_in_few_steps_is_reproduced_if_one_collect_after_another_frees_it() {
        let rare = RankNumbers { freed_mean: Some(1e5), late_frees: 3, ..numbers(0.0, 0.0, 0.0) };
        assert_eq!(compare(&rare, Some(true)), Verdict::Reproduced);
        let twice = RankNumbers { late_frees: 2, ..rare.clone() };
        assert_eq!(compare(&twice, Some(true)), Verdict::Inconclusive);
        let kept = RankNumbers { rise_collected: Some(1e5), ..rare };
        assert_eq!(compare(&kept, Some(true)), Verdict::Inconclusive);
    }

    #[test]
    fn nothing_is_fixed_where_each_step_was_collected() {
        let each = RankNumbers { longest: 1, ..numbers(0.0, 0.0, 0.0) };
        assert_eq!(compare(&each, Some(true)), Verdict::Inconclusive);
    }

    #[test]
    fn nothing_is_called_flat_beside_a_growth_that_is_not() {
        let rare = RankNumbers { typical_step: Some(0.0), ..numbers(5e4, 0.0, 0.0) };
        let judged = judge(WatchMode::Observe, &rare, None, TOLERANCE);
        assert!(
            judged.reason.starts_with("memory grows by 48.83 KiB per step, but a typical"),
            "{}",
            judged.reason
        );
    }

    #[test]
    fn what_no_collect_frees_is_uncollectable() {
        assert_eq!(compare(&numbers(1e6, 0.0, 1e6), Some(true)), Verdict::Uncollectable);
    }

    #[test]
    fn a_jump_of_what_stays_does_not_hide_a_leak_and_is_not_called_fixed() {
        let leak = RankNumbers { typical_collected: Some(0.0), ..numbers(1e6, 1e6, 2e5) };
        assert_eq!(compare(&leak, Some(true)), Verdict::Reproduced);
        let flat = RankNumbers { typical_collected: Some(0.0), ..numbers(0.0, 0.0, 2e5) };
        assert_eq!(compare(&flat, Some(true)), Verdict::Inconclusive);
    }

    #[test]
    fn what_a_collect_frees_in_part_decides_nothing() {
        assert_eq!(compare(&numbers(1e6, 5e5, 5e5), Some(true)), Verdict::Inconclusive);
    }

    #[test]
    fn nothing_is_fixed_without_a_detected_control_or_with_garbage_or_foreign_collections() {
        let flat = numbers(0.0, 0.0, 0.0);
        assert_eq!(compare(&flat, Some(true)), Verdict::Fixed);
        assert_eq!(compare(&flat, Some(false)), Verdict::Inconclusive);
        assert_eq!(compare(&flat, None), Verdict::Inconclusive);
        let garbage = RankNumbers { garbage_looks: 1, garbage_bytes: Some(100.0), ..flat.clone() };
        assert_eq!(compare(&garbage, Some(true)), Verdict::Inconclusive);
        let collected = RankNumbers { others: 1, ..flat.clone() };
        assert_eq!(compare(&collected, Some(true)), Verdict::Inconclusive);
        assert_eq!(compare(&numbers(0.0, 0.0, 1e6), Some(true)), Verdict::Inconclusive);
        let freed = RankNumbers { freed_mean: Some(1e4), ..flat.clone() };
        assert_eq!(compare(&freed, Some(true)), Verdict::Inconclusive);
        let kept = RankNumbers { rise_collected: Some(1e4), ..flat.clone() };
        assert_eq!(compare(&kept, Some(true)), Verdict::Inconclusive);
        let elsewhere = RankNumbers { rise_live: Some(1e4), ..flat.clone() };
        assert_eq!(compare(&elsewhere, Some(true)), Verdict::Inconclusive);
        assert_eq!(compare(&RankNumbers { has_garbage: true, ..flat }, Some(true)), Verdict::Inconclusive);
        assert_eq!(compare(&numbers(1e6, 0.0, 1e6), Some(false)), Verdict::Inconclusive);
    }

    #[test]
    fn observing_decides_only_what_pythons_own_full_collections_show() {
        let observe = |numbers: &RankNumbers| judge(WatchMode::Observe, numbers, None, TOLERANCE).verdict;
        assert_eq!(observe(&numbers(1e6, 1e6, 0.0)), Verdict::Reproduced);
        assert_eq!(observe(&numbers(1e6, 0.0, 0.0)), Verdict::Uncollectable);
        assert_eq!(observe(&numbers(0.0, 0.0, 0.0)), Verdict::Inconclusive);
        let once = RankNumbers { collections: 1, ..numbers(1e6, 1e6, 0.0) };
        assert_eq!(observe(&once), Verdict::Inconclusive);
    }

    #[test]
    fn too_few_steps_decide_nothing() {
        let few = RankNumbers { steps: 2, ..RankNumbers::default() };
        for mode in [WatchMode::Observe, WatchMode::Debug, WatchMode::Compare, WatchMode::Periodic] {
            assert_eq!(judge(mode, &few, None, TOLERANCE).verdict, Verdict::Inconclusive);
        }
    }
}
