//! Property tests of the rules, over recordings that are made up here and run like real ones.

use proptest::prelude::*;
use torchleak_protocol::{Census, Collected, GarbageRecord, Memory, StepRecord, Storages};

use super::*;

const STEPS: u32 = 8;
const WARMUP: u32 = 2;

/// A made-up leak: what a step leaves behind, and what a collect does about it.
#[derive(Debug, Clone)]
struct Leak {
    /// Tensor bytes that each step leaves in garbage.
    garbage: u64,
    /// Bytes that each step leaves behind C++, where a collect frees them and no census sees them.
    unseen: u64,
    /// Bytes that a cycle of each step keeps and the program, too, until its next step.
    held: u64,
    /// Bytes that each step leaves and no collect frees.
    stuck: u64,
    /// Tensor bytes that one step leaves in garbage once.
    once: Option<(u32, u64)>,
    /// Bytes that the first steps add for good in both arms (lazy imports, workspaces).
    warmup_spike: u64,
    /// What the allocator's counter is off by at each step.
    noise: Vec<i64>,
}

impl Default for Leak {
    fn default() -> Self {
        Self {
            garbage: 0,
            unseen: 0,
            held: 0,
            stuck: 0,
            once: None,
            warmup_spike: 0,
            noise: vec![0; STEPS as usize],
        }
    }
}

fn memory(bytes: i64) -> Memory {
    Memory { in_use: Some(u64::try_from(bytes).unwrap()), ..Memory::default() }
}

fn raise(memory: &mut Memory, bytes: u64) {
    memory.in_use = memory.in_use.map(|in_use| in_use + bytes);
}

fn census(bytes: u64) -> Census {
    let storages = Storages { tensors: 1, storages: 1, bytes };
    if bytes == 0 { Census::new() } else { Census::from([("cpu".to_owned(), storages)]) }
}

impl Leak {
    /// Bytes that a collect after that step frees.
    fn left_at(&self, step: u32) -> u64 {
        self.unseen + self.in_garbage_at(step)
    }

    fn in_garbage_at(&self, step: u32) -> u64 {
        self.garbage + self.once.filter(|(at, _)| *at == step).map_or(0, |(_, bytes)| bytes)
    }

    fn arm(&self, collects: bool) -> Recording {
        let mut level = 100 << 20;
        let steps = (1..=STEPS).map(|step| {
            if step <= WARMUP {
                level += i64::try_from(self.warmup_spike).unwrap();
            }
            // Where the cycle of the step before is gone, what it kept goes as this step takes its place.
            let held = if collects && step > 1 { 0 } else { self.held };
            level += i64::try_from(held + self.stuck + self.left_at(step)).unwrap();
            let noise = self.noise[step as usize - 1];
            let before = level + noise;
            if collects {
                level -= i64::try_from(self.left_at(step)).unwrap();
            }
            StepRecord {
                step,
                loss: Some(1.0 / f64::from(step)),
                loss_is: None,
                foreign_collections: 0,
                grad_norm: None,
                seconds: 0.1,
                tokens: None,
                memory: memory(before),
                census: Census::new(),
                collected: collects.then(|| Collected {
                    generation: 2,
                    objects: 0,
                    passes: 1,
                    seconds: 0.0,
                    memory: memory(level + noise),
                }),
            }
        });
        Recording { steps: steps.collect(), ..Recording::default() }
    }

    fn diagnosis(&self) -> Recording {
        let garbage = (1..=STEPS).map(|step| GarbageRecord {
            step,
            loss: Some(1.0 / f64::from(step)),
            loss_is: None,
            foreign_collections: 0,
            objects: 100,
            census: census(self.in_garbage_at(step)),
            shared: Census::new(),
            cycles: None,
            retained: None,
        });
        Recording { garbage: garbage.collect(), ..Recording::default() }
    }

    fn judged(&self, predicted: Option<Predicted>, control: Option<&Control>) -> Judgement {
        let (uncollected, collected, garbage) = (self.arm(false), self.arm(true), self.diagnosis());
        judge(&Evidence { predicted, ..evidence(&uncollected, &collected, &garbage, None, control) })
    }

    fn verdict_with(&self, total: u64, in_garbage: u64) -> Verdict {
        self.judged(Some(Predicted { total, in_garbage }), Some(&Control::Detected)).verdict
    }

