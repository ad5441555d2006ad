//! A job whose child runs, and how it came to its end.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use torchleak_protocol::ArmEvent;

use super::pipes::Tail;
use super::{Ending, Job};

/// How long the pipes of a process that is gone are still read.
pub const DRAIN: Duration = Duration::from_secs(2);

/// A job whose command was sent.
pub struct Running {
    pub job: Job,
    pub pid: Option<u32>,
    /// What the child said before the host said that it runs: they write to different pipes.
    pub early: Vec<ArmEvent>,
    /// When it was sent, then when its child started.
    pub since: Instant,
    /// What is known of its end before its process is gone.
    pub ending: Option<Ending>,
    /// When the process was reported gone, and how.
    pub exited: Option<(Instant, Option<i32>, Option<i32>)>,
    pub closed: bool,
    /// When it was killed for a reason of ours.
    pub stopped: Option<Instant>,
    /// The half message with which it ended.
    pub cut: Option<String>,
    pub tail: Tail,
    pub reader: JoinHandle<()>,
}

impl Running {
    /// Says how the job ended, once its process is gone and its pipes are read.
    pub fn conclude(self) -> Ending {
        let limit = Instant::now() + DRAIN;
        while !self.reader.is_finished() && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut output = self.tail.lines();
        output.extend(self.cut.map(|line| format!("its last message breaks off: {line}")));
        match (self.ending, self.exited) {
            (Some(ending), _) => ending,
            (None, Some((_, _, Some(signal)))) => Ending::Killed { signal, output },
            (None, Some((_, Some(code), _))) => Ending::Exited { code, output },
            (None, _) => Ending::HostDied { output },
        }
    }
}
