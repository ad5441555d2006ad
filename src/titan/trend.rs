//! Whether a series of peaks goes up, and by how much a step.

use super::event::Point;
use crate::measure::theil_sen;

/// The log's memory has two decimals of GiB, so that two equal levels can differ by one of these.
pub const RESOLUTION: f64 = 0.01 * (1_u64 << 30) as f64;

/// With fewer lines the test below cannot reach its level, and every line must lie above the one before.
const FEW: usize = 6;

/// With fewer lines the two halves are not looked at apart.
const HALVES: usize = 8;

/// The standard normal quantile of a one-sided test at 1 %.
const ONE_PERCENT: f64 = 2.326;

/// What a series of peaks does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Trend {
    /// It goes up to the end, since that step, by so many bytes per step.
    Grows { slope: f64, since: u32 },
    /// It went up by so many bytes, and no more since that step.
    Levelled { rise: f64, since: u32 },
    /// It stays between the lowest and the highest, which are so far apart.
    Flat { within: f64 },
    /// It went up, and there are too few lines to tell a trend from a step.
    TooFew { rise: f64 },
}

/// Looks at points that are in the order of their steps, warm-up excluded.
pub fn trend(points: &[Point]) -> Trend {
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return Trend::TooFew { rise: 0.0 };
    };
    let low = points.iter().map(|point| point.memory).fold(f64::INFINITY, f64::min);
    let high = points.iter().map(|point| point.memory).fold(f64::NEG_INFINITY, f64::max);
    let slope = slope(points).unwrap_or(0.0);
    let rise = slope * f64::from(last.step - first.step);
    if points.len() < 4 {
        return few(points, slope, high - low);
    }
    if rise <= 2.0 * RESOLUTION || !goes_up(points) {
        return Trend::Flat { within: high - low };
    }
    let (early, late) = points.split_at(points.len() / 2);
    if points.len() < HALVES {
        return if rises(points) >= 3 {
            Trend::Grows { slope, since: first.step }
        } else {
            Trend::Levelled { rise: last.memory - first.memory, since: settled(points) }
        };
    }
    let [early_rises, late_rises] = [early, late].map(rises);
    let late_slope = self::slope(late).unwrap_or(0.0);
    if late_rises < 2 || late_slope < 0.1 * slope {
        Trend::Levelled { rise: high - first.memory, since: settled(points) }
    } else if early_rises < 2 {
        let since = points[points.len() / 2 - 1].step;
        Trend::Grows { slope: late_slope, since }
    } else {
        Trend::Grows { slope, since: first.step }
    }
}

/// Two or three lines show only what is large: at least 1 % of the level, and 0.1 GiB.
fn few(points: &[Point], slope: f64, spread: f64) -> Trend {
    let rise = points[points.len() - 1].memory - points[0].memory;
    let always = points.windows(2).all(|pair| pair[1].memory > pair[0].memory);
    if points.len() > 1 && always && rise > (0.01 * points[0].memory).max(10.0 * RESOLUTION) {
        Trend::Grows { slope, since: points[0].step }
    } else if points.len() == 3 && spread <= 1.5 * RESOLUTION {
        Trend::Flat { within: spread }
    } else {
        Trend::TooFew { rise }
    }
}

fn slope(points: &[Point]) -> Option<f64> {
    let pairs: Vec<(u32, f64)> = points.iter().map(|point| (point.step, point.memory)).collect();
    theil_sen(&pairs)
}

/// The Mann-Kendall test: whether later lines lie above earlier ones more often than chance would have it, at 1 %. It
/// goes with the Theil-Sen slope as that does not depend on how noise is distributed.
fn goes_up(points: &[Point]) -> bool {
    if points.len() < FEW {
        return points.windows(2).all(|pair| pair[1].memory > pair[0].memory);
    }
    let mut score = 0_i64;
    for (index, one) in points.iter().enumerate() {
        for other in &points[index + 1..] {
            score += match other.memory.total_cmp(&one.memory) {
                std::cmp::Ordering::Greater => 1,
                std::cmp::Ordering::Equal => 0,
                std::cmp::Ordering::Less => -1,
            };
        }
    }
    let term = |count: usize| {
        let count = count as f64;
        count * (count - 1.0) * (2.0 * count + 5.0) / 18.0
    };
    // Equal levels, of which a rounded log has many, carry no order.
    let mut levels: Vec<f64> = points.iter().map(|point| point.memory).collect();
    levels.sort_by(f64::total_cmp);
    let ties: f64 = levels.chunk_by(|one, other| one == other).map(|tied| term(tied.len())).sum();
    let variance = term(points.len()) - ties;
    variance > 0.0 && (score - 1) as f64 / variance.sqrt() > ONE_PERCENT
}