    fn verdict(&self, predicted: Option<u64>) -> Verdict {
        self.judged(predicted.map(Predicted::held_by_python), Some(&Control::Detected)).verdict
    }
}

fn evidence<'a>(
    uncollected: &'a Recording,
    collected: &'a Recording,
    garbage: &'a Recording,
    predicted: Option<u64>,
    control: Option<&'a Control>,
) -> Evidence<'a> {
    Evidence {
        uncollected,
        collected,
        garbage,
        others: &[],
        steps: STEPS,
        warmup: WARMUP,
        place: Place::Host,
        predicted: predicted.map(Predicted::held_by_python),
        tolerance: None,
        control,
    }
}

fn noise(width: i64) -> impl Strategy<Value = Vec<i64>> {
    proptest::collection::vec(-width..=width, STEPS as usize)
}

#[test]
fn a_small_leak_that_nobody_predicted_is_reproduced_by_its_tensors_where_objects_differ_between_arms() {
    let leak = Leak { garbage: 10_112, stuck: 1500, ..Leak::default() };
    assert_eq!(leak.verdict(None), Verdict::Reproduced);
    let without_tensors = Leak { garbage: 0, unseen: 10_112, ..leak.clone() };
    assert_eq!(without_tensors.verdict(None), Verdict::Inconclusive);
    let tensors_of_one_step_more = Leak { once: Some((5, 64)), ..leak };
    assert_eq!(tensors_of_one_step_more.verdict(None), Verdict::Inconclusive);
}

#[test]
fn what_the_program_holds_until_its_next_step_is_reproduced_by_the_arms() {
    let held = Leak { held: 262_144, ..Leak::default() };
    assert_eq!(held.verdict(None), Verdict::Reproduced);
    assert_eq!(held.verdict(Some(262_144)), Verdict::Inconclusive);
    let stuck = Leak { stuck: 262_144, ..Leak::default() };
    assert_eq!(stuck.verdict(None), Verdict::Uncollectable);
}

