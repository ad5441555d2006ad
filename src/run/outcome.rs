//! What a run of a case came to.

use std::path::PathBuf;

use torchleak_protocol::Device;

use super::LostFiles;
use super::ranks::RankOutcome;
use crate::case::{Prediction, Verdict};
use crate::cycles::{Diagnosis, Retained};
use crate::measure::Recording;
use crate::verdict::{Judgement, Native, Numbers};
use crate::worker::Ending;

/// One arm that was run, or was to be run.
#[derive(Debug, Clone)]
pub struct ArmOutcome {
    /// The arm's name, unique within its case; `garbage` is the diagnosis run.
    pub name: String,
    /// What its process reported, or rank 0 of several.
    pub recording: Recording,
    /// What the ranks from 1 on reported.
    pub peers: Vec<Recording>,
    pub ending: Option<Ending>,
    /// Why the arm did not start the way that the case asks.
    pub start_note: Option<String>,
}

/// A case with all that is known of it.
#[derive(Debug, Clone)]
pub struct CaseOutcome {
    pub name: String,
    pub device: Device,
    pub steps: u32,
    pub warmup: u32,
    pub prediction: Option<Prediction>,
    /// The verdict that the case expects in this environment, if it says anything about it.
    pub expected: Option<Verdict>,
    pub arms: Vec<ArmOutcome>,
    /// Why tensors stay, where a diagnosis run found any in garbage.
    pub diagnosis: Option<Diagnosis>,
    /// What holds tensors that no collect freed, where the verdict says that there are such.
    pub retained: Option<Retained>,
    /// What the native control said, where it was asked for.
    pub native: Option<Native>,
    pub outcome: Outcome,
    /// Seconds since the case before it was decided, or since the run began: those of the cases that ran together add up
    /// to their time, in which the first one pays the import of torch.
    pub seconds: f64,
    /// The judged ranks of a case that has several. All else here is of the case, its numbers of rank 0,
    /// its diagnosis of the first rank that has one.
    pub ranks: Vec<RankOutcome>,
    /// Where everything is kept. None when nothing was run.
    pub folder: Option<PathBuf>,
    /// What of it could not be written.
    pub lost: LostFiles,
}

/// How a case came out.
#[derive(Debug, Clone)]
pub enum Outcome {
    Judged(Judgement),
    /// The case cannot run on this device and nobody asked for it by name.
    Skipped {
        reason: String,
    },
    /// Ctrl-C came first.
    Interrupted,
}

impl ArmOutcome {
    /// The recordings of all ranks, in their order.
    pub fn recordings(&self) -> impl Iterator<Item = &Recording> {
        std::iter::once(&self.recording).chain(&self.peers)
    }

    /// The recording of a rank, if the arm has it.
    pub fn recording_mut(&mut self, rank: usize) -> Option<&mut Recording> {
        match rank.checked_sub(1) {
            None => Some(&mut self.recording),
            Some(peer) => self.peers.get_mut(peer),
        }
    }
}

impl CaseOutcome {
    /// The verdict. A case that was skipped or interrupted has none.
    pub fn verdict(&self) -> Option<Verdict> {
        match &self.outcome {
            Outcome::Judged(judgement) => Some(judgement.verdict),
            Outcome::Skipped { .. } | Outcome::Interrupted => None,
        }
    }

    /// One sentence that says why.
    pub fn reason(&self) -> &str {
        match &self.outcome {
            Outcome::Judged(judgement) => &judgement.reason,
            Outcome::Skipped { reason } => reason,
            Outcome::Interrupted => "interrupted before the verdict; what was recorded is kept",
        }
    }

    /// The numbers behind the verdict, if there are any.
    pub fn numbers(&self) -> Option<&Numbers> {
        match &self.outcome {
            Outcome::Judged(judgement) => judgement.numbers.as_ref(),
            Outcome::Skipped { .. } | Outcome::Interrupted => None,
        }
    }

    /// Whether the case came out as expected. Where the case expects nothing, any verdict will do,
    /// but there must be one; a skipped case breaks no expectation.
    pub fn is_ok(&self) -> bool {
        match (&self.outcome, self.expected) {
            (Outcome::Skipped { .. }, _) => true,
            (Outcome::Interrupted, _) => false,
            (Outcome::Judged(judgement), Some(expected)) => judgement.verdict == expected,
            (Outcome::Judged(judgement), None) => judgement.verdict.is_conclusive(),
        }
    }

    /// The arm of that name.
    pub fn arm(&self, name: &str) -> Option<&ArmOutcome> {
        self.arms.iter().find(|arm| arm.name == name)
    }
}
