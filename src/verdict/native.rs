//! What the native control says: whether libtorch alone, without Python, stays flat and computes the same.

use serde::{Deserialize, Serialize};
use torchleak_protocol::Dtype;

use super::judge::FLAT_BYTES;
use crate::bytes::human;
use crate::measure::{Place, Recording, Series};

/// What was recorded of the native arm and of the Python arm that it is compared with.
#[derive(Debug, Clone, Copy)]
pub struct NativeEvidence<'a> {
    pub native: &'a Recording,
    pub uncollected: &'a Recording,
    pub warmup: u32,
    pub place: Place,
    pub dtype: Dtype,
    /// Growth in bytes per step that still counts as flat, where the case says so.
    pub tolerance: Option<u64>,
}

/// The conclusion.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Native {
    /// Whether libtorch alone stays flat and gives the same losses. None where that cannot be said.
    pub agrees: Option<bool>,
    /// One sentence.
    pub reason: String,
    /// What it grows by per step, in bytes.
    pub growth_bytes_per_step: Option<f64>,
    /// The largest relative difference of a loss from the Python arms'.
    pub loss_difference: Option<f64>,
}

impl Native {
    /// Nothing can be said.
    pub fn unknown(reason: String) -> Self {
        Self { agrees: None, reason, growth_bytes_per_step: None, loss_difference: None }
    }
}

/// The largest relative difference that is rounding: the same operators in the same order give the same bits on one
/// machine, and what sums in another order loses a few bits of the dtype's.
fn rounding(dtype: Dtype) -> f64 {
    match dtype {
        // The loss of a float64 model is summed in float32, too.
        Dtype::Float64 | Dtype::Float32 => 1e-5,
        Dtype::Bfloat16 => 1e-2,
    }
}

/// Compares the native arm with the uncollected one.
pub fn compare(evidence: &NativeEvidence<'_>) -> Native {
    let NativeEvidence { native, uncollected, place, warmup, .. } = *evidence;
    let growth = |recording| Series::of(recording, place, warmup).and_then(|series| series.growth());
    let (Some(alone), Some(python)) = (growth(native), growth(uncollected)) else {
        return Native::unknown(format!(
            "an arm has too few steps after the warm-up, or this platform does not tell the {}",
            place.counter()
        ));
    };
    let difference = loss_difference(native, uncollected);
    let tolerance = evidence.tolerance.map_or(FLAT_BYTES, |bytes| bytes as f64);
    let (is_flat, is_same) = (alone.abs() <= tolerance, difference <= rounding(evidence.dtype));
    let losses = if is_same { "gives the same losses" } else { "gives other losses" };
    let (memory, conclusion) = match alone {
        _ if !is_same => {
            (if is_flat { "stays flat" } else { "is not flat" }, "it is not the same experiment")
        }
        _ if alone > tolerance => ("grows too", "not all of the growth is in Python"),
        _ if alone < -tolerance => ("still shrinks", "raise `warmup`"),
        _ if python > tolerance => ("stays flat", "the growth is in Python"),
        _ => ("stays flat", "nothing grows in Python either"),
    };
    Native {
        agrees: Some(is_flat && is_same),
        reason: format!(
            "libtorch alone {memory} and {losses}; {conclusion} ({} per step, {})",
            human(alone),
            shown(difference)
        ),
        growth_bytes_per_step: Some(alone),
        loss_difference: Some(difference),
    }
}

fn shown(difference: f64) -> String {
    match difference {
        0.0 => "losses equal to the last bit".to_owned(),
        _ if difference.is_finite() => format!("losses differ by {difference:.1e} of their value at most"),
        _ => "one of them lacks a loss of the other".to_owned(),
    }
}