proptest! {
    #[test]
    fn a_leak_of_the_predicted_size_is_reproduced_through_noise_and_warm_up(
        garbage in 20_000..1_u64 << 31, warmup_spike in 0..1_u64 << 30, noise in noise(400),
    ) {
        let leak = Leak { garbage, warmup_spike, noise, ..Leak::default() };
        prop_assert_eq!(leak.verdict(Some(garbage)), Verdict::Reproduced);
        prop_assert_eq!(leak.verdict(None), Verdict::Reproduced);
    }

    #[test]
    fn no_leak_is_fixed_through_noise_and_warm_up(warmup_spike in 0..1_u64 << 30, noise in noise(400)) {
        let leak = Leak { warmup_spike, noise, ..Leak::default() };
        prop_assert_eq!(leak.verdict(None), Verdict::Fixed);
        prop_assert_eq!(leak.verdict(Some(1 << 20)), Verdict::Fixed);
    }

    #[test]
    fn nothing_is_fixed_without_a_detected_control(noise in noise(400), missed in any::<bool>()) {
        let leak = Leak { noise, ..Leak::default() };
        let control = missed.then(|| Control::Missed("it was not seen".to_owned()));
        prop_assert_eq!(leak.judged(None, control.as_ref()).verdict, Verdict::Inconclusive);
    }

    #[test]
    fn garbage_that_differs_from_the_prediction_by_one_byte_is_not_reproduced(
        garbage in 20_000..1_u64 << 31, less in any::<bool>(),
    ) {
        let leak = Leak { garbage, ..Leak::default() };
        let predicted = if less { garbage - 1 } else { garbage + 1 };
        prop_assert_eq!(leak.verdict(Some(predicted)), Verdict::Inconclusive);
    }

    #[test]
    fn what_is_kept_once_is_one_off_if_enough_steps_follow_and_never_fixed(
        step in 1..=STEPS, bytes in 5000_u64..1 << 30, noise in noise(400),
    ) {
        let leak = Leak { once: Some((step, bytes)), noise, ..Leak::default() };
        let wanted = if step <= STEPS / 2 { Verdict::OneOff } else { Verdict::Inconclusive };
        prop_assert_eq!(leak.verdict(None), wanted);
        prop_assert_eq!(leak.verdict(Some(1 << 30)), wanted);
    }

    #[test]
    fn growth_is_never_fixed_however_large_the_prediction(
        stuck in 6000_u64..1 << 24, garbage in 6000_u64..1 << 24, which in 0..3_u8, noise in noise(400),
    ) {
        let leak = Leak {
            stuck: if which == 1 { 0 } else { stuck },
            garbage: if which == 0 { 0 } else { garbage },
            noise,
            ..Leak::default()
        };
        prop_assert_ne!(leak.verdict(Some(1 << 31)), Verdict::Fixed);
        prop_assert_ne!(leak.verdict(None), Verdict::Fixed);
    }

    #[test]
    fn a_buffer_that_every_arm_allocates_once_is_no_growth(step in 4..=STEPS, bytes in 1_u64 << 20..1 << 30) {
        let leak = Leak::default();
        let (mut uncollected, mut collected) = (leak.arm(false), leak.arm(true));
        for record in uncollected.steps.iter_mut().chain(&mut collected.steps).filter(|record| record.step >= step) {
            raise(&mut record.memory, bytes);
            if let Some(after) = &mut record.collected {
                raise(&mut after.memory, bytes);
            }
        }
        let judgement =
            judge(&evidence(&uncollected, &collected, &leak.diagnosis(), None, Some(&Control::Detected)));
        prop_assert_eq!(judgement.verdict, Verdict::Fixed, "{}", judgement.reason);
    }

    #[test]
    fn tensors_kept_at_two_of_six_steps_are_inconclusive(first in 3..=STEPS, second in 3..=STEPS, bytes in 1_u64 << 20..1 << 30) {
        prop_assume!(first != second);
        let leak = Leak { once: Some((first, bytes)), ..Leak::default() };
        let mut recordings = (leak.arm(false), leak.arm(true), leak.diagnosis());
        recordings.2.garbage[second as usize - 1].census = census(bytes);
        let judgement =
            judge(&evidence(&recordings.0, &recordings.1, &recordings.2, None, Some(&Control::Detected)));
        prop_assert_eq!(judgement.verdict, Verdict::Inconclusive);
    }

    #[test]
    fn growth_that_no_collect_frees_is_uncollectable(stuck in 20_000..1_u64 << 30, noise in noise(400)) {
        let leak = Leak { stuck, noise, ..Leak::default() };
        prop_assert_eq!(leak.verdict(None), Verdict::Uncollectable);
        prop_assert_eq!(leak.verdict(Some(stuck)), Verdict::Uncollectable);
    }

    #[test]
    fn a_prediction_of_what_no_collect_frees_must_be_met_by_the_growth(stuck in 100_000_u64..1 << 30) {
        let leak = Leak { stuck, ..Leak::default() };
        let judged = |total| {
            let judgement = leak.judged(Some(Predicted { total, in_garbage: 0 }), Some(&Control::Detected));
            (judgement.verdict, judgement.reason)
        };
        prop_assert_eq!(judged(stuck / 100 * 95).0, Verdict::Uncollectable);
        prop_assert_eq!(judged(stuck / 100 * 105).0, Verdict::Uncollectable);
        for (total, why) in [(2 * stuck, "less than nine tenths of the predicted"), (stuck / 3, "more than the predicted")] {
            let (verdict, reason) = judged(total);
            prop_assert_eq!(verdict, Verdict::Inconclusive);
            prop_assert!(reason.contains(why), "{}", reason);
        }
    }

    #[test]
    fn what_c_plus_plus_holds_is_predicted_apart_from_what_is_in_garbage(
        garbage in 0..1_u64 << 30, unseen in 100_000_u64..1 << 30,
    ) {
        let leak = Leak { garbage, unseen, ..Leak::default() };
        let total = garbage + unseen;
        prop_assert_eq!(leak.verdict_with(total, garbage), Verdict::Reproduced);
        prop_assert_eq!(leak.verdict_with(total, garbage + 1), Verdict::Inconclusive, "garbage is exact");
        prop_assert_eq!(leak.verdict_with(total, total), Verdict::Inconclusive, "not all of it is in garbage");
        prop_assert_eq!(leak.verdict_with(garbage + 2 * total, garbage), Verdict::Inconclusive, "memory grows too little");
        prop_assert_eq!(leak.verdict_with(garbage + unseen / 3, garbage) == Verdict::Reproduced,
            total as f64 <= 1.1 * (garbage + unseen / 3) as f64 + 100.0 * 512.0 + 4096.0, "memory grows too much");
    }

    #[test]
    fn growth_of_which_a_collect_frees_a_part_is_inconclusive(garbage in 1_u64 << 20..1 << 30) {
        let leak = Leak { garbage, stuck: garbage, ..Leak::default() };
        prop_assert_eq!(leak.verdict(None), Verdict::Inconclusive);
    }

    #[test]
    fn missing_steps_are_said_and_not_judged(missing in 0..STEPS as usize, arm in 0..3_usize) {
        let leak = Leak { garbage: 1 << 20, ..Leak::default() };
        let (mut uncollected, mut collected, mut garbage) = (leak.arm(false), leak.arm(true), leak.diagnosis());
        match arm {
            0 => drop(uncollected.steps.remove(missing)),
            1 => drop(collected.steps.remove(missing)),
            _ => drop(garbage.garbage.remove(missing)),
        }
        let judgement = judge(&evidence(&uncollected, &collected, &garbage, Some(1 << 20), Some(&Control::Detected)));
        // A gap in the middle also shifts the losses against each other.
        prop_assert!(matches!(judgement.verdict, Verdict::Inconclusive | Verdict::Error), "{judgement:?}");
    }

    #[test]
    fn arms_with_another_loss_at_any_step_are_an_error(step in 0..STEPS as usize) {
        let leak = Leak { garbage: 1 << 20, ..Leak::default() };
        let (uncollected, mut collected, garbage) = (leak.arm(false), leak.arm(true), leak.diagnosis());
        collected.steps[step].loss = collected.steps[step].loss.map(f64::next_up);
        let judgement = judge(&evidence(&uncollected, &collected, &garbage, Some(1 << 20), Some(&Control::Detected)));
        prop_assert_eq!(judgement.verdict, Verdict::Error);
        prop_assert!(judgement.reason.contains(&format!("at step {}", step + 1)), "{}", judgement.reason);
    }
}

