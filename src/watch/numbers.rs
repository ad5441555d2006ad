//! The numbers of one process, as pure functions of its samples.

use crate::measure::{Place, median, theil_sen};

use super::process::{Process, Sample};

/// So many points give a slope; of a longer stretch every second, third and so on is taken.
const MOST_POINTS: usize = 300;

/// A slope over fewer than two steps, which are three levels, is no trend.
const LEAST_STEPS: usize = 2;

/// The means of fewer collections are no trend.
const LEAST_COLLECTIONS: usize = 3;

/// One of fewer stretches is not typical.
const LEAST_STRETCHES: usize = 3;

/// What one process measured after its warm-up, in bytes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RankNumbers {
    /// Steps in all.
    pub steps: u32,
    /// What a step adds while nothing is collected in full.
    pub growth: Option<f64>,
    /// What a typical step adds: near 0 where one jump makes the growth.
    pub typical_step: Option<f64>,
    /// What each step adds in spite of full collections: the slope of the levels after them.
    pub growth_collected: Option<f64>,
    /// What a typical step adds to those levels: near 0 where one jump makes their slope.
    pub typical_collected: Option<f64>,
    /// What the levels after full collections rose by, from the first third of the steps to the end, for each step
    /// between. A mean: it counts what comes in few steps, too, and leaves out what comes once at the beginning.
    pub rise_collected: Option<f64>,
    /// As [`RankNumbers::rise_collected`], of the live storages that were met, in whatever memory.
    pub rise_live: Option<f64>,
    /// What all collections freed for all steps, a mean.
    pub freed_mean: Option<f64>,
    /// What all steps added between full collections, a mean. It is what collections can have freed.
    pub risen_mean: Option<f64>,
    /// Collections after the first third of the steps that freed more than is flat.
    pub late_frees: usize,
    /// The most steps in a row without a full collection.
    pub longest: u32,
    /// What collections freed for each step that they followed.
    pub freed_per_step: Option<f64>,
    /// What a collection freed.
    pub freed_per_collect: Option<f64>,
    /// Collections of torchleak's after the warm-up; under `observe` full ones of others.
    pub collections: usize,
    /// Looks at garbage that found tensors, and their bytes per step, the median.
    pub garbage_looks: usize,
    pub garbage_bytes: Option<f64>,
    /// Whether any look found tensors in garbage, in whatever memory.
    pub has_garbage: bool,
    /// Whether the script itself collects in full in most steps, so that every level is one after a collection.
    pub collects_itself: bool,
    /// Collections that torchleak did not make after the warm-up.
    pub others: u64,
    /// The first step after the warm-up that ends higher than the stretch began by more than is flat.
    pub onset: Option<u32>,
    /// Wall time of torchleak's own collections and looks, and of all watching.
    pub collecting_seconds: f64,
    pub watch_seconds: f64,
}

/// A stretch of steps in which nothing was collected in full: (step, level).
type Stretch = Vec<(u32, f64)>;

