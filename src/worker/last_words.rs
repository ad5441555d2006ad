//! What the processes of a job said of their end, and what follows for the job.

use std::collections::BTreeSet;

use torchleak_protocol::{ArmEvent, Failure};

use super::Ending;

/// The last words of a job's ranks. A job without ranks has one, its only process.
#[derive(Debug)]
pub struct LastWords {
    ranks: u32,
    ended: BTreeSet<u32>,
    /// In the order in which they were heard.
    failed: Vec<(u32, Failure)>,
    /// Ranks that torchrun found gone, with the exit code or the signal.
    lost: Vec<(u32, Option<i32>, Option<i32>)>,
}

impl LastWords {
    pub fn new(ranks: u32) -> Self {
        Self { ranks, ended: BTreeSet::new(), failed: Vec::new(), lost: Vec::new() }
    }

    /// Takes note of an event of a rank, or of the launcher about it.
    pub fn hear(&mut self, rank: u32, event: &ArmEvent) {
        match event {
            ArmEvent::Ended { .. } => {
                self.ended.insert(rank);
            }
            ArmEvent::Failed(failure) => self.failed.push((rank, failure.clone())),
            ArmEvent::Lost { code, signal, .. } => self.lost.push((rank, *code, *signal)),
            _ => {}
        }
    }

    /// Whether every rank has done all its steps. What a rank does after that takes nothing back.
    pub fn is_done(&self) -> bool {
        self.ended.len() == self.ranks as usize
    }

    /// How the job ended by these words, if they say so.
    ///
    /// A rank that dies takes the collectives of the others along, which then raise exceptions of
    /// their own. So one that went without a word is the cause, else the first that raised.
    pub fn ending(&self) -> Option<Ending> {
        if self.is_done() {
            return Some(Ending::Done);
        }
        let silent = self.lost.iter().find(|(rank, ..)| self.is_silent(*rank));
        if let Some((rank, code, signal)) = silent {
            // The last lines of the output are those of the ranks that it left behind.
            return Some(self.on_rank(*rank, died(*code, *signal, Vec::new())?));
        }
        let (rank, failure) = self.failed.first()?;
        Some(self.on_rank(*rank, Ending::Failed(failure.clone())))
    }

    /// How the job ended whose process exited so, after words that do not tell.
    pub fn ending_of_exit(
        &self,
        code: Option<i32>,
        signal: Option<i32>,
        output: Vec<String>,
    ) -> Option<Ending> {
        let ending = died(code, signal, output)?;
        // torchrun takes a rank for done that exits with 0 in the middle of its steps.
        let silent = (0..self.ranks).find(|rank| self.is_silent(*rank)).filter(|_| code == Some(0));
        Some(silent.map_or(ending.clone(), |rank| self.on_rank(rank, ending)))
    }

    fn is_silent(&self, rank: u32) -> bool {
        !self.ended.contains(&rank) && !self.failed.iter().any(|(failed, _)| *failed == rank)
    }

    /// An ending of one rank as the job's.
    pub fn on_rank(&self, rank: u32, ending: Ending) -> Ending {
        if self.ranks == 1 { ending } else { Ending::OnRank { rank, ending: Box::new(ending) } }
    }
}

fn died(code: Option<i32>, signal: Option<i32>, output: Vec<String>) -> Option<Ending> {
    match (code, signal) {
        (_, Some(signal)) => Some(Ending::Killed { signal, output }),
        (Some(code), None) => Some(Ending::Exited { code, output }),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use torchleak_protocol::FailureKind;

    use super::*;

    fn raised(message: &str) -> ArmEvent {
        let message = message.to_owned();
        ArmEvent::Failed(Failure { kind: FailureKind::Exception, message, traceback: Vec::new() })
    }

    fn killed(rank: u32) -> ArmEvent {
        ArmEvent::Lost { rank, code: None, signal: Some(9) }
    }

    fn reason(ranks: u32, heard: &[(u32, ArmEvent)]) -> Option<String> {
        let mut words = LastWords::new(ranks);
        for (rank, event) in heard {
            words.hear(*rank, event);
        }
        words.ending().map(|ending| ending.reason())
    }

    #[test]
    fn a_job_is_done_when_every_rank_is() {
        let ended = |rank| (rank, ArmEvent::Ended { steps: 6 });
        assert_eq!(reason(1, &[ended(0)]).as_deref(), Some("all steps were done"));
        assert_eq!(reason(2, &[ended(0), ended(0)]), None);
        assert_eq!(
            reason(2, &[ended(1), ended(0), (1, raised("late"))]).as_deref(),
            Some("all steps were done")
        );
    }

    #[test]
    fn a_rank_that_went_without_a_word_is_the_cause_of_what_others_raise() {
        let told = reason(3, &[(0, raised("Connection closed")), (1, killed(1)), (0, killed(0))]).unwrap();
        assert_eq!(
            told,
            "failed on rank 1, which was killed by signal 9 (SIGKILL); the kernel's out-of-memory killer does this"
        );
    }

    #[test]
    fn among_ranks_that_raised_the_first_is_the_cause() {
        let heard = [(1, raised("ValueError: bad")), (0, raised("Connection closed")), (1, killed(1))];
        assert_eq!(reason(2, &heard).as_deref(), Some("failed on rank 1, which raised ValueError: bad"));
    }

    #[test]
    fn a_rank_that_leaves_with_0_in_the_middle_is_named() {
        let mut words = LastWords::new(2);
        words.hear(0, &ArmEvent::Ended { steps: 6 });
        let ending = words.ending_of_exit(Some(0), None, Vec::new()).unwrap();
        assert_eq!(ending.reason(), "failed on rank 1, which exited with code 0 before its last step");
    }
}
