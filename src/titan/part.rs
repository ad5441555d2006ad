//! The steps of one rank from its start, or from a restart, to the next.

use super::event::Point;
use super::thin::Thinned;

/// Most points that are kept of a part that is over.
const CLOSED: usize = 128;

/// What became of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    New,
    /// Another line for a step that was there: of another process, where lines have no rank.
    Repeated,
    /// It belongs to a new part: a job that was started again goes back to its last checkpoint.
    Restart,
}

/// The points of a part. Where a step has several lines the highest counts.
#[derive(Debug, Clone, Default)]
pub struct Part {
    points: Thinned<Point>,
    /// Held back until the next step begins, because more lines for it can come.
    last: Option<Point>,
    first: Option<Point>,
    highest: f64,
    /// After which steps there were collections.
    collected: Thinned<u32>,
}

impl Part {
    pub fn take(&mut self, point: Point) -> Taken {
        let Some(last) = &mut self.last else {
            (self.first, self.last, self.highest) = (Some(point), Some(point), point.memory);
            return Taken::New;
        };
        if point.step == last.step {
            *last = higher(*last, point);
            self.highest = self.highest.max(point.memory);
            return Taken::Repeated;
        }
        if point.step < last.step {
            // Processes without a rank write in blocks. What was written earlier is no restart.
            let is_late = point.at.zip(last.at).is_some_and(|(at, last)| at <= last);
            if !is_late {
                return Taken::Restart;
            }
            let kept = self.points.kept_mut();
            if let Ok(index) = kept.binary_search_by_key(&point.step, |kept| kept.step) {
                kept[index] = higher(kept[index], point);
            }
            self.highest = self.highest.max(point.memory);
            return Taken::Repeated;
        }
        self.points.push(*last);
        *last = point;
        self.highest = self.highest.max(point.memory);
        Taken::New
    }

    /// Gives back memory of a part that is over.
    pub fn close(&mut self) {
        self.points.close(CLOSED);
        self.collected.close(CLOSED);
    }

    /// Notes a collection.
    pub fn collected(&mut self) {
        if let Some(last) = &self.last {
            self.collected.push(last.step);
        }
    }

    /// The points that are kept for a fit, in the order of their steps, the last one always among them.
    pub fn points(&self) -> Vec<Point> {
        self.points.kept().iter().copied().chain(self.last).collect()
    }

    /// Of how many points those are.
    pub fn seen(&self) -> u64 {
        self.points.seen() + u64::from(self.last.is_some())
    }

    pub const fn first(&self) -> Option<&Point> {
        self.first.as_ref()
    }

    pub const fn last(&self) -> Option<&Point> {
        self.last.as_ref()
    }

    pub const fn highest(&self) -> f64 {
        self.highest
    }

    /// How many steps it spans, the first and the last included.
    pub fn span(&self) -> u64 {
        self.first.zip(self.last).map_or(0, |(first, last)| u64::from(last.step - first.step) + 1)
    }

    /// How many of the kept collections came at or after the one step and before the other.
    pub fn collections_between(&self, from: u32, to: u32) -> usize {
        self.collected.kept().iter().filter(|step| (from..to).contains(*step)).count()
    }

    /// Seconds that a step takes, by the moments of the first and the last line.
    pub fn seconds_per_step(&self) -> Option<f64> {
        let (first, last) = self.first.zip(self.last)?;
        let seconds = last.at? - first.at?;
        let steps = last.step.checked_sub(first.step).filter(|steps| *steps > 0)?;
        Some(seconds / f64::from(steps)).filter(|seconds| *seconds > 0.0)
    }
}

fn higher(one: Point, other: Point) -> Point {
    if other.memory > one.memory { other } else { one }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(step: u32, memory: f64, at: Option<f64>) -> Point {
        Point { step, memory, percent: None, tps: None, at }
    }

    #[test]
    fn several_lines_for_a_step_count_once_with_the_highest() {
        let mut part = Part::default();
        assert_eq!(part.take(point(1, 5.0, None)), Taken::New);
        assert_eq!(part.take(point(1, 7.0, None)), Taken::Repeated);
        assert_eq!(part.take(point(2, 6.0, None)), Taken::New);
        let levels: Vec<f64> = part.points().iter().map(|point| point.memory).collect();
        assert_eq!(levels, [7.0, 6.0]);
        assert_eq!((part.seen(), part.span(), part.highest()), (2, 2, 7.0));
    }

    #[test]
    fn a_step_back_is_a_restart_unless_it_was_written_earlier() {
        let mut part = Part::default();
        part.take(point(1, 5.0, Some(100.0)));
        part.take(point(2, 5.0, Some(200.0)));
        part.take(point(3, 5.0, Some(300.0)));
        assert_eq!(part.take(point(2, 9.0, Some(201.0))), Taken::Repeated);
        assert_eq!(part.points()[1].memory, 9.0);
        assert_eq!(part.take(point(2, 9.0, Some(400.0))), Taken::Restart);
        assert_eq!(part.take(point(2, 9.0, None)), Taken::Restart);
        assert_eq!(part.seconds_per_step(), Some(100.0));
    }
}