impl RankNumbers {
    /// Takes the numbers of a process. `warmup` steps are left out.
    pub fn of(process: &Process, warmup: u32, tolerance: f64) -> Self {
        let place = process.place();
        let samples = &process.samples;
        let collects_itself = collects_itself(samples, warmup);
        let stretches = stretches(samples, place, warmup, collects_itself);
        let (growth, typical_step) = growth(&stretches);
        let collections = collections(samples, place, warmup);
        let looks = || process.garbage.iter().filter(|look| look.step > warmup && look.bytes(place) > 0);
        // Where rounds were looked at, single steps had not shown what collects free.
        let has_rounds = looks().any(|look| look.over_steps > 1);
        let garbage: Vec<(u32, f64)> = looks()
            .filter(|look| look.over_steps > 1 || !has_rounds)
            .map(|found| (found.step, found.bytes(place) as f64 / f64::from(found.over_steps.max(1))))
            .collect();
        let kept = match stretches.first() {
            Some(levels) if collects_itself => levels.clone(),
            _ => levels_after_collections(samples, place, warmup),
        };
        let live: Stretch = process
            .garbage
            .iter()
            .filter(|look| look.step > warmup)
            .map(|look| (look.step, look.live as f64))
            .collect();
        let warm = || samples.iter().filter(|sample| sample.step > warmup);
        Self {
            steps: samples.last().map_or(0, |sample| sample.step),
            growth,
            typical_step,
            growth_collected: theil_sen(&thinned(&kept)),
            typical_collected: typical_collected(&kept),
            rise_collected: late_rise(&kept),
            rise_live: late_rise(&live),
            freed_mean: mean(collections.iter().map(|freed| (freed.bytes, freed.steps))),
            risen_mean: mean(stretches.iter().map(|stretch| rise(stretch))),
            late_frees: late_frees(&collections, tolerance),
            longest: stretches.iter().map(|stretch| rise(stretch).1).max().unwrap_or(0),
            has_garbage: process.garbage.iter().any(|look| look.step > warmup && look.host + look.device > 0),
            collects_itself,
            freed_per_step: median(&mut collections.iter().map(|each| each.per_step()).collect::<Vec<_>>()),
            freed_per_collect: freed_per_collect(process, &collections),
            collections: collections.len(),
            garbage_looks: garbage.len(),
            garbage_bytes: median(&mut garbage.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>()),
            others: warm().map(|sample| sample.others.collections).sum(),
            onset: onset(&stretches, tolerance),
            collecting_seconds: samples
                .iter()
                .filter_map(|sample| sample.collected.as_ref())
                .map(|collected| collected.seconds)
                .sum(),
            watch_seconds: samples.iter().map(|sample| sample.watch_seconds).sum(),
        }
    }

    /// The most that anything says of growth, in bytes per step, and what says it: robust slopes, and the means that
    /// count rare steps, once there are enough collections.
    pub fn most_growth(&self) -> Option<(f64, &'static str)> {
        let all = [
            (self.growth, "the growth between collections"),
            (self.rise_collected, "the growth of what collections leave"),
            (self.rise_live, "the growth of live tensors"),
            (self.freed_mean, "what collections freed"),
        ];
        let counted = if self.collections < LEAST_COLLECTIONS { 1 } else { all.len() };
        let known = all[..counted].iter().filter_map(|(bytes, what)| Some(((*bytes)?, *what)));
        known.max_by(|one, other| one.0.total_cmp(&other.0))
    }

    /// Whether memory grows while nothing is collected.
    pub fn grows(&self, tolerance: f64) -> bool {
        self.growth.is_some_and(|growth| growth > tolerance)
            && self.typical_step.is_some_and(|step| step > tolerance)
    }
}

/// One collection with what it freed.
struct Freed {
    step: u32,
    bytes: f64,
    /// Steps since the full collection before it.
    steps: u32,
}

impl Freed {
    fn per_step(&self) -> f64 {
        self.bytes / f64::from(self.steps.max(1))
    }
}

/// Takes the steps apart at full collections, torchleak's and others. What one leaves is the first level of
/// the next stretch, so that a stretch of one step has a slope too.
fn stretches(samples: &[Sample], place: Place, warmup: u32, collects_itself: bool) -> Vec<Stretch> {
    if collects_itself {
        let of = samples.iter().filter(|sample| sample.step > warmup && sample.other_full > 0);
        return vec![of.filter_map(|sample| Some((sample.step, sample.level(place)?))).collect()];
    }
    let mut all = Vec::new();
    let mut current = Stretch::new();
    for sample in samples {
        if sample.other_full > 0 {
            // Where within the step it came is not known, so this step is no part of any stretch.
            all.push(std::mem::take(&mut current));
        }
        if sample.step > warmup
            && let Some(level) = sample.level(place)
        {
            current.push((sample.step, level));
        }
        if let Some(collected) = &sample.collected {
            all.push(std::mem::take(&mut current));
            if sample.step >= warmup
                && let Some(level) = collected.level(place)
            {
                current.push((sample.step, level));
            }
        }
    }
    all.push(current);
    all.retain(|stretch| stretch.len() > 1);
    all
}

fn collects_itself(samples: &[Sample], warmup: u32) -> bool {
    let warm = || samples.iter().filter(|sample| sample.step > warmup);
    2 * warm().filter(|sample| sample.other_full > 0).count() > warm().count()
}

