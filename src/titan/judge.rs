//! From what a log has shown to numbers and a word for each rank.
//!
//! Architecture invariant: a pure function of a [`Log`].

use super::event::{Point, Rank};
use super::part::Part;
use super::track::{Facts, Log, Track};
use super::trend::{Trend, trend};
use crate::measure::median;

/// Of how many steps after a part's first line the lines are dropped, where enough others remain.
const WARMUP: u32 = 9;

/// How many lines are enough.
const ENOUGH: usize = 8;

/// With fewer step lines a stream without a rank, among ranks, is what tearing left of a prefix.
const TORN: u64 = 3;

/// What the user says of the log.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Drops the lines of so many steps after a part's first line, in place of the rule.
    pub warmup: Option<u32>,
    /// Layers of the model, where the log does not tell them.
    pub layers: Option<u64>,
}

/// What can be said of memory by a log alone. It proves no cycle, so these are not the words of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Word {
    Inconclusive,
    Flat,
    Grows,
}

impl Word {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Inconclusive => "inconclusive",
            Self::Flat => "flat",
            Self::Grows => "grows",
        }
    }
}

/// Which lines a trend was taken of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fit {
    /// The steps of the first and the last of them.
    pub from: u32,
    pub to: u32,
    /// How many.
    pub lines: usize,
    /// Of how many that there were after the warm-up. More than `lines` in a long log, of which evenly spaced ones are
    /// kept.
    pub thinned: bool,
}

/// A part of a rank, between restarts.
#[derive(Debug, Clone)]
pub struct JudgedPart {
    pub trend: Trend,
    pub fit: Option<Fit>,
    pub first: Point,
    pub last: Point,
    pub highest: f64,
    pub lines: u64,
    pub seconds_per_step: Option<f64>,
    /// Collections that came while it was growing, before the last half of the fit.
    pub outlived: usize,
}

impl JudgedPart {
    pub const fn word(&self) -> Word {
        match self.trend {
            Trend::Grows { .. } => Word::Grows,
            Trend::Flat { .. } | Trend::Levelled { .. } => Word::Flat,
            Trend::TooFew { .. } => Word::Inconclusive,
        }
    }

    /// Bytes per step, where it grows.
    pub const fn growth(&self) -> Option<f64> {
        match self.trend {
            Trend::Grows { slope, .. } => Some(slope),
            _ => None,
        }
    }
}

/// When memory is likely to be used up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exhaustion {
    /// The device's memory and what is left of it, in bytes.
    pub capacity: f64,
    pub left: f64,
    /// So many steps after the last line.
    pub steps: u64,
    pub seconds: Option<Seconds>,
    /// Whether the run is over by then, where the log tells its length.
    pub after_the_end: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seconds {
    pub seconds: f64,
    /// By tokens per second, because the lines have no time. It takes every process for a data-parallel one.
    pub by_tps: bool,
}

/// One rank with its numbers.
#[derive(Debug)]
pub struct JudgedRank<'a> {
    pub track: &'a Track,
    pub parts: Vec<JudgedPart>,
    /// The part that the verdict is of: the last of which anything can be said. None without a step line.
    pub judged: Option<usize>,
    pub word: Word,
    pub exhaustion: Option<Exhaustion>,
    /// Bytes that collects of this rank freed, per step of it.
    pub freed_per_step: Option<f64>,
    /// The rank whose collects reported what they freed: this one, or else the one that did.
    pub reporter: Option<&'a Track>,
}

impl JudgedRank<'_> {
    pub fn part(&self) -> Option<&JudgedPart> {
        self.parts.get(self.judged?)
    }

    pub fn growth(&self) -> Option<f64> {
        self.part().and_then(JudgedPart::growth)
    }

    /// What a user would call the leak, in bytes per step: what memory grows by, or what collects keep it from.
    pub fn leak(&self) -> f64 {
        self.growth().unwrap_or(0.0).max(self.freed_per_step.unwrap_or(0.0))
    }
}

/// All of a log.
#[derive(Debug)]
pub struct Judged<'a> {
    pub log: &'a Log,
    pub ranks: Vec<JudgedRank<'a>>,
    pub word: Word,
    pub facts: Facts,
    /// Step lines whose rank was torn off, and which are in none of the ranks.
    pub without_rank: u64,
}

impl Judged<'_> {
    pub fn step_lines(&self) -> u64 {
        self.log.tracks().iter().map(|track| track.step_lines).sum()
    }

    /// The rank that the whole is told by: the one that grows most, else the one with most lines.
    pub fn worst(&self) -> Option<&JudgedRank<'_>> {
        self.ranks.iter().reduce(|worst, rank| {
            let key = |rank: &JudgedRank<'_>| (rank.word, rank.growth().unwrap_or(0.0));
            let ((word, growth), (other_word, other_growth)) = (key(worst), key(rank));
            let more = other_word.cmp(&word).then(other_growth.total_cmp(&growth));
            if more.then(rank.track.step_lines.cmp(&worst.track.step_lines)).is_gt() { rank } else { worst }
        })
    }
}

