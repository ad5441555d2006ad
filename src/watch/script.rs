//! The process of the script: it gets our standard streams and our signals, and we get its exit.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;

use super::WatchError;
use super::witness::{Witness, signal_set};
use crate::process;

/// Signals that ask a program for something. All others act on torchleak as on any program, or, as a stop
/// does, reach the whole group anyway.
const PASSED_ON: [i32; 6] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2];

/// How often it is looked whether the script has ended.
const GLANCE: Duration = Duration::from_millis(5);

/// How a script ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptExit {
    Exited(i32),
    Signalled(i32),
}

impl ScriptExit {
    fn of(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Exited(code),
            (None, signal) => Self::Signalled(signal.unwrap_or_default()),
        }
    }

    /// The exit code that passes it on: a signal is 128 and its number, as in a shell.
    pub fn code(self) -> u8 {
        let code = match self {
            Self::Exited(code) => code,
            Self::Signalled(signal) => 128 + signal,
        };
        u8::try_from(code).unwrap_or(u8::MAX)
    }

    /// In words.
    pub fn sentence(self) -> String {
        match self {
            Self::Exited(0) => "the script ended with exit code 0".to_owned(),
            Self::Exited(code) => format!("the script failed with exit code {code}"),
            Self::Signalled(9) => {
                "the script was killed by signal 9 (SIGKILL), as the kernel's out-of-memory killer does"
                    .to_owned()
            }
            Self::Signalled(signal) => {
                format!("the script was ended by {}", process::Exit::Signalled(signal))
            }
        }
    }
}

/// A running script.
#[derive(Debug)]
pub struct Script {
    child: Child,
    signals: SignalsInfo<WithOrigin>,
    witness: Witness,
}

impl Script {
    /// Starts the command in our place: in our process group, with our standard input, output and error.
    pub fn start(command: &[OsString], startup: &Path, specification: &Path) -> Result<Self, WatchError> {
        // Before the script is there, or a signal in between would end only us.
        let signals = SignalsInfo::<WithOrigin>::new(not_ignored()).map_err(WatchError::Signals)?;
        let (program, arguments) =
            command.split_first().map_or((OsStr::new(""), &[][..]), |(first, rest)| (first, rest));
        let mut process = Command::new(program);
        process.args(arguments).env("PYTHONPATH", python_path(startup)).env("TORCHLEAK_WATCH", specification);
        die_with_parent(&mut process);
        let child = process.spawn().map_err(|source| WatchError::Start {
            command: program.to_string_lossy().into_owned(),
            source,
        })?;
        Ok(Self { child, signals, witness: Witness::start() })
    }

    /// Waits for the script's end, for so long at most, and passes signals on meanwhile.
    pub fn wait(&mut self, most: Duration) -> Option<ScriptExit> {
        let limit = Instant::now() + most;
        loop {
            self.pass_signals();
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(ScriptExit::of(status)),
                Ok(None) if Instant::now() >= limit => return None,
                Ok(None) => std::thread::sleep(GLANCE),
                // It is ours alone to wait for, so this cannot happen; a code is better than a hang.
                Err(error) => {
                    tracing::warn!(%error, "the script cannot be waited for");
                    return Some(ScriptExit::Exited(255));
                }
            }
        }
    }

    /// What the terminal sent, or another process sent to our whole group, has reached the script already; what
    /// another process sent to us has not.
    fn pass_signals(&mut self) {
        let origins: Vec<_> = self.signals.pending().collect();
        if !origins.is_empty() {
            // Some send a signal to one process after the other, such as to all of a container.
            std::thread::sleep(GLANCE);
        }
        for origin in origins {
            if self.witness.has_seen(origin.signal) || origin.process.is_none() {
                continue;
            }
            // The child is not reaped yet, so its number is still its own.
            if let Some(signal) = Signal::from_named_raw(origin.signal) {
                let _ = kill_process(Pid::from_child(&self.child), signal);
            }
        }
    }
}

/// What is passed on, less what whoever started us made us ignore, as `nohup` does: a script inherits that.
fn not_ignored() -> Vec<i32> {
    let mask = signal_set("self", "SigIgn:");
    PASSED_ON.into_iter().filter(|signal| mask & (1 << (signal - 1)) == 0).collect()
}

/// Our folder before those that the user has named.
fn python_path(startup: &Path) -> OsString {
    let mut path = startup.as_os_str().to_owned();
    if let Some(users) = std::env::var_os("PYTHONPATH").filter(|users| !users.is_empty()) {
        path.push(":");
        path.push(users);
    }
    path
}

/// Asks the kernel to end the script if torchleak itself is killed, where no handler can run.
fn die_with_parent(command: &mut Command) {
    #[cfg(target_os = "linux")]
    {
        let parent = rustix::process::getpid();
        // SAFETY: between fork and exec this makes two system calls; it allocates nothing and takes no lock.
        unsafe {
            command.pre_exec(move || {
                rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
                // The parent may have died before the request was made.
                if rustix::process::getppid() == Some(parent) {
                    Ok(())
                } else {
                    Err(std::io::Error::from(rustix::io::Errno::SRCH))
                }
            });
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = command;
}
