//! What one arm reported.

use serde::{Deserialize, Serialize};
use torchleak_protocol::{ArmEvent, ArmFacts, GarbageRecord, StepRecord};

/// Which run of a case a recording is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArmName {
    Uncollected,
    Collected,
    Periodic,
    /// The diagnosis run: garbage is saved and looked at, memory is not measured.
    Garbage,
}

impl ArmName {
    /// The word in reports, file names and events.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Uncollected => "uncollected",
            Self::Collected => "collected",
            Self::Periodic => "periodic",
            Self::Garbage => "garbage",
        }
    }
}

impl std::fmt::Display for ArmName {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.pad(self.as_str())
    }
}

/// The events of one arm, put in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recording {
    pub facts: Option<ArmFacts>,
    /// The steps of a measured arm.
    pub steps: Vec<StepRecord>,
    /// The steps of a diagnosis run.
    pub garbage: Vec<GarbageRecord>,
}

impl Recording {
    /// Adds what an arm reported.
    pub fn push(&mut self, event: &ArmEvent) {
        match event {
            ArmEvent::Began(facts) => self.facts = Some(ArmFacts::clone(facts)),
            ArmEvent::Step(record) => self.steps.push(StepRecord::clone(record)),
            ArmEvent::Garbage(record) => self.garbage.push(GarbageRecord::clone(record)),
            ArmEvent::Failed(_) | ArmEvent::Ended { .. } => {}
        }
    }

    /// The loss of each step.
    pub fn losses(&self) -> Vec<(u32, Option<f64>)> {
        let measured = self.steps.iter().map(|record| (record.step, record.loss));
        let diagnosed = self.garbage.iter().map(|record| (record.step, record.loss));
        measured.chain(diagnosed).collect()
    }
}
