//! The process of a worker host, and the socket to it.

use std::io::{self, IoSlice, PipeReader};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal};
use torchleak_protocol::ArmSpec;

use super::WorkerError;
use super::pipes::{Message, Tail, read_host, read_output};
use crate::environment::Environment;

/// How long a host may take to end its children and itself once its socket is closed.
const GRACE: Duration = Duration::from_secs(3);

/// Environment variables of a host and so of every arm.
const VARIABLES: [(&str, &str); 5] = [
    // Teams of OpenMP threads that spin on a busy machine make a small case several times slower; an
    // arm that wants more threads asks torch for them.
    ("OMP_NUM_THREADS", "1"),
    ("MKL_NUM_THREADS", "1"),
    // Sets of strings are walked in the same order in every arm.
    ("PYTHONHASHSEED", "0"),
    // cuBLAS sums in the same order in every arm only with a workspace of a fixed size.
    ("CUBLAS_WORKSPACE_CONFIG", ":4096:8"),
    ("TORCH_CPP_LOG_LEVEL", "ERROR"),
];

/// A running host. Dropping it ends it with all its children.
#[derive(Debug)]
pub struct Host {
    process: Child,
    control: Option<UnixStream>,
    tail: Tail,
}

impl Host {
    /// Starts the interpreter with the bundle; its events come as [`Message`]s.
    pub fn start(
        environment: &Environment,
        bundle: &Path,
        messages: Sender<Message>,
    ) -> Result<Self, WorkerError> {
        let failed = |source| WorkerError::Start { python: environment.python.clone(), source };
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        let (output, output_end) = io::pipe().map_err(failed)?;
        let process = environment
            .command()
            .arg(bundle)
            .arg("host")
            .envs(VARIABLES)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(OwnedFd::from(output_end.try_clone().map_err(failed)?)))
            .stderr(Stdio::from(OwnedFd::from(output_end)))
            // A group of its own: Ctrl-C reaches torchleak alone, which then ends its workers.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let (tail, _reader) = read_output(output, None);
        read_host(ours.try_clone().map_err(failed)?, messages);
        Ok(Self { process, control: Some(ours), tail })
    }

    /// Asks for an arm, and gives the read ends of its pipes: those for its events, and the one for what
    /// it prints.
    pub fn run(&self, spec: &ArmSpec) -> io::Result<(Vec<PipeReader>, PipeReader)> {
        let control = self.control.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let command = torchleak_protocol::Command::Run(Box::new(spec.clone()));
        let mut line = serde_json::to_vec(&command)?;
        line.push(b'\n');
        let pipes = (0..spec.event_pipes()).map(|_| io::pipe()).collect::<io::Result<Vec<_>>>()?;
        let (events, mut ends): (Vec<_>, Vec<_>) = pipes.into_iter().unzip();
        let (output, output_end) = io::pipe()?;
        ends.push(output_end);
        let descriptors: Vec<BorrowedFd<'_>> = ends.iter().map(AsFd::as_fd).collect();
        let rights = SendAncillaryMessage::ScmRights(&descriptors);
        let mut space = vec![MaybeUninit::uninit(); rights.size()];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(rights);
        let mut sent = sendmsg(control, &[IoSlice::new(&line)], &mut ancillary, SendFlags::NOSIGNAL)?;
        // The descriptors travel with the first bytes; the rest of a long line follows without them.
        while sent < line.len() {
            let mut nothing = SendAncillaryBuffer::default();
            sent += sendmsg(control, &[IoSlice::new(&line[sent..])], &mut nothing, SendFlags::NOSIGNAL)?;
        }
        Ok((events, output))
    }

    /// The last lines that the host printed.
    pub fn output(&self) -> Vec<String> {
        self.tail.lines()
    }

    /// Kills the host at once; its children die with it.
    pub fn kill(&mut self) {
        kill_group(self.process.id());
    }

    /// Closes the socket, waits until the host is gone, and gives its exit status in words.
    pub fn end(&mut self) -> String {
        if let Some(control) = self.control.take() {
            // The reading thread holds a clone, so closing ours alone would not be seen.
            let _ = control.shutdown(std::net::Shutdown::Both);
        }
        let limit = Instant::now() + GRACE;
        loop {
            match self.process.try_wait() {
                Ok(Some(status)) => return status.to_string(),
                Ok(None) if Instant::now() < limit => std::thread::sleep(Duration::from_millis(5)),
                Ok(None) => {
                    self.kill();
                    return match self.process.wait() {
                        Ok(status) => status.to_string(),
                        Err(error) => error.to_string(),
                    };
                }
                Err(error) => return error.to_string(),
            }
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.end();
    }
}

/// Kills a process and all of its group; one that is gone already needs no killing.
pub fn kill_group(pid: u32) {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    if rustix::process::kill_process_group(pid, Signal::KILL).is_err() {
        // A child that has not reached its setsid yet has no group of its own.
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
}