/// The slope over all stretches, and what a typical step adds, or a step of a typical stretch: a leak in each third
/// step is one too.
fn growth(stretches: &[Stretch]) -> (Option<f64>, Option<f64>) {
    let steps: usize = stretches.iter().map(|stretch| stretch.len() - 1).sum();
    if steps < LEAST_STEPS {
        return (None, None);
    }
    // One stretch gives as many slopes as it has pairs of steps, so a long one counts more than short ones.
    let mut slopes: Vec<f64> = stretches.iter().flat_map(|stretch| slopes(&thinned(stretch))).collect();
    let mut steps: Vec<f64> =
        stretches.iter().flat_map(|stretch| stretch.windows(2).map(|pair| pair[1].1 - pair[0].1)).collect();
    let typical = lower_median(&mut steps);
    let mut means: Vec<f64> = stretches
        .iter()
        .filter(|stretch| stretch.len() > LEAST_STEPS)
        .filter_map(|of| mean_rise(of))
        .collect();
    let typical_mean = if means.len() < LEAST_STRETCHES { None } else { lower_median(&mut means) };
    (median(&mut slopes), typical.into_iter().chain(typical_mean).max_by(f64::total_cmp))
}

/// The lower of the two in the middle, as `measure` has it.
fn lower_median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied()
}

/// What the last level is above the first, and the steps between them.
fn rise(levels: &[(u32, f64)]) -> (f64, u32) {
    levels.first().zip(levels.last()).map_or((0.0, 0), |(first, last)| (last.1 - first.1, last.0 - first.0))
}

/// Bytes per step, of parts that have so many bytes in so many steps.
fn mean(parts: impl Iterator<Item = (f64, u32)>) -> Option<f64> {
    let (bytes, steps) = parts.fold((0.0, 0), |(bytes, steps), part| (bytes + part.0, steps + part.1));
    (steps > 0).then(|| bytes / f64::from(steps))
}

/// What a step adds from the first to the last level, on average.
fn mean_rise(levels: &[(u32, f64)]) -> Option<f64> {
    mean(std::iter::once(rise(levels)))
}

/// Where the first third of the steps ends.
fn first_third(first: u32, last: u32) -> u32 {
    first + (last - first) / 3
}

/// The mean rise from the last level of the first third of the steps on, or from the first level if there are few.
fn late_rise(levels: &[(u32, f64)]) -> Option<f64> {
    let (first, last) = (levels.first()?.0, levels.last()?.0);
    let third = first_third(first, last);
    let from = levels.iter().rposition(|(step, _)| *step <= third)?;
    mean_rise(&levels[from..])
}

fn late_frees(collections: &[Freed], tolerance: f64) -> usize {
    let Some((first, last)) = collections.first().zip(collections.last()) else { return 0 };
    let third = first_third(first.step, last.step);
    collections.iter().filter(|freed| freed.step > third && freed.per_step() > tolerance).count()
}

fn thinned(stretch: &[(u32, f64)]) -> Vec<(u32, f64)> {
    stretch.iter().step_by(stretch.len().div_ceil(MOST_POINTS).max(1)).copied().collect()
}

fn slopes(points: &[(u32, f64)]) -> Vec<f64> {
    let mut slopes = Vec::with_capacity(points.len() * points.len().saturating_sub(1) / 2);
    for (index, (x, y)) in points.iter().enumerate() {
        slopes.extend(
            points[index + 1..]
                .iter()
                .map(|(other_x, other_y)| (other_y - y) / (f64::from(*other_x) - f64::from(*x))),
        );
    }
    slopes
}

/// The levels after torchleak's full collections.
fn levels_after_collections(samples: &[Sample], place: Place, warmup: u32) -> Stretch {
    samples
        .iter()
        .filter(|sample| sample.step >= warmup)
        .filter_map(|sample| Some((sample.step, sample.collected.as_ref()?.level(place)?)))
        .collect()
}

/// What the step in the middle adds, if each step between two collections adds an equal part of what both add.
fn typical_collected(levels: &[(u32, f64)]) -> Option<f64> {
    let mut rises: Vec<(f64, u32)> = levels
        .windows(2)
        .map(|pair| (pair[1].0 - pair[0].0, pair[1].1 - pair[0].1))
        .map(|(steps, rise)| (rise / f64::from(steps), steps))
        .collect();
    rises.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut left = rises.iter().map(|(_, steps)| steps).sum::<u32>().div_ceil(2);
    let middle = rises.iter().find(|(_, steps)| {
        left = left.saturating_sub(*steps);
        left == 0
    });
    middle.map(|(rise, _)| *rise)
}

