//! The numbers a verdict stands on.

use crate::measure::{GarbagePerStep, Series, garbage_per_step, level_gap};

use super::{Evidence, Predicted};

/// What the arms of a case measured, in bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Numbers {
    /// The declared retention per step, where one is declared.
    pub predicted: Option<Predicted>,
    /// What the uncollected arm grows by per step.
    pub growth: f64,
    /// What a typical step of the uncollected arm adds: near 0 where one jump makes the growth.
    pub typical_step: f64,
    /// What the collected arm grows by per step in spite of its collections.
    pub growth_collected: f64,
    /// What a typical step of the collected arm adds.
    pub typical_step_collected: f64,
    /// What the live tensors that Python knows of grow by per step, in the uncollected and in the
    /// collected arm.
    pub census_growth: [f64; 2],
    /// What a forced collection frees.
    pub freed: f64,
    /// What a full collect finds.
    pub garbage: GarbagePerStep,
    /// How much higher the uncollected arm ends than the collected one.
    pub gap: f64,
    /// How many more bytes of live tensors that Python knows of the uncollected arm ends with.
    pub census_gap: f64,
}

impl Numbers {
    /// Takes the numbers from the recordings, or says what is missing.
    pub fn of(evidence: &Evidence<'_>) -> Result<Self, String> {
        let Evidence { place, warmup, .. } = *evidence;
        let counter = || format!("this platform does not tell the {}", place.counter());
        let uncollected = Series::of(evidence.uncollected, place, warmup).ok_or_else(counter)?;
        let collected = Series::of(evidence.collected, place, warmup).ok_or_else(counter)?;
        let garbage = garbage_per_step(evidence.garbage, place, warmup)
            .ok_or("the diagnosis run reported no step after the warm-up")?;
        Ok(Self {
            predicted: evidence.predicted,
            growth: slope(&uncollected, "uncollected")?,
            typical_step: uncollected.typical_step().ok_or("the uncollected arm reported one step")?,
            typical_step_collected: collected.typical_step().ok_or("the collected arm reported one step")?,
            census_growth: [&uncollected, &collected].map(|series| series.census_growth().unwrap_or(0.0)),
            growth_collected: slope(&collected, "collected")?,
            freed: collected.freed_per_collect().ok_or("the collected arm reported no collection")?,
            garbage,
            gap: level_gap(&uncollected, &collected).ok_or("an arm reported no level")?,
            census_gap: uncollected.last_census().unwrap_or(0.0) - collected.last_census().unwrap_or(0.0),
        })
    }
}

/// A slope over fewer than three steps is two readings and no trend.
fn slope(series: &Series, arm: &str) -> Result<f64, String> {
    const LEAST: usize = 3;
    let steps = series.levels.len();
    if steps < LEAST {
        return Err(format!(
            "the {arm} arm reported {steps} steps after the warm-up and a slope needs at least {LEAST}"
        ));
    }
    series.growth().ok_or_else(|| format!("the {arm} arm reported the same step twice"))
}
