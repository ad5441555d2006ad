//! Counts of what collections said.

use super::text::plain;
use super::thin::Thinned;

/// Most reasons for collections, and most paths, that are kept by name.
const MOST: usize = 8;

/// What collections freed, in bytes.
#[derive(Debug, Clone, Default)]
pub struct Freed {
    bytes: Thinned<i64>,
    /// The smallest and the largest.
    pub range: Option<(i64, i64)>,
    pub total: i128,
}

impl Freed {
    pub fn add(&mut self, bytes: i64) {
        self.bytes.push(bytes);
        let (low, high) = self.range.unwrap_or((bytes, bytes));
        self.range = Some((low.min(bytes), high.max(bytes)));
        self.total += i128::from(bytes);
    }

    pub fn count(&self) -> u64 {
        self.bytes.seen()
    }

    /// What a collection typically freed, the lower median: a number that was in the log.
    pub fn typical(&self) -> Option<i64> {
        let mut bytes = self.bytes.kept().to_vec();
        bytes.sort_unstable();
        bytes.get(bytes.len().saturating_sub(1) / 2).copied()
    }

    /// Whether all freed the same.
    pub fn is_constant(&self) -> bool {
        self.range.is_some_and(|(low, high)| low == high)
    }
}

/// The files in which cycles were drawn.
#[derive(Debug, Clone, Default)]
pub struct Cycles {
    pub count: u64,
    /// The first of them.
    pub paths: Vec<String>,
}

impl Cycles {
    pub fn add(&mut self, path: &str) {
        self.count += 1;
        if self.paths.len() < MOST {
            self.paths.push(path.to_owned());
        }
    }
}

/// Collections for one reason.
#[derive(Debug, Clone, PartialEq)]
pub struct Reason {
    pub reason: String,
    pub count: u64,
    pub seconds: f64,
    pub longest: f64,
}

/// The collections that torchtitan did and said so.
#[derive(Debug, Clone, Default)]
pub struct Collections {
    pub reasons: Vec<Reason>,
    /// How many were full ones, of torchtitan's debug mode.
    pub forced: u64,
    /// How many were periodic, which are of generation 1.
    pub periodic: u64,
}

impl Collections {
    /// Adds one; gives whether it was done between steps, which the one at the start is not.
    pub fn add(&mut self, reason: &str, seconds: f64) -> bool {
        let known = self.reasons.iter().position(|known| known.reason == reason);
        let index = known.unwrap_or_else(|| {
            let named = if self.reasons.len() < MOST { plain(reason) } else { "other reasons".to_owned() };
            self.reasons.iter().position(|known| known.reason == named).unwrap_or_else(|| {
                self.reasons.push(Reason { reason: named, count: 0, seconds: 0.0, longest: 0.0 });
                self.reasons.len() - 1
            })
        });
        let entry = &mut self.reasons[index];
        entry.count += 1;
        entry.seconds += seconds;
        entry.longest = entry.longest.max(seconds);
        if reason.starts_with("Force") {
            self.forced += 1;
        } else if !reason.starts_with("Initial") {
            self.periodic += 1;
        }
        !reason.starts_with("Initial")
    }

    /// How many there were between steps.
    pub const fn between_steps(&self) -> u64 {
        self.forced + self.periodic
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typical_freed_amount_is_not_moved_by_the_first() {
        let mut freed = Freed::default();
        for bytes in [512, 2_147_483_648, 2_147_483_648, 2_147_483_648] {
            freed.add(bytes);
        }
        assert_eq!(freed.typical(), Some(2_147_483_648));
        assert_eq!((freed.count(), freed.is_constant(), freed.range), (4, false, Some((512, 2_147_483_648))));
    }

    #[test]
    fn reasons_are_counted_and_their_number_is_bounded() {
        let mut collections = Collections::default();
        assert!(!collections.add("Initial GC collection", 0.5));
        assert!(collections.add("Performing periodic GC collection", 0.25));
        assert!(collections.add("Performing periodic GC collection", 0.5));
        let periodic = &collections.reasons[1];
        assert_eq!((periodic.count, periodic.seconds, periodic.longest), (2, 0.75, 0.5));
        for number in 0..1000 {
            collections.add(&format!("reason {number}"), 0.0);
        }
        assert_eq!(collections.reasons.len(), MOST + 1);
        assert_eq!(collections.reasons.iter().map(|reason| reason.count).sum::<u64>(), 1003);
    }
}