/// What collections freed after the warm-up: torchleak's, or the full ones of others where there are none.
fn collections(samples: &[Sample], place: Place, warmup: u32) -> Vec<Freed> {
    let mut found = Vec::new();
    let mut last: Option<u32> = None;
    let ours = samples.iter().any(|sample| sample.collected.is_some());
    for sample in samples {
        let bytes = match &sample.collected {
            Some(collected) => sample.level(place).zip(collected.level(place)).map(|(from, to)| from - to),
            None if !ours && sample.other_full > 0 => Some(sample.others.freed_by_full as f64),
            None => continue,
        };
        if let (Some(bytes), Some(last)) = (bytes, last)
            && sample.step > warmup
        {
            found.push(Freed { step: sample.step, bytes, steps: sample.step - last });
        }
        last = Some(sample.step);
    }
    found
}

/// What a collection freed. Those that look at cycles in less than a round are left out where there are others.
fn freed_per_collect(process: &Process, collections: &[Freed]) -> Option<f64> {
    let longest = collections.iter().map(|freed| freed.steps).max().unwrap_or(0);
    let looked = |freed: &&Freed| {
        process.garbage.iter().any(|found| found.step == freed.step && found.over_steps < longest)
    };
    let mut plain: Vec<f64> =
        collections.iter().filter(|freed| !looked(freed)).map(|freed| freed.bytes).collect();
    if plain.is_empty() {
        plain = collections.iter().map(|freed| freed.bytes).collect();
    }
    median(&mut plain)
}

fn onset(stretches: &[Stretch], tolerance: f64) -> Option<u32> {
    stretches.iter().find_map(|stretch| {
        let (_, first) = stretch.first()?;
        stretch.iter().find(|(_, level)| level - first > tolerance).map(|(step, _)| *step)
    })
}

#[cfg(test)]
mod tests {
    use super::super::process::Collection;
    use super::*;

    /// Rounds of four steps that each add `add`, of which a collect frees `free` per step.
    fn rounds(add: u64, free: u64) -> Process {
        let mut level = 1_000_000;
        let mut samples = Vec::new();
        for step in 1..=13 {
            level += add;
            let before = level;
            let collected = (step > 1 && (step - 1) % 4 == 0 || step == 1).then(|| {
                level -= free * if step == 1 { 0 } else { 4 };
                Collection { generation: 2, host: Some(level), device: None, seconds: 0.5 }
            });
            samples.push(Sample { step, host: Some(before), collected, ..Sample::default() });
        }
        Process { samples, ..Process::default() }
    }

    #[test]
    fn growth_is_what_a_step_adds_between_collections() {
        let numbers = RankNumbers::of(&rounds(10_000, 10_000), 1, 4096.0);
        assert_eq!(numbers.growth, Some(10_000.0));
        assert_eq!(numbers.growth_collected, Some(0.0));
        assert_eq!(numbers.freed_per_collect, Some(40_000.0));
        assert_eq!(numbers.freed_per_step, Some(10_000.0));
        assert_eq!((numbers.collections, numbers.onset), (3, Some(2)));
        assert_eq!(numbers.collecting_seconds, 2.0);
    }

    #[test]
    fn what_no_collect_frees_grows_from_one_collect_to_the_next() {
        let numbers = RankNumbers::of(&rounds(10_000, 2_500), 1, 4096.0);
        assert_eq!(numbers.growth_collected, Some(7_500.0));
        assert_eq!(numbers.freed_per_step, Some(2_500.0));
    }

    /// 40 steps with a full collect after each eighth, in which each `every`th adds so many bytes, which a collect frees.
    fn rare(every: u32, add: u64) -> Process {
        let (mut level, mut kept) = (1_000_000, 0);
        let samples = (1..=41).map(|step| {
            kept += if step % every == 0 { add } else { 0 };
            level += if step % every == 0 { add } else { 0 };
            let before = level;
            let collected = ((step - 1) % 8 == 0).then(|| {
                level -= std::mem::take(&mut kept);
                Collection { generation: 2, host: Some(level), device: None, seconds: 0.0 }
            });
            Sample { step, host: Some(before), collected, ..Sample::default() }
        });
        Process { samples: samples.collect(), ..Process::default() }
    }

