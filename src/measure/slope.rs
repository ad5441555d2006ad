//! The growth of a series, by an estimator that a few odd steps cannot move.

/// The Theil-Sen estimator: the median of the slopes of all pairs of points.
///
/// Up to 29 % of the points may be anything without moving it far (Sen, "Estimates of the regression
/// coefficient based on Kendall's tau", 1968). `points` are (step, bytes); the result is bytes per
/// step. None with fewer than two different steps.
pub fn theil_sen(points: &[(u32, f64)]) -> Option<f64> {
    let mut slopes = Vec::with_capacity(points.len() * points.len().saturating_sub(1) / 2);
    for (index, (x, y)) in points.iter().enumerate() {
        for (other_x, other_y) in &points[index + 1..] {
            if x != other_x {
                slopes.push((other_y - y) / (f64::from(*other_x) - f64::from(*x)));
            }
        }
    }
    median(&mut slopes)
}

/// The median, or None of nothing. The order of `values` is changed.
pub fn median(values: &mut [f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    Some(if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(slope: f64, steps: u32) -> Vec<(u32, f64)> {
        (1..=steps).map(|step| (step, 1e9 + slope * f64::from(step))).collect()
    }

    #[test]
    fn a_line_has_its_own_slope() {
        assert_eq!(theil_sen(&line(1_048_576.0, 5)), Some(1_048_576.0));
    }

    #[test]
    fn fewer_than_two_steps_have_no_slope() {
        assert_eq!(theil_sen(&[]), None);
        assert_eq!(theil_sen(&[(1, 5.0)]), None);
        assert_eq!(theil_sen(&[(1, 5.0), (1, 6.0)]), None);
    }

    proptest! {
        #[test]
        fn one_spike_among_eight_steps_does_not_move_the_slope(
            slope in -1e6..1e8_f64, spike in 0..8_usize, height in -1e12..1e12_f64,
        ) {
            let mut points = line(slope, 8);
            points[spike].1 += height;
            let found = theil_sen(&points).unwrap();
            // Of the 28 pairs at most 7 are touched; the median stays among the others, which agree.
            prop_assert!((found - slope).abs() <= 1e-6 * slope.abs() + 1e-3, "{found} is not {slope}");
        }

        #[test]
        fn missing_steps_do_not_move_the_slope(slope in -1e6..1e8_f64, kept in proptest::sample::subsequence((1..=20_u32).collect::<Vec<_>>(), 2..=20)) {
            let points: Vec<_> = kept.into_iter().map(|step| (step, slope * f64::from(step))).collect();
            let found = theil_sen(&points).unwrap();
            prop_assert!((found - slope).abs() <= 1e-6 * slope.abs() + 1e-6);
        }

        #[test]
        fn noise_moves_the_slope_by_less_than_its_width(slope in 0.0..1e8_f64, noise in proptest::collection::vec(-1000.0..1000.0_f64, 6)) {
            let points: Vec<_> =
                line(slope, 6).into_iter().zip(&noise).map(|((step, bytes), more)| (step, bytes + more)).collect();
            prop_assert!((theil_sen(&points).unwrap() - slope).abs() <= 2000.0);
        }
    }
}
