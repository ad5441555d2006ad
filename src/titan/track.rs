//! What each rank of a log has shown so far, in memory that does not grow with the log.

use std::collections::{HashMap, VecDeque};

use super::event::{Event, Fact, Point, Rank};
use super::parse::read_line;
use super::part::{Part, Taken};
use super::tally::{Collections, Cycles, Freed};
use super::text::plain;

/// Most ranks that are kept. A log with more prefixes than this is no log of ranks.
const MOST_RANKS: usize = 4096;

/// Most parts of a rank, between restarts, that are kept: the last ones.
const MOST_PARTS: usize = 16;

/// Which step lines are kept for a table, beside those for the fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rows {
    /// A few that are evenly spaced.
    #[default]
    Spaced,
    /// The first, and then each that is at least so many steps after the one before.
    Every(u32),
    /// All of them. Memory grows with the log.
    All,
}

/// What one rank has shown.
#[derive(Debug, Clone)]
pub struct Track {
    /// None for lines without a prefix.
    pub rank: Option<Rank>,
    /// What ended with a restart, the oldest first.
    pub finished: VecDeque<Part>,
    /// Parts before those, of which there were too many.
    pub parts_left_out: u64,
    steps_left_out: u64,
    pub part: Part,
    pub step_lines: u64,
    /// Lines for a step that was there already, of another process without a rank.
    pub repeated: u64,
    pub unreadable: u64,
    pub freed: Freed,
    pub cycles: Cycles,
    pub collections: Collections,
    /// Collects that found no tensor.
    pub without_tensors: u64,
    /// How often the allocator had to give its cache back to go on.
    pub retries: u64,
    /// After which step an out-of-memory error was raised.
    pub out_of_memory: Option<Option<u32>>,
    /// What is kept for a table, where a few lines are not enough, each with the number of its part.
    pub rows: Vec<(u64, Point)>,
}

impl Track {
    fn new(rank: Option<Rank>) -> Self {
        Self {
            rank,
            finished: VecDeque::new(),
            parts_left_out: 0,
            steps_left_out: 0,
            part: Part::default(),
            step_lines: 0,
            repeated: 0,
            unreadable: 0,
            freed: Freed::default(),
            cycles: Cycles::default(),
            collections: Collections::default(),
            without_tensors: 0,
            retries: 0,
            out_of_memory: None,
            rows: Vec::new(),
        }
    }

    /// All parts, the oldest first.
    pub fn parts(&self) -> impl DoubleEndedIterator<Item = &Part> {
        self.finished.iter().chain(std::iter::once(&self.part))
    }

    /// The number of the present part.
    pub fn part_number(&self) -> u64 {
        self.parts_left_out + self.finished.len() as u64
    }

    /// How many steps all parts span.
    pub fn steps_spanned(&self) -> u64 {
        self.steps_left_out + self.parts().map(Part::span).sum::<u64>()
    }

    fn step(&mut self, point: Point, rows: Rows) {
        self.step_lines += 1;
        match self.part.take(point) {
            Taken::New => self.row(point, rows),
            Taken::Repeated => {
                self.repeated += 1;
                if let Some((_, row)) = self.rows.last_mut().filter(|(_, row)| row.step == point.step) {
                    row.memory = row.memory.max(point.memory);
                }
            }
            Taken::Restart => {
                let mut ended = std::mem::take(&mut self.part);
                ended.close();
                if self.finished.len() == MOST_PARTS {
                    self.steps_left_out += self.finished.pop_front().map_or(0, |part| part.span());
                    self.parts_left_out += 1;
                }
                self.finished.push_back(ended);
                self.part.take(point);
                self.row(point, rows);
            }
        }
    }

    fn row(&mut self, point: Point, rows: Rows) {
        let number = self.part_number();
        let is_due = match rows {
            Rows::Spaced => false,
            Rows::All => true,
            Rows::Every(every) => self
                .rows
                .last()
                .is_none_or(|(part, last)| *part != number || point.step.abs_diff(last.step) >= every),
        };
        if is_due {
            self.rows.push((number, point));
        }
    }

    fn take(&mut self, event: Event<'_>, rows: Rows) {
        match event {
            Event::Step(point) => self.step(point, rows),
            Event::Collected { reason, seconds } => {
                if self.collections.add(reason, seconds) {
                    self.part.collected();
                }
            }
            Event::Freed(bytes) => self.freed.add(bytes),
            Event::CycleFile(path) => self.cycles.add(&plain(path)),
            Event::NoTensors => self.without_tensors += 1,
            Event::Retries(times) => self.retries = self.retries.max(times),
            Event::OutOfMemory => {
                let step = self.part.last().map(|point| point.step);
                self.out_of_memory.get_or_insert(step);
            }
            Event::Unreadable => self.unreadable += 1,
            Event::Capacity(_) | Event::Fact(..) => {}
        }
    }
}

/// What the log tells of the model and the training, in whatever rank's words.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Facts {
    /// The device's memory in bytes.
    pub capacity: Option<f64>,
    pub layers: Option<u64>,
    pub dim: Option<u64>,
    pub local_batch: Option<u64>,
    pub sequence_length: Option<u64>,
    pub total_steps: Option<u64>,
}

/// A log as far as it was read.
#[derive(Debug, Default)]
pub struct Log {
    rows: Rows,
    pub lines: u64,
    tracks: Vec<Track>,
    numbers: HashMap<Option<Rank>, usize>,
    /// Events of ranks beyond the most that are kept.
    pub ranks_left_out: u64,
    pub facts: Facts,
}

impl Log {
    pub fn new(rows: Rows) -> Self {
        Self { rows, ..Self::default() }
    }

    /// Takes the next line, without its end.
    pub fn line(&mut self, line: &[u8]) {
        self.lines += 1;
        read_line(line, &mut |rank, event| self.take(rank, event));
    }

    fn take(&mut self, rank: Option<Rank>, event: Event<'_>) {
        match event {
            Event::Capacity(bytes) => self.facts.capacity = Some(bytes),
            Event::Fact(fact, value) => self.fact(fact, value),
            event => {
                let rows = self.rows;
                match self.track(rank) {
                    Some(track) => track.take(event, rows),
                    None => self.ranks_left_out += 1,
                }
            }
        }
    }

    fn fact(&mut self, fact: Fact, value: u64) {
        let place = match fact {
            Fact::Layers => &mut self.facts.layers,
            Fact::Dim => &mut self.facts.dim,
            Fact::LocalBatch => &mut self.facts.local_batch,
            Fact::SequenceLength => &mut self.facts.sequence_length,
            Fact::TotalSteps => &mut self.facts.total_steps,
        };
        *place = Some(value).filter(|value| *value > 0);
    }

    fn track(&mut self, rank: Option<Rank>) -> Option<&mut Track> {
        let number = match self.numbers.get(&rank) {
            Some(number) => *number,
            None if self.tracks.len() >= MOST_RANKS => return None,
            None => {
                self.tracks.push(Track::new(rank.clone()));
                self.numbers.insert(rank, self.tracks.len() - 1);
                self.tracks.len() - 1
            }
        };
        self.tracks.get_mut(number)
    }

    /// The ranks in order; lines without a rank come last.
    pub fn tracks(&self) -> Vec<&Track> {
        let mut tracks: Vec<&Track> = self.tracks.iter().collect();
        tracks.sort_by_key(|track| (track.rank.is_none(), track.rank.clone()));
        tracks
    }
}
