//! Who is told what happens during a run.

use torchleak_protocol::{ArmEvent, HostEvent};

use super::{ArmOutcome, CaseOutcome};

/// Is told of a run's progress. Every event is on disk before it is told.
pub trait Watcher {
    /// So many arms will run.
    fn planned(&mut self, arms: usize);
    /// The worker host reports something about itself.
    fn host(&mut self, event: &HostEvent);
    /// An arm reports something.
    fn event(&mut self, case: &str, arm: &str, steps: u32, event: &ArmEvent);
    /// An arm is over.
    fn arm_ended(&mut self, case: &str, arm: &ArmOutcome);
    /// A case is over. This is told at once; [`Watcher::concluded`] waits for the cases before it.
    fn decided(&mut self, _outcome: &CaseOutcome) {}
    /// A case is over, and so are those before it.
    fn concluded(&mut self, outcome: &CaseOutcome);
}