/// The largest relative difference of two arms' losses; infinite where one arm lacks a loss that the other has.
fn loss_difference(one: &Recording, other: &Recording) -> f64 {
    if one.steps.len() != other.steps.len() {
        return f64::INFINITY;
    }
    let pairs = one.steps.iter().zip(&other.steps);
    let differences = pairs.map(|(one, other)| match (one.loss, other.loss) {
        (Some(one), Some(other)) if one == other => 0.0,
        (Some(one), Some(other)) => (one - other).abs() / one.abs().max(other.abs()),
        (None, None) if one.loss_is == other.loss_is => 0.0,
        _ => f64::INFINITY,
    });
    differences.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;
    use torchleak_protocol::{Census, Memory, StepRecord};

    use super::*;

    const STEPS: u32 = 6;

    /// An arm that grows by so many bytes per step, and whose losses are off by a factor.
    fn arm(growth: i64, factor: f64) -> Recording {
        let step = |step: u32| StepRecord {
            step,
            loss: Some(factor / f64::from(step)),
            loss_is: None,
            grad_norm: None,
            seconds: 0.1,
            tokens: None,
            memory: Memory {
                in_use: Some(((100 << 20) + growth * i64::from(step)).cast_unsigned()),
                ..Memory::default()
            },
            census: Census::new(),
            collected: None,
            foreign_collections: 0,
        };
        Recording { steps: (1..=STEPS).map(step).collect(), ..Recording::default() }
    }

    fn compared(native: &Recording, uncollected: &Recording, dtype: Dtype) -> Native {
        let (warmup, place, tolerance) = (2, Place::Host, None);
        compare(&NativeEvidence { native, uncollected, warmup, place, dtype, tolerance })
    }

    #[rstest]
    #[case(0, 1.0, true, "libtorch alone stays flat and gives the same losses; the growth is in Python")]
    #[case(
        5000,
        1.0,
        false,
        "libtorch alone grows too and gives the same losses; not all of the growth is in Python"
    )]
    #[case(-5000, 1.0, false, "libtorch alone still shrinks and gives the same losses; raise `warmup`")]
    #[case(
        0,
        1.001,
        false,
        "libtorch alone stays flat and gives other losses; it is not the same experiment"
    )]
    #[case(
        5000,
        1.001,
        false,
        "libtorch alone is not flat and gives other losses; it is not the same experiment"
    )]
    fn memory_and_losses_together_make_the_conclusion(
        #[case] growth: i64,
        #[case] factor: f64,
        #[case] agrees: bool,
        #[case] sentence: &str,
    ) {
        let native = compared(&arm(growth, factor), &arm(1 << 20, 1.0), Dtype::Float32);
        assert_eq!(native.agrees, Some(agrees));
        assert!(native.reason.starts_with(&format!("{sentence} (")), "{}", native.reason);
        assert_eq!(native.growth_bytes_per_step, Some(growth as f64));
    }

    #[test]
    fn nothing_is_blamed_on_python_where_it_does_not_grow_either() {
        let native = compared(&arm(0, 1.0), &arm(0, 1.0), Dtype::Float32);
        assert_eq!(native.agrees, Some(true));
        let sentence = "libtorch alone stays flat and gives the same losses; nothing grows in Python either";
        assert!(native.reason.starts_with(sentence), "{}", native.reason);
    }

    #[test]
    fn a_missing_step_or_loss_is_no_agreement() {
        let python = arm(1 << 20, 1.0);
        let mut short = arm(0, 1.0);
        short.steps.pop();
        assert_eq!(compared(&short, &python, Dtype::Float32).agrees, Some(false));
        let mut lost = arm(0, 1.0);
        lost.steps[3].loss = None;
        lost.steps[3].loss_is = Some("nan".to_owned());
        assert_eq!(compared(&lost, &python, Dtype::Float32).loss_difference, Some(f64::INFINITY));
        assert_eq!(compared(&Recording::default(), &python, Dtype::Float32).agrees, None);
    }

    proptest! {
        #[test]
        fn losses_agree_up_to_the_rounding_of_the_dtype(exponent in -9.0..0.0_f64) {
            let off = 10_f64.powf(exponent);
            for (dtype, most) in [(Dtype::Float32, 1e-5), (Dtype::Bfloat16, 1e-2)] {
                // The difference is relative to the larger one.
                let relative = off / (1.0 + off);
                prop_assume!((relative - most).abs() > most * 1e-3);
                let agrees = compared(&arm(0, 1.0 + off), &arm(0, 1.0), dtype).agrees;
                prop_assert_eq!(agrees, Some(relative < most));
            }
        }
    }
}
