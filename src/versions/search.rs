//! Where the answer changes along a history of candidates, found with few tests.
//!
//! The search is a pure function of what is known: [`next_step`] looks at the answers so far and says what to do next. So a
//! search is resumed by handing it the answers that were kept, and answers that someone else has found are as good as
//! its own.
//!
//! A candidate that cannot be tested is no answer in either direction. The search steps around it, first by one, then by
//! growing steps, because what breaks one commit or nightly breaks its neighbours too.

use serde::{Deserialize, Serialize};

/// What one candidate is to the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    Good,
    Bad,
    /// It cannot be tested, or the test does not tell.
    Unknown,
}

impl Answer {
    /// The word for it on the screen and in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Bad => "bad",
            Self::Unknown => "unknown",
        }
    }
}

/// Which change is searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Find {
    /// The older end is good and the newer one is bad.
    Introduced,
    /// The older end is bad and the newer one is good.
    Fixed,
}

impl Find {
    /// The word for it on the command line and in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Introduced => "introduced",
            Self::Fixed => "fixed",
        }
    }

    /// The answer before the change.
    pub fn before(self) -> Answer {
        match self {
            Self::Introduced => Answer::Good,
            Self::Fixed => Answer::Bad,
        }
    }

    /// The answer after the change.
    pub fn after(self) -> Answer {
        match self {
            Self::Introduced => Answer::Bad,
            Self::Fixed => Answer::Good,
        }
    }
}

/// What is known of one candidate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// What it showed when it was tested.
    pub first: Option<Answer>,
    /// What it showed when it was tested again at the end.
    pub again: Option<Answer>,
}

/// What to do next. Candidates are known by their place in the history, the oldest is 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Test this candidate, which was not tested before.
    Test(usize),
    /// Test this candidate again: it is one of the two that the conclusion stands on.
    Recheck(usize),
    /// Nothing more is to be learned.
    Done(Conclusion),
}

/// How a search ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conclusion {
    /// A history of fewer than two candidates has no two ends.
    TooFew,
    /// One of the ends cannot be told, so there is nothing to search between.
    EndUnknown(usize),
    /// Both ends show the same: nothing to find, or the history changes more than once between them.
    EndsAlike(Answer),
    /// The ends show the opposite of what was said of them.
    EndsSwapped,
    /// The answer changes somewhere between two candidates.
    Change(Change),
}

/// A change of the answer, as narrow as it can be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The last candidate with the answer before the change.
    pub before: usize,
    /// The first candidate with the answer after the change.
    pub after: usize,
    /// All candidates between the two, none of which could be told.
    pub untold: Vec<usize>,
    /// Candidates on the wrong side of the change: the history changes more than once.
    pub contradicting: Vec<usize>,
    /// Which of the two showed something else when it was tested again, and what.
    pub differed: Option<(usize, Answer)>,
}

impl Change {
    /// Whether the two are neighbours and showed the same twice.
    pub fn is_conclusive(&self) -> bool {
        self.untold.is_empty() && self.differed.is_none()
    }
}

/// What to do next, with so much known of each candidate.
pub fn next_step(find: Find, seen: &[Seen]) -> Step {
    let Some(last) = seen.len().checked_sub(1).filter(|last| *last > 0) else {
        return Step::Done(Conclusion::TooFew);
    };
    for end in [0, last] {
        match seen[end].first {
            None => return Step::Test(end),
            Some(Answer::Unknown) => return Step::Done(Conclusion::EndUnknown(end)),
            Some(_) => {}
        }
    }
    if seen[0].first == seen[last].first {
        return Step::Done(Conclusion::EndsAlike(seen[0].first.unwrap_or(Answer::Unknown)));
    }
    let Some((before, after)) = change(find, seen).filter(|_| seen[0].first == Some(find.before())) else {
        return Step::Done(Conclusion::EndsSwapped);
    };
    if let Some(index) = most_telling(seen, before, after) {
        return Step::Test(index);
    }
    conclude(find, seen, before, after)
}