/// How often the highest level so far was passed by more than the log's rounding. One jump is one rise, however many
/// lines lie on either side of it, and a leak that the allocator serves in large segments has many.
fn rises(points: &[Point]) -> usize {
    let mut level = f64::INFINITY;
    let mut rises = 0;
    for point in points {
        if level.is_infinite() {
            level = point.memory;
        } else if point.memory > level + 1.5 * RESOLUTION {
            rises += 1;
            level = point.memory;
        }
    }
    rises
}

/// The step of the last rise.
fn settled(points: &[Point]) -> u32 {
    let mut level = f64::NEG_INFINITY;
    let mut since = points.first().map_or(0, |point| point.step);
    for point in points {
        if point.memory > level + 1.5 * RESOLUTION {
            level = point.memory;
            since = point.step;
        }
    }
    since
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    use super::*;

    const GIB: f64 = (1_u64 << 30) as f64;

    fn points(levels: impl IntoIterator<Item = f64>) -> Vec<Point> {
        let point = |(index, gib): (usize, f64)| Point {
            step: 10 * (index as u32 + 1),
            // As the log rounds it.
            memory: (gib * 100.0).round() / 100.0 * GIB,
            percent: None,
            tps: None,
            at: None,
        };
        levels.into_iter().enumerate().map(point).collect()
    }

    #[test]
    fn two_lines_show_what_is_large() {
        let Trend::Grows { slope, since } = trend(&points([68.72, 90.29])) else { panic!("it grows") };
        assert!((slope / GIB - 2.157).abs() < 1e-9, "{slope}");
        assert_eq!(since, 10);
        assert!(matches!(trend(&points([49.66, 49.70])), Trend::TooFew { .. }));
        assert!(matches!(trend(&points([49.66])), Trend::TooFew { .. }));
        assert!(matches!(trend(&points([])), Trend::TooFew { .. }));
        assert!(matches!(trend(&points([49.66, 49.66, 49.66])), Trend::Flat { .. }));
    }

    #[test]
    fn a_plateau_is_flat() {
        assert_eq!(trend(&points(vec![49.66; 40])), Trend::Flat { within: 0.0 });
    }

    #[test]
    fn one_jump_is_no_growth() {
        for at in 1..29 {
            let levels = (0..30).map(|index| if index < at { 49.0 } else { 53.0 });
            let found = trend(&points(levels));
            assert!(!matches!(found, Trend::Grows { .. }), "a jump before line {at}: {found:?}");
        }
    }

    #[test]
    fn what_fills_up_and_stops_has_levelled_off() {
        let levels = (0..40).map(|index| 40.0 + f64::from(index.min(15)));
        assert_eq!(trend(&points(levels)), Trend::Levelled { rise: 15.0 * GIB, since: 160 });
    }

    #[test]
    fn what_begins_to_grow_late_grows_since_then() {
        let levels = (0..40).map(|index| 40.0 + f64::from((index - 20).max(0)));
        let Trend::Grows { slope, since } = trend(&points(levels)) else { panic!("it grows") };
        assert_eq!(since, 200);
        assert!((slope / GIB - 0.1).abs() < 1e-9, "{slope}");
    }

    #[test]
    fn a_leak_that_the_allocator_serves_in_segments_grows() {
        // 2 MiB per step, in segments of 512 MiB, a line for each 10 steps.
        let levels = (0..200).map(|index| 40.0 + 0.5 * (f64::from(index * 20) / 512.0).floor());
        let Trend::Grows { slope, .. } = trend(&points(levels)) else { panic!("it grows") };
        assert!((slope / GIB * 1024.0 - 2.0).abs() < 0.1, "{slope}");
    }

    #[test]
    fn noise_alone_grows_less_often_than_the_test_allows() {
        // Always the same draws: what errs in few of a hundred would fail by chance now and then.
        let mut runner = TestRunner::deterministic();
        let noise = proptest::collection::vec(-1.0..1.0_f64, 12..60);
        let grows = |levels: Vec<f64>| matches!(trend(&points(levels)), Trend::Grows { .. });
        let wrong = (0..2000).filter(|_| {
            let drawn = noise.new_tree(&mut runner).unwrap().current();
            grows(drawn.iter().map(|noise| 50.0 + noise).collect())
        });
        let wrong = wrong.count();
        assert!(wrong <= 20, "{wrong} of 2000 are more than 1 %");
    }

    proptest! {
        #[test]
        fn growth_above_the_noise_is_found_with_its_slope(
            slope in 0.1..3.0_f64, noise in proptest::collection::vec(-0.05..0.05_f64, 4..60),
        ) {
            let levels = noise.iter().enumerate().map(|(index, noise)| 20.0 + 10.0 * slope * index as f64 + noise);
            let found = trend(&points(levels));
            let Trend::Grows { slope: found, .. } = found else { panic!("{found:?}") };
            prop_assert!((found / GIB - slope).abs() <= 0.012, "{} is not {slope}", found / GIB);
        }
    }
}
