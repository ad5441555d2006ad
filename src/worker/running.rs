//! A job whose child runs, and how it came to its end.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use torchleak_protocol::ArmEvent;

use super::last_words::LastWords;
use super::pipes::Tail;
use super::{Ending, Job};

/// How long the pipes of a process that is gone are still read.
pub const DRAIN: Duration = Duration::from_secs(2);

/// A job whose command was sent.
pub struct Running {
    pub job: Job,
    pub pid: Option<u32>,
    /// What came, by rank, before the host said that the child runs: they write to different pipes.
    pub early: Vec<(u32, ArmEvent)>,
    /// When it was sent, then when its child started.
    pub since: Instant,
    /// What is known of its end before its process is gone.
    pub words: LastWords,
    /// When the process was reported gone, and how.
    pub exited: Option<(Instant, Option<i32>, Option<i32>)>,
    /// How many of its event pipes are not closed yet.
    pub open_pipes: u32,
    /// When it was killed for a reason of ours.
    pub stopped: Option<Instant>,
    /// The reason, if it outweighs what its ranks said until then.
    pub reason: Option<Ending>,
    /// The half message with which it ended.
    pub cut: Option<String>,
    pub tail: Tail,
    pub reader: JoinHandle<()>,
}

impl Running {
    /// Whether it is known how it ended, or at least that it did.
    pub fn is_over(&self) -> bool {
        self.reason.is_some() || self.exited.is_some() || self.words.ending().is_some()
    }

    /// Says how the job ended, once its process is gone and its pipes are read.
    pub fn conclude(self) -> Ending {
        let limit = Instant::now() + DRAIN;
        while !self.reader.is_finished() && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut output = self.tail.lines();
        output.extend(self.cut.map(|line| format!("its last message breaks off: {line}")));
        let of_exit = |(_, code, signal)| self.words.ending_of_exit(code, signal, output.clone());
        self.reason
            .or_else(|| self.words.ending())
            .or_else(|| self.exited.and_then(of_exit))
            .unwrap_or(Ending::HostDied { output })
    }
}