/// Judges a log as far as it was read.
pub fn judge<'a>(log: &'a Log, options: &Options) -> Judged<'a> {
    let facts = Facts { layers: options.layers.or(log.facts.layers), ..log.facts };
    let tracks = log.tracks();
    let has_ranks = tracks.iter().any(|track| track.rank.is_some() && track.step_lines > 0);
    let is_torn = |track: &Track| has_ranks && track.rank.is_none() && track.step_lines < TORN;
    let mut reporter = None;
    for track in &tracks {
        if track.freed.count() > 0 && reporter.is_none() {
            reporter = Some(*track);
        }
    }
    let span = tracks.iter().map(|track| track.steps_spanned()).max().unwrap_or(0);
    let ranks: Vec<JudgedRank<'a>> = tracks
        .iter()
        .filter(|track| !is_torn(track) || track.freed.count() > 0)
        .map(|track| judge_rank(track, reporter, span, &facts, options))
        .collect();
    let most = ranks.iter().map(|rank| rank.track.step_lines).max().unwrap_or(0);
    // A rank of which hardly a line came through does not put the others in doubt.
    let counts = |rank: &&JudgedRank<'_>| rank.track.step_lines > 0 && rank.track.step_lines >= most / 2;
    let word = if ranks.iter().any(|rank| rank.word == Word::Grows) {
        Word::Grows
    } else {
        ranks.iter().filter(counts).map(|rank| rank.word).min().unwrap_or(Word::Inconclusive)
    };
    let without_rank = tracks.iter().filter(|track| is_torn(track)).map(|track| track.step_lines).sum();
    Judged { log, ranks, word, facts, without_rank }
}

fn judge_rank<'a>(
    track: &'a Track,
    reporter: Option<&'a Track>,
    span: u64,
    facts: &Facts,
    options: &Options,
) -> JudgedRank<'a> {
    let parts: Vec<JudgedPart> = track.parts().filter_map(|part| judge_part(part, options.warmup)).collect();
    let conclusive = parts.iter().rposition(|part| part.word() != Word::Inconclusive);
    let judged = conclusive.or(parts.len().checked_sub(1));
    let word = judged.and_then(|index| parts.get(index)).map_or(Word::Inconclusive, JudgedPart::word);
    let steps = match track.steps_spanned() {
        0 => span,
        steps => steps,
    };
    let freed = track.freed.total.max(0) as f64;
    JudgedRank {
        freed_per_step: (track.freed.count() > 0 && steps > 0).then(|| freed / steps as f64),
        exhaustion: judged.and_then(|index| exhaustion(track, &parts[index], facts)),
        reporter: if track.freed.count() > 0 { Some(track) } else { reporter },
        track,
        parts,
        judged,
        word,
    }
}

fn judge_part(part: &Part, warmup: Option<u32>) -> Option<JudgedPart> {
    let (first, last) = (*part.first()?, *part.last()?);
    let points = part.points();
    let warm = warm(&points, warmup);
    let trend = trend(warm);
    let fit = warm.first().zip(warm.last()).map(|(from, to)| Fit {
        from: from.step,
        to: to.step,
        lines: warm.len(),
        thinned: points.len() as u64 != part.seen(),
    });
    let outlived = warm
        .get(warm.len() / 2)
        .zip(fit)
        .map_or(0, |(middle, fit)| part.collections_between(fit.from, middle.step));
    Some(JudgedPart {
        trend,
        fit,
        first,
        last,
        highest: part.highest(),
        lines: part.seen(),
        seconds_per_step: part.seconds_per_step(),
        outlived,
    })
}

/// The points after the warm-up. The first line's peak is one from before the optimizer's first step; and the allocator
/// takes a few steps until it has seen every shape.
fn warm(points: &[Point], warmup: Option<u32>) -> &[Point] {
    let Some(first) = points.first() else { return points };
    let after = |steps: u32| &points[points.partition_point(|point| point.step - first.step < steps)..];
    if let Some(steps) = warmup {
        return after(steps);
    }
    let warm = after(WARMUP);
    if warm.len() >= ENOUGH { warm } else { &points[1..] }
}

fn exhaustion(track: &Track, part: &JudgedPart, facts: &Facts) -> Option<Exhaustion> {
    let growth = part.growth().filter(|growth| *growth > 0.0)?;
    let capacity = facts.capacity.or_else(|| capacity(part))?;
    let left = (capacity - part.last.memory).max(0.0);
    let steps = (left / growth).floor();
    let seconds = part.seconds_per_step.map(|seconds| (seconds, false));
    let by_tps = || {
        let tokens = facts.local_batch?.checked_mul(facts.sequence_length?)?;
        let mut tps: Vec<f64> = track.part.points().iter().filter_map(|point| point.tps).collect();
        Some((tokens as f64 / median(&mut tps)?, true))
    };
    let seconds = seconds.or_else(by_tps);
    // Beyond that it is no forecast, and `as` gives the largest number there is.
    let steps = steps as u64;
    Some(Exhaustion {
        capacity,
        left,
        steps,
        seconds: seconds.map(|(each, by_tps)| Seconds { seconds: each * steps as f64, by_tps }),
        after_the_end: facts
            .total_steps
            .map(|total| u64::from(part.last.step).saturating_add(steps) >= total),
    })
}

/// The device's memory, of the line with the largest percentage, whose rounding matters least.
fn capacity(part: &JudgedPart) -> Option<f64> {
    let by = |point: &Point| Some((point.percent?, point.memory));
    let (percent, memory) =
        [part.first, part.last].iter().filter_map(by).max_by(|one, other| one.0.total_cmp(&other.0))?;
    Some(memory / (percent / 100.0))
}

/// How a rank is called.
pub fn label(rank: Option<&Rank>) -> String {
    rank.map_or_else(|| "lines without a rank".to_owned(), Rank::to_string)
}
