//! What one arm reported.

use torchleak_protocol::{ArmEvent, ArmFacts, GarbageRecord, RoundGarbage, StepRecord, TorchCycles};

/// The events of one arm, put in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recording {
    pub facts: Option<ArmFacts>,
    /// The steps of a measured arm.
    pub steps: Vec<StepRecord>,
    /// The steps of a diagnosis run.
    pub garbage: Vec<GarbageRecord>,
    /// What further steps left together, in a diagnosis run whose last step left no memory in garbage.
    pub round: Option<RoundGarbage>,
    /// What torch's own code said of the garbage, in a diagnosis run.
    pub torch_cycles: Option<TorchCycles>,
    /// What came of the cycles that a rank planted in its own process.
    pub planted: Option<Planted>,
}

/// Whether planted cycles were detected.
#[derive(Debug, Clone, PartialEq)]
pub struct Planted {
    pub detected: bool,
    /// The figures, in words.
    pub reason: String,
}

impl Recording {
    /// Adds what an arm reported.
    pub fn push(&mut self, event: &ArmEvent) {
        match event {
            ArmEvent::Began(facts) => self.facts = Some(ArmFacts::clone(facts)),
            ArmEvent::Step(record) => self.steps.push(StepRecord::clone(record)),
            ArmEvent::Garbage(record) => self.garbage.push(GarbageRecord::clone(record)),
            ArmEvent::Round(garbage) => self.round = Some(RoundGarbage::clone(garbage)),
            ArmEvent::TorchCycles(cycles) => self.torch_cycles = Some(TorchCycles::clone(cycles)),
            ArmEvent::Control { detected, reason } => {
                self.planted = Some(Planted { detected: *detected, reason: reason.clone() });
            }
            ArmEvent::Failed(_) | ArmEvent::Ended { .. } | ArmEvent::Lost { .. } => {}
        }
    }

    /// The loss of each step.
    pub fn losses(&self) -> Vec<(u32, Loss<'_>)> {
        let measured = self.steps.iter().map(|record| (record.step, Loss::new(record.loss, &record.loss_is)));
        let diagnosed =
            self.garbage.iter().map(|record| (record.step, Loss::new(record.loss, &record.loss_is)));
        measured.chain(diagnosed).collect()
    }

    /// The first step after `warmup` during which something else than torchleak collected.
    pub fn foreign_collection(&self, warmup: u32) -> Option<u32> {
        let measured = self.steps.iter().map(|record| (record.step, record.foreign_collections));
        let diagnosed = self.garbage.iter().map(|record| (record.step, record.foreign_collections));
        measured.chain(diagnosed).find(|(step, count)| *step > warmup && *count > 0).map(|(step, _)| step)
    }
}

/// A loss that can be compared bit for bit, also where it is no number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss<'a> {
    /// The program gives none.
    Missing,
    /// The bits of a finite one.
    Finite(u64),
    /// `nan`, `inf` or `-inf`.
    Other(&'a str),
}

impl<'a> Loss<'a> {
    fn new(loss: Option<f64>, other: &'a Option<String>) -> Self {
        match (loss, other) {
            (Some(loss), _) => Self::Finite(loss.to_bits()),
            (None, Some(word)) => Self::Other(word),
            (None, None) => Self::Missing,
        }
    }
}

impl std::fmt::Display for Loss<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing => formatter.write_str("missing"),
            Self::Finite(bits) => f64::from_bits(*bits).fmt(formatter),
            Self::Other(word) => formatter.write_str(word),
        }
    }
}
