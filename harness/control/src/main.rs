//! `torchleak-control FD`: trains the arm whose command is on standard input, and reports to descriptor FD.
//!
//! A worker host starts it as it starts an interpreter for an arm.

mod arm;
mod block;
mod libtorch;
mod training;

use std::any::Any;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};
use torchleak_protocol::{ArmEvent, ArmSpec, Command, Failure, FailureKind};

fn main() -> ExitCode {
    // Opened anew by its name, because nothing vouches that a number on a command line is a descriptor of ours.
    let pipe =
        std::env::args().nth(1).and_then(|fd| File::options().write(true).open(format!("/dev/fd/{fd}")).ok());
    let Some(mut events) = pipe else {
        eprintln!("torchleak-control is started by `torchleak run --control`, with a pipe for its events");
        return ExitCode::from(2);
    };
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
    // tch quotes what libtorch throws, with the ends of its lines escaped.
    let text = text.unwrap_or("it panicked without a message").replace("\\n", "\n");
    let out_of_memory = text.contains("out of memory") || text.contains("can't allocate memory");
    Failure {
        kind: if out_of_memory { FailureKind::OutOfMemory } else { FailureKind::Exception },
        message: text.lines().next().unwrap_or_default().to_owned(),
        traceback: text.lines().skip(1).map(str::to_owned).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_libtorch_throws_becomes_a_failure_with_its_kind_and_its_lines() {
        tch::set_num_threads(1);
        let thrown = |run: fn()| failure(catch_unwind(run).unwrap_err().as_ref());
        let shapes = thrown(|| drop(tch::Tensor::from_slice(&[1.0, 2.0]).view([3])));
        assert_eq!(shapes.kind, FailureKind::Exception);
        assert!(shapes.message.contains("is invalid for input of size 2"), "{}", shapes.message);
        let huge = thrown(|| drop(tch::Tensor::zeros([1 << 50], (tch::Kind::Float, tch::Device::Cpu))));
        assert_eq!(huge.kind, FailureKind::OutOfMemory, "{}", huge.message);
    }
}
