//! How the retained bytes grow with the sizes of a case: a line through what was measured, beside the line
//! through what the case predicts.

use serde::Serialize;

use crate::measure::{median, theil_sen};

/// What a law is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Quantity {
    #[serde(rename = "layers")]
    Layers,
    /// Tokens of a batch.
    #[serde(rename = "batch*seq")]
    Tokens,
    /// Bytes of one element of the model's dtype.
    #[serde(rename = "dtype size")]
    DtypeBytes,
    /// Steps without a collection.
    #[serde(rename = "steps")]
    Steps,
}

impl Quantity {
    /// The quantity as the subject of a sentence, and one of it.
    pub const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Layers => ("layers", "layer"),
            Self::Tokens => ("batch*seq", "token"),
            Self::DtypeBytes => ("dtype size", "byte of dtype"),
            Self::Steps => ("steps", "step"),
        }
    }
}

/// What was retained with one amount of a quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    pub amount: u64,
    pub retained: f64,
    pub predicted: Option<f64>,
}

/// A line through what was retained.
#[derive(Debug, Clone, PartialEq)]
pub struct Law {
    pub quantity: Quantity,
    pub fitted: Line,
    /// The line through what the case predicts for the same amounts, where it does.
    pub predicted: Option<Line>,
    /// How far the line misses the farthest point, in bytes.
    pub residual: f64,
    /// Amounts with the bytes that were retained.
    pub points: Vec<(u64, f64)>,
}

/// Bytes for each unit, and bytes besides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    pub per_unit: f64,
    pub fixed: f64,
}

/// A line that misses a point by more of the largest than this is none.
const APART: f64 = 0.01;

/// With fewer points every law fits.
const FEWEST_POINTS: usize = 3;

impl Law {
    /// Fits the points. None where there are fewer than three amounts.
    pub fn of(quantity: Quantity, points: &[Point]) -> Option<Self> {
        let mut amounts: Vec<u64> = points.iter().map(|point| point.amount).collect();
        amounts.sort_unstable();
        amounts.dedup();
        if amounts.len() < FEWEST_POINTS {
            return None;
        }
        let mut measured: Vec<(u64, f64)> =
            points.iter().map(|point| (point.amount, point.retained)).collect();
        measured.sort_by_key(|(amount, _)| *amount);
        measured.dedup();
        let declared: Option<Vec<(u64, f64)>> =
            points.iter().map(|point| Some((point.amount, point.predicted?))).collect();
        let fitted = Line::through(&measured)?;
        let residual = measured.iter().map(|(amount, bytes)| (bytes - fitted.at(*amount)).abs());
        let residual = residual.fold(0.0, f64::max);
        let predicted = declared.and_then(|declared| Line::through(&declared));
        Some(Self { quantity, fitted, predicted, residual, points: measured })
    }

    /// Whether the points lie on a line.
    pub fn is_linear(&self) -> bool {
        self.residual <= APART * self.points.iter().map(|(_, bytes)| bytes.abs()).fold(0.0, f64::max)
    }

    /// Whether a prediction says the same of every amount: to the byte where the points lie on the line to the byte.
    pub fn is_as_predicted(&self) -> bool {
        let Some(predicted) = self.predicted else { return false };
        self.points.iter().all(|(amount, bytes)| {
            let noise = if self.residual > 0.0 { self.residual.max(APART * bytes.abs()) } else { 0.5 };
            (self.fitted.at(*amount) - predicted.at(*amount)).abs() <= noise
        })
    }
}

impl Line {
    /// The line in the middle, which one point that lies elsewhere does not move.
    fn through(points: &[(u64, f64)]) -> Option<Self> {
        let narrow: Option<Vec<(u32, f64)>> =
            points.iter().map(|(amount, bytes)| Some((u32::try_from(*amount).ok()?, *bytes))).collect();
        let per_unit = theil_sen(&narrow?)?;
        let mut fixed: Vec<f64> =
            points.iter().map(|(amount, bytes)| bytes - per_unit * *amount as f64).collect();
        Some(Self { per_unit, fixed: median(&mut fixed)? })
    }

    fn at(self, amount: u64) -> f64 {
        self.fixed + self.per_unit * amount as f64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn points(amounts: &[u64], bytes: impl Fn(u64) -> f64) -> Vec<Point> {
        amounts
            .iter()
            .map(|amount| Point {
                amount: *amount,
                retained: bytes(*amount),
                predicted: Some(bytes(*amount)),
            })
            .collect()
    }

    #[test]
    fn two_amounts_are_no_law() {
        let line = |amount| 100.0 * amount as f64;
        assert_eq!(Law::of(Quantity::Layers, &points(&[1, 2], line)), None);
        assert_eq!(Law::of(Quantity::Layers, &points(&[1, 2, 2, 1], line)), None);
        assert!(Law::of(Quantity::Layers, &points(&[1, 2, 3], line)).is_some());
    }

    #[test]
    fn what_grows_with_the_square_is_told_as_no_line() {
        let law = Law::of(Quantity::Tokens, &points(&[16, 32, 64], |x| (x * x) as f64)).unwrap();
        assert!(!law.is_linear(), "{law:?}");
    }

    #[test]
    fn amounts_beyond_32_bits_have_no_law_and_do_not_panic() {
        assert_eq!(Law::of(Quantity::Tokens, &points(&[1, 2, u64::MAX], |_| 0.0)), None);
    }

    #[test]
    fn without_a_prediction_for_every_point_there_is_no_predicted_line() {
        let mut some = points(&[1, 2, 3], |x| x as f64);
        some[1].predicted = None;
        assert_eq!(Law::of(Quantity::Layers, &some).unwrap().predicted, None);
    }

    #[test]
    fn a_line_as_straight_as_another_is_not_as_predicted_where_it_is_another_line() {
        let mut twice = points(&[1, 2, 3], |x| (200 * x) as f64);
        twice.iter_mut().for_each(|point| point.predicted = Some(100.0 * point.amount as f64));
        assert!(!Law::of(Quantity::Steps, &twice).unwrap().is_as_predicted());
        let mut noisy = points(&[1, 2, 3], |x| (200 * x) as f64);
        noisy[1].retained += 2.0;
        assert!(Law::of(Quantity::Steps, &noisy).unwrap().is_as_predicted());
    }

    proptest! {
        #[test]
        fn whole_bytes_on_a_line_give_the_line_to_the_byte(
            per_unit in 0..1_u64 << 24, fixed in 0..1_u64 << 24,
            amounts in proptest::collection::hash_set(1..4096_u64, 3..8),
        ) {
            let amounts: Vec<u64> = amounts.into_iter().collect();
            let law = Law::of(Quantity::Layers, &points(&amounts, |x| (per_unit * x + fixed) as f64)).unwrap();
            prop_assert_eq!(law.fitted, Line { per_unit: per_unit as f64, fixed: fixed as f64 });
            prop_assert_eq!(law.predicted, Some(law.fitted));
            prop_assert_eq!(law.residual, 0.0);
            prop_assert!(law.is_linear());
            prop_assert!(law.is_as_predicted());
        }

        #[test]
        fn the_residual_is_at_least_what_one_point_lies_apart(
            per_unit in 0..1_u64 << 20, apart in 1..1_u64 << 20, which in 0..5_usize,
        ) {
            let mut five = points(&[1, 2, 3, 4, 5], |x| (per_unit * x) as f64);
            five[which].retained += apart as f64;
            let law = Law::of(Quantity::Layers, &five).unwrap();
            prop_assert!(law.residual > 0.0 && law.residual <= 5.0 * apart as f64, "{:?}", law);
        }
    }
}
