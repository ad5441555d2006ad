//! `torchleak-control FD`: trains the arm whose command is on standard input, and reports to descriptor FD.
//!
//! A worker host starts it as it starts an interpreter for an arm.

mod arm;
mod block;
mod libtorch;
mod training;

use std::any::Any;
use std::fs::File;
use std::os::fd::{FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};
use torchleak_protocol::{ArmEvent, ArmSpec, Command, Failure, FailureKind};

fn main() -> ExitCode {
    let Some(fd) = std::env::args().nth(1).and_then(|fd| fd.parse().ok()).filter(|fd| *fd > 2) else {
        eprintln!("torchleak-control is started by `torchleak run --control`, with a pipe for its events");
        return ExitCode::from(2);
    };
    // SAFETY: the host opened the pipe for this process alone, and nothing else here uses the descriptor.
    let mut events = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    // tch panics with what libtorch throws.
    let run = catch_unwind(AssertUnwindSafe(|| arm::run(&prepared(), &mut events)));
    let sent = match run {
        Ok(sent) => sent.map(|()| ExitCode::SUCCESS),
        Err(panic) => {
            let failure = ArmEvent::Failed(failure(panic.as_ref()));
            arm::send(&mut events, &failure).map(|()| ExitCode::FAILURE)
        }
    };
    // Nobody listens: the host or torchleak is gone.
    sent.unwrap_or(ExitCode::from(3))
}

/// Reads the command, and sets the process up as it says.
fn prepared() -> ArmSpec {
    // No arm outlives its host.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let command = serde_json::from_reader(std::io::stdin());
    let Command::Run(spec) = command.unwrap_or_else(|error| panic!("the command cannot be read: {error}"));
    if let Some(limit) = spec.memory_limit {
        let limit = Rlimit { current: Some(limit), maximum: Some(limit) };
        setrlimit(Resource::As, limit)
            .unwrap_or_else(|error| panic!("no limit of memory can be set: {error}"));
    }
    *spec
}

fn failure(panic: &(dyn Any + Send)) -> Failure {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    let text = text.unwrap_or("it panicked without a message");
    let out_of_memory = text.contains("out of memory") || text.contains("can't allocate memory");
    Failure {
        kind: if out_of_memory { FailureKind::OutOfMemory } else { FailureKind::Exception },
        message: text.lines().next().unwrap_or_default().to_owned(),
        traceback: text.lines().skip(1).map(str::to_owned).collect(),
    }
}