/// How many tests are left, if all that is still untested can be tested.
pub fn tests_left(find: Find, seen: &[Seen]) -> usize {
    let rechecks = |ends: [usize; 2]| ends.iter().filter(|end| seen[**end].again.is_none()).count();
    match next_step(find, seen) {
        Step::Done(_) => 0,
        Step::Test(end) if end == 0 || end + 1 == seen.len() => {
            let ends = [0, seen.len() - 1].iter().filter(|end| seen[**end].first.is_none()).count();
            ends + halvings(seen.len().saturating_sub(2)) + 2
        }
        Step::Test(_) | Step::Recheck(_) => change(find, seen).map_or(0, |(before, after)| {
            let untested = (before + 1..after).filter(|index| seen[*index].first.is_none()).count();
            // The two at the end are only known once the search is over.
            if untested > 0 { halvings(untested) + 2 } else { rechecks([before, after]) }
        }),
    }
}

/// How often so many candidates can be halved until none is left.
fn halvings(candidates: usize) -> usize {
    (usize::BITS - candidates.leading_zeros()) as usize
}

/// The newest change in the direction that is searched for, among what was told: the two candidates on its sides.
///
/// There is more than one only if the history is not monotone. The newest is the one that still holds at the newer end,
/// and no later answer inside it makes another one the newest.
fn change(find: Find, seen: &[Seen]) -> Option<(usize, usize)> {
    let told = || (0..seen.len()).filter(|index| !matches!(seen[*index].first, None | Some(Answer::Unknown)));
    let pairs = told().zip(told().skip(1));
    pairs
        .filter(|(one, _)| seen[*one].first == Some(find.before()))
        .filter(|(_, other)| seen[*other].first == Some(find.after()))
        .last()
}

/// The untested candidate between the two that is worth most: the middle one, else one beside all that could not be
/// told, else one among that.
fn most_telling(seen: &[Seen], before: usize, after: usize) -> Option<usize> {
    let middle = before + (after - before) / 2;
    let untested = |index: &usize| seen[*index].first.is_none();
    if before < middle && untested(&middle) {
        return Some(middle);
    }
    let mut untold = (before + 1..after).filter(|index| !untested(index));
    let first = untold.next()?;
    let last = untold.next_back().unwrap_or(first);
    // Each step is as long as all that could not be told, so that a long stretch of it is left soon, but never goes past
    // the middle of what is left on its side, so that the two ends of the stretch are found by halving.
    let step = last - first + 1;
    let (older, newer) = (first - before - 1, after - last - 1);
    if older.max(newer) > 0 {
        return Some(if older >= newer {
            first - step.min(older.div_ceil(2))
        } else {
            last + step.min(newer.div_ceil(2))
        });
    }
    middle_of_the_longest_gap(seen, before, after)
}

/// The middle of the longest untested stretch between the two.
fn middle_of_the_longest_gap(seen: &[Seen], before: usize, after: usize) -> Option<usize> {
    // Each chunk begins with a tested candidate, and the untested ones that follow it are the stretch.
    let chunks = seen[before..after].chunk_by(|_, next| next.first.is_none());
    let gaps = chunks.scan(before, |next, chunk| {
        let start = *next;
        *next += chunk.len();
        Some((start, chunk.len()))
    });
    let longest = gaps.max_by_key(|(_, length)| *length).filter(|(_, length)| *length > 1);
    longest.map(|(start, length)| start + length / 2)
}

/// Tests the two sides again, and then says what is known.
fn conclude(find: Find, seen: &[Seen], before: usize, after: usize) -> Step {
    let mut differed = None;
    for side in [before, after] {
        match seen[side].again {
            None => return Step::Recheck(side),
            again if again == seen[side].first => {}
            Some(again) => {
                differed = Some((side, again));
                break;
            }
        }
    }
    let is = |index: &usize, answer| seen[*index].first == Some(answer);
    let early = (0..before).filter(|index| is(index, find.after()));
    let late = (after + 1..seen.len()).filter(|index| is(index, find.before()));
    Step::Done(Conclusion::Change(Change {
        before,
        after,
        untold: (before + 1..after).collect(),
        contradicting: early.chain(late).collect(),
        differed,
    }))
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
