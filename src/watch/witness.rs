//! Tells whether a signal was sent to our whole process group, and so has reached the script without us.
//!
//! A signal says who sent it and not to whom. So a process of no other use is in our group: no one knows its number, and
//! what ends it was sent to the group.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

/// The process, where it could be started.
#[derive(Debug)]
pub struct Witness(Option<Child>);

impl Witness {
    /// Starts the process. To a script that is there already the kernel gives a signal of the group no sooner than to it.
    pub fn start() -> Self {
        // It ends with us, because we hold the other end of its input. SIGQUIT must not leave a core file.
        let script = "ulimit -c 0; exec cat";
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().inspect_err(|error| tracing::warn!(%error, "there is no witness")).ok())
    }

    /// Whether the group got this signal, which we have just got. Each signal is to be asked about, so that another
    /// process can take the place of one that it has ended.
    pub fn has_seen(&mut self, signal: i32) -> bool {
        let Some(child) = &mut self.0 else { return false };
        match child.try_wait() {
            Ok(None) if !is_ending(child.id()) => false,
            _ => {
                // One that is stopped would not end of anything else.
                let _ = child.kill();
                let by = child.wait().ok().and_then(|status| status.signal());
                *self = Self::start();
                by == Some(signal)
            }
        }
    }
}

/// Whether a signal has come that the process, on a busy machine, has not had the time to end of.
fn is_ending(pid: u32) -> bool {
    ["SigPnd:", "ShdPnd:"].iter().any(|set| signal_set(&pid.to_string(), set) != 0)
}

/// A set of signals of a process, as Linux tells it; elsewhere it is empty.
pub fn signal_set(process: &str, set: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix(set));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