/// A clean run in which a collect after `step` frees bytes that no census of garbage shows.
fn freed_once(step: u32, bytes: u64, live_tensors: u64) -> Judgement {
    changed(|uncollected, collected, _| {
        for record in uncollected.steps.iter_mut().filter(|record| record.step >= step) {
            raise(&mut record.memory, bytes);
            record.census = census(live_tensors);
        }
        raise(&mut collected.steps[step as usize - 1].memory, bytes);
    })
}

proptest! {
    #[test]
    fn what_c_plus_plus_keeps_once_is_one_off_and_never_fixed(
        step in 1..=STEPS, bytes in 1_u64 << 20..1 << 30, live in 0..=10_u64,
    ) {
        let judgement = freed_once(step, bytes, bytes / 10 * live);
        let wanted = if step <= STEPS / 2 { Verdict::OneOff } else { Verdict::Inconclusive };
        prop_assert_eq!(judgement.verdict, wanted, "{}", judgement.reason);
        prop_assert_eq!(judgement.reason.contains("outside tensors"), live == 0, "{}", judgement.reason);
    }
}

#[test]
fn what_garbage_objects_take_themselves_is_not_kept_once() {
    assert_eq!(freed_once(1, u64::from(STEPS) * 100 * 512, 0).verdict, Verdict::Fixed);
}

#[test]
fn a_buffer_that_one_arm_still_has_and_no_collect_frees_is_nothing_that_is_kept() {
    let judgement =
        changed(|uncollected, _, _| raise(&mut uncollected.steps[STEPS as usize - 1].memory, 1 << 20));
    assert_eq!(judgement.verdict, Verdict::Fixed, "{}", judgement.reason);
}

#[test]
fn tensors_that_one_arm_still_has_and_no_collect_frees_are_inconclusive() {
    let judgement = changed(|uncollected, _, _| {
        uncollected.steps[STEPS as usize - 1].census = census(1 << 20);
    });
    assert_eq!(judgement.verdict, Verdict::Inconclusive, "{}", judgement.reason);
    assert!(judgement.reason.contains("no collect frees them"), "{}", judgement.reason);
}

#[test]
fn tensors_in_garbage_that_the_allocator_does_not_show_are_inconclusive() {
    let quiet = Leak::default();
    let leak = Leak { garbage: 2048, ..Leak::default() };
    let judgement = judge(&evidence(
        &quiet.arm(false),
        &quiet.arm(true),
        &leak.diagnosis(),
        None,
        Some(&Control::Detected),
    ));
    assert_eq!(judgement.verdict, Verdict::Inconclusive);
}