    #[test]
    fn a_leak_in_each_third_step_grows_and_one_in_few_steps_shows_in_the_mean() {
        let third = RankNumbers::of(&rare(3, 100_000), 1, 4096.0);
        assert!(third.grows(4096.0), "{third:?}");
        let tenth = RankNumbers::of(&rare(10, 100_000), 1, 4096.0);
        assert_eq!(tenth.freed_mean, Some(10_000.0));
        assert_eq!(tenth.most_growth(), Some((10_000.0, "what collections freed")));
        assert_eq!((tenth.late_frees, tenth.longest), (3, 8));
    }

    #[test]
    fn two_collections_are_no_trend() {
        let few = RankNumbers {
            growth: Some(1.0),
            rise_collected: Some(9e4),
            collections: 2,
            ..Default::default()
        };
        assert_eq!(few.most_growth().map(|(bytes, _)| bytes), Some(1.0));
        let enough = RankNumbers { collections: 3, ..few };
        assert_eq!(enough.most_growth().map(|(bytes, _)| bytes), Some(9e4));
    }

    #[test]
    fn what_stays_late_shows_in_the_mean_and_a_jump_at_the_beginning_does_not() {
        let levels = |jump: u32| -> Vec<(u32, f64)> {
            (1..=10).map(|step| (step, if step >= jump { 90_000.0 } else { 0.0 })).collect()
        };
        assert_eq!(late_rise(&levels(9)), Some(90_000.0 / 6.0));
        assert_eq!(late_rise(&levels(3)), Some(0.0));
    }

    #[test]
    fn where_the_script_collects_at_each_step_its_levels_are_those_after_collections() {
        let mut process = rounds(10_000, 0);
        for sample in &mut process.samples {
            (sample.collected, sample.other_full) = (None, 1);
        }
        let numbers = RankNumbers::of(&process, 1, 4096.0);
        assert_eq!((numbers.growth, numbers.growth_collected), (Some(10_000.0), Some(10_000.0)));
        assert!(numbers.collects_itself);
    }

    #[test]
    fn a_full_collection_of_others_ends_a_stretch() {
        let mut process = rounds(10_000, 0);
        for sample in &mut process.samples {
            sample.collected = None;
        }
        process.samples[6].other_full = 1;
        process.samples[6].others.freed_by_full = 50_000;
        for sample in &mut process.samples[6..] {
            sample.host = sample.host.map(|level| level - 50_000);
        }
        let numbers = RankNumbers::of(&process, 1, 4096.0);
        assert_eq!(numbers.growth, Some(10_000.0));
    }

    #[test]
    fn too_few_steps_have_no_growth() {
        let mut process = rounds(10_000, 0);
        process.samples.truncate(2);
        assert_eq!(RankNumbers::of(&process, 1, 4096.0).growth, None);
        assert_eq!(RankNumbers::of(&Process::default(), 1, 4096.0), RankNumbers::default());
    }

    #[test]
    fn one_jump_is_no_growth() {
        let mut process = rounds(0, 0);
        for sample in &mut process.samples[7..] {
            sample.host = sample.host.map(|level| level + 1_000_000);
        }
        assert!(!RankNumbers::of(&process, 1, 4096.0).grows(4096.0));
    }

    #[test]
    fn a_step_in_the_middle_between_collections_is_that_of_all_steps_and_no_jump() {
        // As 30 steps of DDP on two ranks were measured, in bytes: its jump comes after the warm-up.
        let levels = [5232, 62336, 190656, 198640, 209568, 214848, 219536, 237792].map(f64::from);
        let levels: Vec<(u32, f64)> = [3, 4, 10, 11, 17, 23, 24, 30].into_iter().zip(levels).collect();
        assert!(theil_sen(&levels).unwrap() > 4096.0);
        assert_eq!(typical_collected(&levels), Some(18256.0 / 6.0));
        assert_eq!(typical_collected(&[(1, 0.0), (3, 20.0), (5, 40.0)]), Some(10.0));
        assert_eq!(typical_collected(&levels[..1]), None);
    }
}
