//! What one arm reported.

use torchleak_protocol::{ArmEvent, ArmFacts, GarbageRecord, StepRecord, TorchCycles};

/// The events of one arm, put in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recording {
    pub facts: Option<ArmFacts>,
    /// The steps of a measured arm.
    pub steps: Vec<StepRecord>,
    /// The steps of a diagnosis run.
    pub garbage: Vec<GarbageRecord>,
    /// What torch's own code said of the garbage, in a diagnosis run.
    pub torch_cycles: Option<TorchCycles>,
}

impl Recording {
    /// Adds what an arm reported.
    pub fn push(&mut self, event: &ArmEvent) {
        match event {
            ArmEvent::Began(facts) => self.facts = Some(ArmFacts::clone(facts)),
            ArmEvent::Step(record) => self.steps.push(StepRecord::clone(record)),
            ArmEvent::Garbage(record) => self.garbage.push(GarbageRecord::clone(record)),
            ArmEvent::TorchCycles(cycles) => self.torch_cycles = Some(TorchCycles::clone(cycles)),
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