#[test]
fn growth_far_above_the_prediction_is_not_called_reproduced() {
    let predicted = 1 << 20;
    let leak = Leak { garbage: predicted, ..Leak::default() };
    let larger = Leak { garbage: 3 * predicted, ..Leak::default() };
    let judgement = judge(&evidence(
        &larger.arm(false),
        &larger.arm(true),
        &leak.diagnosis(),
        Some(predicted),
        Some(&Control::Detected),
    ));
    assert_eq!(judgement.verdict, Verdict::Inconclusive, "{}", judgement.reason);
}

#[test]
fn memory_that_shrinks_is_inconclusive_and_says_what_to_change() {
    let noise = (0..i64::from(STEPS)).map(|step| -step * (1 << 20)).collect();
    let judgement = Leak { noise, ..Leak::default() }.judged(None, Some(&Control::Detected));
    assert_eq!(judgement.verdict, Verdict::Inconclusive);
    assert!(judgement.reason.contains("raise `warmup`"), "{}", judgement.reason);
}

#[test]
fn a_platform_without_a_counter_gives_no_verdict() {
    let mut arms = (Leak::default().arm(false), Leak::default().arm(true));
    for step in arms.0.steps.iter_mut().chain(&mut arms.1.steps) {
        step.memory.in_use = None;
    }
    let judgement =
        judge(&evidence(&arms.0, &arms.1, &Leak::default().diagnosis(), None, Some(&Control::Detected)));
    assert_eq!(judgement.verdict, Verdict::Inconclusive);
    assert!(judgement.reason.contains("does not tell"), "{}", judgement.reason);
}

/// A clean run that is changed in one way, and what the judge then says.
fn changed(change: impl FnOnce(&mut Recording, &mut Recording, &mut Recording)) -> Judgement {
    let leak = Leak::default();
    let (mut uncollected, mut collected, mut garbage) = (leak.arm(false), leak.arm(true), leak.diagnosis());
    change(&mut uncollected, &mut collected, &mut garbage);
    judge(&evidence(&uncollected, &collected, &garbage, None, Some(&Control::Detected)))
}

#[test]
fn a_program_that_collects_by_itself_is_not_fixed() {
    let judgement = changed(|uncollected, _, _| uncollected.steps[4].foreign_collections = 1);
    assert_eq!(judgement.verdict, Verdict::Inconclusive);
    assert!(judgement.reason.contains("collected during step 5"), "{}", judgement.reason);
    let warming_up = changed(|uncollected, _, _| uncollected.steps[0].foreign_collections = 9);
    assert_eq!(warming_up.verdict, Verdict::Fixed);
}

#[test]
fn live_tensors_that_the_allocator_does_not_show_are_not_fixed() {
    let judgement = changed(|uncollected, _, _| {
        for record in &mut uncollected.steps {
            record.census = census(u64::from(record.step) << 20);
        }
    });
    assert_eq!(judgement.verdict, Verdict::Inconclusive);
    assert!(judgement.reason.contains("shared, mapped or pinned"), "{}", judgement.reason);
}

#[test]
fn garbage_in_other_memory_than_that_which_is_judged_is_not_fixed() {
    let judgement = changed(|_, _, garbage| {
        let storages = Storages { tensors: 1, storages: 1, bytes: 5056 };
        for record in &mut garbage.garbage {
            record.census.insert("cuda:0".to_owned(), storages);
        }
    });
    assert_eq!(judgement.verdict, Verdict::Inconclusive);
    assert!(judgement.reason.contains("other memory"), "{}", judgement.reason);
}

#[test]
fn losses_that_are_no_numbers_are_compared_too() {
    let judgement = changed(|uncollected, collected, _| {
        (uncollected.steps[3].loss, uncollected.steps[3].loss_is) = (None, Some("nan".to_owned()));
        (collected.steps[3].loss, collected.steps[3].loss_is) = (None, Some("inf".to_owned()));
    });
    assert_eq!(judgement.verdict, Verdict::Error);
    assert!(judgement.reason.contains("nan") && judgement.reason.contains("inf"), "{}", judgement.reason);
}
