//! What switching a condition did to the leak.

use serde::Serialize;

use crate::bytes::human;
use crate::case::{Resolved, Verdict};
use crate::measure::{Place, Recording, Series, theil_sen};
use crate::run::{CaseOutcome, judged_memory};
use crate::verdict::{Numbers, Predicted};

/// What a condition is to the leak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// The leak is gone without it.
    Necessary,
    /// More or less is retained.
    Scales,
    /// The same is retained.
    None,
    /// There is no verdict, so nothing is known.
    Unknown,
}

impl Effect {
    /// The word of tables and of JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Necessary => "necessary",
            Self::Scales => "scales",
            Self::None => "none",
            Self::Unknown => "unknown",
        }
    }
}

/// Whether the verdict says that something more is kept at every step.
pub const fn leaks(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Reproduced | Verdict::Uncollectable)
}

/// How the retained bytes of a case are counted: alike for all of its variants, so that they can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gauge {
    /// The tensors that a collect finds in garbage, to the byte.
    Garbage,
    /// The growth of the allocator, of which tensors in garbage are little or nothing: C++ holds the rest, or no
    /// collect frees it.
    Allocator,
}

/// What counts as equal where the allocator tells, which counts Python's own objects too.
const APART: f64 = 0.1;

impl Gauge {
    /// The gauge for a case that showed these numbers.
    fn of(base: &Numbers) -> Self {
        // Python's own objects can be more than the tensors of a small leak.
        let is_most = base.garbage.bytes as f64 > base.growth / 3.0;
        if is_most { Self::Garbage } else { Self::Allocator }
    }

    fn retained(self, numbers: &Numbers) -> u64 {
        match self {
            Self::Garbage => numbers.garbage.bytes,
            Self::Allocator => numbers.growth.round().max(0.0) as u64,
        }
    }

    fn predicted(self, predicted: Predicted) -> u64 {
        match self {
            Self::Garbage => predicted.in_garbage,
            Self::Allocator => predicted.total,
        }
    }

    /// The bytes that are alive after each step.
    pub fn levels(self, series: &Series) -> &[(u32, f64)] {
        match self {
            Self::Garbage => &series.census,
            Self::Allocator => &series.levels,
        }
    }

    /// Whether so many retained bytes are as many as those of the case.
    fn is_equal(self, bytes: u64, base: u64) -> bool {
        match self {
            Self::Garbage => bytes == base,
            Self::Allocator => bytes.abs_diff(base) as f64 <= APART * base as f64,
        }
    }
}

/// What one value of a condition showed.
#[derive(Debug, Clone, PartialEq)]
pub struct Shown {
    /// None where nothing was judged.
    pub verdict: Option<Verdict>,
    pub reason: String,
    /// Bytes per step.
    pub retained: Option<u64>,
    pub predicted: Option<u64>,
    pub effect: Effect,
}

impl Shown {
    /// Of what could not be run.
    pub fn not_run(reason: impl Into<String>) -> Self {
        Self {
            verdict: None,
            reason: reason.into(),
            retained: None,
            predicted: None,
            effect: Effect::Unknown,
        }
    }

    /// Of a run that was judged; what its effect is only a comparison says.
    fn of(outcome: &CaseOutcome, gauge: Gauge) -> Self {
        let (verdict, numbers) = (outcome.verdict(), outcome.numbers());
        let retained = numbers.map(|numbers| match verdict {
            // What the allocator drifts by is nobody's.
            Some(Verdict::Fixed | Verdict::OneOff) => 0,
            _ => gauge.retained(numbers),
        });
        let predicted = numbers.and_then(|numbers| numbers.predicted).map(|bytes| gauge.predicted(bytes));
        Self { verdict, reason: outcome.reason().to_owned(), retained, predicted, effect: Effect::Unknown }
    }
}

/// The leak of the case itself, which variants are compared with.
#[derive(Debug)]
pub struct Leak {
    pub own: Shown,
    pub gauge: Gauge,
    pub place: Place,
    warmup: u32,
}

impl Leak {
    /// The leak, if the case has one.
    pub fn of(base: &CaseOutcome, case: &Resolved) -> Option<Self> {
        let numbers = base.numbers().filter(|_| base.verdict().is_some_and(leaks))?;
        let gauge = Gauge::of(numbers);
        let own = Shown { effect: Effect::None, ..Shown::of(base, gauge) };
        let (place, _) = judged_memory(case.prediction.as_ref(), case.device);
        Some(Self { own, gauge, place, warmup: case.warmup })
    }

    /// A variant's run beside the case itself.
    pub fn beside(&self, outcome: &CaseOutcome) -> Shown {
        let shown = Shown::of(outcome, self.gauge);
        let effect = match (shown.verdict, shown.retained) {
            (Some(Verdict::Fixed | Verdict::OneOff), _) => Effect::Necessary,
            (Some(verdict), Some(bytes)) if leaks(verdict) => self.compared(bytes),
            _ => Effect::Unknown,
        };
        Shown { effect, ..shown }
    }

    /// An arm of the case itself that collects one generation after each step.
    pub fn with_collections(&self, recording: &Recording) -> Shown {
        let series = Series::of(recording, self.place, self.warmup);
        let told = series
            .and_then(|series| Some((theil_sen(self.gauge.levels(&series))?, series.freed_per_collect()?)));
        let Some((stays, freed)) = told else {
            return Shown::not_run("the arm reported too few steps");
        };
        let stays = stays.round().max(0.0) as u64;
        let own = self.own.retained.unwrap_or(0);
        let effect =
            if stays as f64 <= APART * own as f64 { Effect::Necessary } else { self.compared(stays) };
        let reason = format!("each collect frees {}, and {stays} bytes per step stay", human(freed));
        Shown { verdict: None, reason, retained: Some(stays), predicted: None, effect }
    }

    /// Whether a variant has the same leak: what the case predicts of it where it predicts anything, and else
    /// whatever is kept at every step.
    pub fn stays(&self, variant: &Shown) -> bool {
        let as_predicted = match variant.predicted.or(self.own.predicted) {
            Some(predicted) => variant.retained.is_some_and(|bytes| self.gauge.is_equal(bytes, predicted)),
            None => true,
        };
        as_predicted && variant.verdict == self.own.verdict
    }

    fn compared(&self, bytes: u64) -> Effect {
        let own = self.own.retained.unwrap_or(0);
        if self.gauge.is_equal(bytes, own) { Effect::None } else { Effect::Scales }
    }
}
