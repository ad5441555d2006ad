//! What is kept of the events of one process.
//!
//! A run may have a million steps, so of each only the numbers are kept that a verdict needs; the files
//! have the rest.

use torchleak_protocol::{Failure, Memory, WatchBegan, WatchEvent, WatchFacts, WatchGarbage, WatchStep};

use crate::measure::Place;

/// Fewer bytes per step explain nothing.
const FLAT: u64 = 4096;

/// A process that wrote events.
#[derive(Debug, Default)]
pub struct Process {
    pub facts: Option<WatchFacts>,
    pub began: Option<WatchBegan>,
    pub samples: Vec<Sample>,
    pub garbage: Vec<GarbageSample>,
    /// The last look that shows memory in garbage, or else tensors.
    pub diagnosed: Option<WatchGarbage>,
    /// The last answer to the question what holds tensors that no collect freed.
    pub retained: Option<WatchGarbage>,
    /// Whether the planted cycle was detected, with the reason.
    pub control: Option<(bool, String)>,
    pub notes: Vec<String>,
    /// Whether it was stopped after the steps that were asked for.
    pub stopped: bool,
    /// Whether its interpreter exited in the ordinary way.
    pub ended: bool,
    /// The exception that ended it.
    pub failure: Option<Failure>,
}

/// The numbers of one step.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sample {
    pub step: u32,
    pub host: Option<u64>,
    pub device: Option<u64>,
    pub collected: Option<Collection>,
    /// Full collections that torchleak did not make.
    pub other_full: u64,
    /// Collections of any generation that torchleak did not make, and what they took and found.
    pub others: Others,
    /// What watching cost after the step before.
    pub watch_seconds: f64,
}

/// A collection that torchleak made.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Collection {
    pub generation: u8,
    pub host: Option<u64>,
    pub device: Option<u64>,
    pub seconds: f64,
}

/// Collections that torchleak did not make.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Others {
    pub collections: u64,
    pub objects: u64,
    pub seconds: f64,
    /// What the full ones freed, in bytes.
    pub freed_by_full: i64,
}

/// The numbers of one look at garbage, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GarbageSample {
    pub step: u32,
    pub over_steps: u32,
    pub objects: u64,
    pub host: u64,
    pub device: u64,
    /// Storages that the script still uses, in any memory.
    pub live: u64,
}

impl Process {
    /// Takes one event.
    pub fn push(&mut self, event: WatchEvent) {
        match event {
            WatchEvent::Imported(facts) => self.facts = Some(*facts),
            WatchEvent::Began(began) => self.began = Some(*began),
            WatchEvent::Step(step) => self.samples.push(Sample::of(&step)),
            WatchEvent::Garbage(garbage) => self.push_garbage(*garbage),
            WatchEvent::Control { detected, reason } => self.control = Some((detected, reason)),
            WatchEvent::Note { message } => self.notes.push(message),
            WatchEvent::Stopped { .. } => self.stopped = true,
            WatchEvent::Ended { failure, .. } => {
                self.ended = true;
                self.failure = failure;
            }
            WatchEvent::Unwatched { .. } => {}
        }
    }

    fn push_garbage(&mut self, garbage: WatchGarbage) {
        self.garbage.push(GarbageSample {
            step: garbage.step,
            over_steps: garbage.over_steps,
            objects: garbage.objects,
            host: Place::Host.census_bytes(&garbage.census),
            device: Place::Device.census_bytes(&garbage.census),
            live: garbage.live.values().map(|storages| storages.bytes).sum(),
        });
        if garbage.retained.is_some() {
            self.retained = Some(garbage.clone());
        }
        if garbage.cycles.is_some() && worth(&garbage) >= self.diagnosed.as_ref().and_then(worth) {
            self.diagnosed = Some(garbage);
        }
    }

    /// Whether all its steps were seen: it told of its end, and watching had not ended before.
    pub fn is_whole(&self) -> bool {
        (self.ended || self.stopped) && !self.notes.iter().any(|note| note.starts_with("watching ended"))
    }

    /// Where its memory is judged: on the GPU if it uses one.
    pub fn place(&self) -> Place {
        match self.samples.last() {
            Some(last) if last.device.is_some() => Place::Device,
            _ => Place::Host,
        }
    }

    /// `rank 0`, `rank 0, worker 2`.
    pub fn name(&self) -> String {
        match &self.began {
            Some(WatchBegan { rank, worker: Some(worker), .. }) => format!("rank {rank}, worker {worker}"),
            Some(began) => format!("rank {}", began.rank),
            None => "a process".to_owned(),
        }
    }
}

impl Sample {
    fn of(step: &WatchStep) -> Self {
        let mut others = Others::default();
        let mut other_full = 0;
        for found in &step.automatic {
            others.collections += found.collections;
            others.objects += found.objects;
            others.seconds += found.seconds;
            if found.generation == 2 {
                other_full += found.collections;
                others.freed_by_full += found.freed.unwrap_or(0);
            }
        }
        Self {
            step: step.step,
            host: step.memory.in_use,
            device: allocated(&step.memory),
            collected: step.collected.as_ref().map(|collected| Collection {
                generation: collected.generation,
                host: collected.memory.in_use,
                device: allocated(&collected.memory),
                seconds: collected.seconds,
            }),
            other_full,
            others,
            watch_seconds: step.watch_seconds,
        }
    }

    /// The level after the step and before any collection that torchleak made.
    pub fn level(&self, place: Place) -> Option<f64> {
        at(place, self.host, self.device)
    }
}

impl Collection {
    /// The level after the collection.
    pub fn level(&self, place: Place) -> Option<f64> {
        at(place, self.host, self.device)
    }
}

impl GarbageSample {
    /// Bytes of tensors in garbage.
    pub fn bytes(&self, place: Place) -> u64 {
        match place {
            Place::Host => self.host,
            Place::Device => self.device,
        }
    }
}

/// How much a look tells: a round tells more than a step of it, as long as both show memory worth a word.
fn worth(look: &WatchGarbage) -> Option<(bool, u32, u64)> {
    let bytes = look.cycles.as_ref()?.tensor_bytes;
    let is_much = bytes > FLAT * u64::from(look.over_steps);
    Some((is_much, if is_much { look.over_steps } else { 0 }, bytes))
}

fn at(place: Place, host: Option<u64>, device: Option<u64>) -> Option<f64> {
    match place {
        Place::Host => host,
        Place::Device => device,
    }
    .map(|bytes| bytes as f64)
}

fn allocated(memory: &Memory) -> Option<u64> {
    memory.device.as_ref().map(|device| device.allocated)
}
