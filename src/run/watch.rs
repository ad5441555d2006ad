//! Who is told what happens during a run.

use torchleak_protocol::{ArmEvent, HostEvent};

use super::{ArmOutcome, CaseOutcome};

/// Is told of a run's progress. Every event is on disk before it is told.
///
/// What a watcher does not hear itself goes to the one that it stands in front of, if there is one.
pub trait Watcher {
    /// The watcher behind this one.
    fn inner(&mut self) -> Option<&mut dyn Watcher> {
        None
    }

    /// So many arms will run.
    fn planned(&mut self, arms: usize) {
        if let Some(inner) = self.inner() {
            inner.planned(arms);
        }
    }

    /// The worker host reports something about itself.
    fn host(&mut self, event: &HostEvent) {
        if let Some(inner) = self.inner() {
            inner.host(event);
        }
    }

    /// An arm reports something.
    fn event(&mut self, case: &str, arm: &str, steps: u32, event: &ArmEvent) {
        if let Some(inner) = self.inner() {
            inner.event(case, arm, steps, event);
        }
    }

    /// An arm is over.
    fn arm_ended(&mut self, case: &str, arm: &ArmOutcome) {
        if let Some(inner) = self.inner() {
            inner.arm_ended(case, arm);
        }
    }

    /// A case is over. This is told at once; [`Watcher::concluded`] waits for the cases before it.
    fn decided(&mut self, outcome: &CaseOutcome) {
        if let Some(inner) = self.inner() {
            inner.decided(outcome);
        }
    }

    /// A case is over, and so are those before it.
    fn concluded(&mut self, outcome: &CaseOutcome) {
        if let Some(inner) = self.inner() {
            inner.concluded(outcome);
        }
    }
}
