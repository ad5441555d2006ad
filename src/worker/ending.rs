//! How an arm ended, in words.

use std::time::Duration;

use torchleak_protocol::{Failure, FailureKind};

/// Why an arm's process is gone.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    /// All steps were done and reported.
    Done,
    /// The worker reported a failure of its own.
    Failed(Failure),
    /// The process exited without reporting an end.
    Exited { code: i32, output: Vec<String> },
    /// A signal killed the process.
    Killed { signal: i32, output: Vec<String> },
    /// One of several ranks ended so, and the arm with it.
    OnRank { rank: u32, ending: Box<Ending> },
    /// It ran past its deadline and was killed.
    TimedOut { after: Duration },
    /// It wrote a line that is no message, and was killed.
    Garbage { line: String },
    /// The host died, and the arm with it.
    HostDied { output: Vec<String> },
    /// torch could not be imported in the host.
    ImportFailed(Failure),
    /// It could not be started, for want of something that torchleak itself needs.
    NotStarted { reason: String },
    /// Its events could not be written to disk.
    NotRecorded { reason: String },
    /// Ctrl-C.
    Interrupted,
}

impl Ending {
    /// One sentence for a person, without the lines that [`Ending::details`] gives.
    pub fn reason(&self) -> String {
        match self {
            Self::Done => "all steps were done".to_owned(),
            Self::Failed(failure) if failure.kind == FailureKind::OutOfMemory => {
                format!("ran out of memory: {}", failure.message)
            }
            Self::Failed(failure) if failure.kind == FailureKind::Unsupported => {
                format!("is not supported here: {}", failure.message)
            }
            Self::Failed(failure) => format!("raised {}", failure.message),
            Self::Exited { code, .. } => format!("exited with code {code} before its last step"),
            Self::Killed { signal, .. } => {
                let hint = match *signal {
                    9 => "; the kernel's out-of-memory killer does this",
                    11 => "; a crash in native code",
                    _ => "",
                };
                format!("was killed by signal {signal} ({}){hint}", signal_name(*signal))
            }
            Self::OnRank { rank, ending } => format!("failed on rank {rank}, which {}", ending.reason()),
            Self::TimedOut { after } => {
                format!(
                    "ran past its deadline of {} s and was killed (raise it with --deadline)",
                    after.as_secs()
                )
            }
            Self::Garbage { line } => {
                format!("wrote a line that is no message of the protocol and was killed: {line}")
            }
            Self::HostDied { .. } => "lost its worker host, which died".to_owned(),
            Self::ImportFailed(failure) => {
                format!("could not start, because torch cannot be imported: {}", failure.message)
            }
            Self::NotStarted { reason } => format!("could not be started: {reason}"),
            Self::NotRecorded { reason } => {
                format!("was stopped, because its events cannot be saved: {reason}")
            }
            Self::Interrupted => "was interrupted".to_owned(),
        }
    }

    /// The last lines of the traceback or of what the process printed.
    pub fn details(&self) -> &[String] {
        match self {
            Self::Failed(failure) | Self::ImportFailed(failure) => &failure.traceback,
            Self::Exited { output, .. } | Self::Killed { output, .. } | Self::HostDied { output } => output,
            Self::OnRank { ending, .. } => ending.details(),
            _ => &[],
        }
    }
}

fn signal_name(signal: i32) -> String {
    match signal_hook::low_level::signal_name(signal) {
        Some(name) => name.to_owned(),
        None => format!("signal {signal}"),
    }
}

/// The last `most` of some lines, indented for an error message.
pub fn tail(lines: &[String], most: usize) -> String {
    lines[lines.len().saturating_sub(most)..].iter().map(|line| format!("    {line}\n")).collect()
}
