//! Runs helper programs (`uv`, `python -c`): own process group, deadline, typed exit, nothing left behind.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::interrupt;

/// How often the deadline and Ctrl-C are looked at.
const TICK: Duration = Duration::from_millis(50);
/// How long a helper that was asked to end may take before it is killed.
const GRACE: Duration = Duration::from_secs(2);

/// How a helper ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this code.
    Exited(i32),
    /// This signal ended it.
    Signalled(i32),
    /// It passed its deadline and was killed.
    TimedOut(Duration),
    /// The user asked to stop and it was killed.
    Interrupted,
}

impl Exit {
    /// Whether it exited with code 0.
    pub fn success(self) -> bool {
        self == Self::Exited(0)
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exit code {code}"),
            Self::Signalled(9) => write!(f, "signal 9 (killed, perhaps for want of memory)"),
            Self::Signalled(number) => match signal_hook::low_level::signal_name(*number) {
                Some(name) => write!(f, "signal {number} ({name})"),
                None => write!(f, "signal {number}"),
            },
            Self::TimedOut(after) => write!(f, "killed after {} s", after.as_secs()),
            Self::Interrupted => write!(f, "interrupted"),
        }
    }
}

/// Which of a helper's outputs a line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// What a helper printed, and how it ended.
#[derive(Debug, Clone)]
pub struct Captured {
    /// How it ended.
    pub exit: Exit,
    /// Lines of standard output.
    pub stdout: Vec<String>,
    /// Lines of standard error.
    pub stderr: Vec<String>,
}

/// Runs a helper to its end and keeps what it prints.
///
/// # Errors
/// The program cannot be started.
pub fn capture(command: Command, deadline: Duration) -> io::Result<Captured> {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let exit = run(command, deadline, &mut |stream, line| match stream {
        Stream::Stdout => stdout.push(line.to_owned()),
        Stream::Stderr => stderr.push(line.to_owned()),
    })?;
    Ok(Captured { exit, stdout, stderr })
}

/// As [`capture`], for a helper that reads its standard input and whose standard output is no text: every byte of it
/// is kept.
///
/// # Errors
/// The program cannot be started.
pub fn exchange(command: Command, input: Vec<u8>, deadline: Duration) -> io::Result<Exchanged> {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let exit = run_pieces(command, Some(input), deadline, &mut |stream, piece| match stream {
        Stream::Stdout => stdout.extend_from_slice(piece),
        Stream::Stderr => stderr.push(text(piece)),
    })?;
    Ok(Exchanged { exit, stdout, stderr })
}

/// What a helper wrote, byte for byte, and how it ended.
#[derive(Debug, Clone)]
pub struct Exchanged {
    /// How it ended.
    pub exit: Exit,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Lines of standard error.
    pub stderr: Vec<String>,
}

/// Runs a helper to its end and hands over each line as it comes.
///
/// Its whole process group is ended at the deadline, on Ctrl-C, and, for what it left running, at its own end.
///
/// # Errors
/// The program cannot be started.
pub fn run(command: Command, deadline: Duration, on_line: &mut dyn FnMut(Stream, &str)) -> io::Result<Exit> {
    run_pieces(command, None, deadline, &mut |stream, piece| on_line(stream, &text(piece)))
}

/// Runs a helper and hands over what it writes in pieces that end where its lines do.
fn run_pieces(
    mut command: Command,
    input: Option<Vec<u8>>,
    deadline: Duration,
    on_piece: &mut dyn FnMut(Stream, &[u8]),
) -> io::Result<Exit> {
    let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    die_with_parent(&mut command);
    let started = Instant::now();
    let mut child = command.spawn()?;
    if let (Some(mut to), Some(input)) = (child.stdin.take(), input) {
        // In a thread, because a helper may answer before it has read all, and then both would wait for ever. One that
        // ends before it has read all is known by its exit.
        thread::spawn(move || to.write_all(&input));
    }
    let (sender, lines) = mpsc::channel();
    // Readers are not joined: a grandchild that left the group may hold a pipe open for ever.
    read_lines(Stream::Stdout, child.stdout.take(), sender.clone());
    read_lines(Stream::Stderr, child.stderr.take(), sender);

    let group = Group(Pid::from_child(&child));
    let mut ending = None;
    let mut asked_at = None;
    loop {
        match lines.recv_timeout(TICK) {
            Ok((stream, piece)) => on_piece(stream, &piece),
            // Both outputs are closed, which a program may do long before its end.
            Err(RecvTimeoutError::Disconnected) => thread::sleep(TICK.min(Duration::from_millis(5))),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if group.leader_has_exited() {
            break;
        }
        if ending.is_none() {
            ending = if interrupt::requested() {
                Some(Exit::Interrupted)
            } else if started.elapsed() >= deadline {
                Some(Exit::TimedOut(deadline))
            } else {
                None
            };
            if ending.is_some() {
                group.signal(Signal::TERM);
                asked_at = Some(Instant::now());
            }
        } else if asked_at.is_some_and(|at: Instant| at.elapsed() >= GRACE) {
            group.signal(Signal::KILL);
        }
    }
    // The unreaped leader keeps the group's number from being reused, so this reaches nobody else.
    group.signal(Signal::KILL);
    let status = reap(&mut child)?;
    let drained_by = Instant::now() + GRACE;
    while let Ok((stream, piece)) = lines.recv_timeout(drained_by.saturating_duration_since(Instant::now())) {
        on_piece(stream, &piece);
    }
    Ok(ending.unwrap_or(status))
}

/// The command as a person would type it, with passwords in URLs taken out.
pub fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words = words.map(|word| {
        let word = without_password(&word.to_string_lossy());
        if word.contains(|c: char| c.is_whitespace() || "'\"<>|&;*".contains(c)) {
            format!("'{}'", word.replace('\'', r"'\''"))
        } else {
            word
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// A text with `scheme://user:password@host` shortened to `scheme://hidden@host`.
pub fn without_password(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let end = after.find(|c: char| c.is_whitespace() || "/?#`\"'".contains(c)).unwrap_or(after.len());
        let authority = &after[..end];
        rest = match authority.rfind('@') {
            Some(sign) => {
                out.push_str("hidden");
                &after[sign..]
            }
            None => after,
        };
    }
    out.push_str(rest);
    out
}

struct Group(Pid);

impl Group {
    fn leader_has_exited(&self) -> bool {
        // NOWAIT leaves the leader unreaped; an error means that it is gone already.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(WaitId::Pid(self.0), options), Ok(None) | Err(rustix::io::Errno::INTR))
    }

    fn signal(&self, signal: Signal) {
        // The only failure is that nobody is left, which is what was wanted.
        let _ = kill_process_group(self.0, signal);
    }
}

fn reap(child: &mut Child) -> io::Result<Exit> {
    let status = child.wait()?;
    Ok(match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Exited(code),
        (None, signal) => Exit::Signalled(signal.unwrap_or_default()),
    })
}

fn read_lines(stream: Stream, from: Option<impl Read + Send + 'static>, to: Sender<(Stream, Vec<u8>)>) {
    let Some(from) = from else { return };
    thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        // Any error is an end.
        while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            if to.send((stream, std::mem::take(&mut line))).is_err() {
                return;
            }
        }
    });
}

/// A line without its end. What helpers print need not be UTF-8.
fn text(piece: &[u8]) -> String {
    String::from_utf8_lossy(piece).trim_end_matches(['\n', '\r']).to_owned()
}

/// Asks the kernel to kill the helper if torchleak itself is killed, where no handler can run.
fn die_with_parent(command: &mut Command) {
    #[cfg(target_os = "linux")]
    {
        let parent = rustix::process::getpid();
        // SAFETY: between fork and exec this makes two system calls; it allocates nothing and takes no lock.
        unsafe {
            command.pre_exec(move || {
                rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
                // The parent may have died before the request was made.
                if rustix::process::getppid() == Some(parent) {
                    Ok(())
                } else {
                    Err(io::Error::from(rustix::io::Errno::SRCH))
                }
            });
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = command;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn output_and_exit_code_are_kept_apart() {
        let done = capture(sh("echo out; echo err >&2; printf last; exit 3"), LONG).unwrap();
        assert_eq!(done.exit, Exit::Exited(3));
        assert_eq!(done.stdout, ["out", "last"]);
        assert_eq!(done.stderr, ["err"]);
    }

    #[test]
    fn a_helper_killed_by_a_signal_says_which() {
        let done = capture(sh("kill -TERM $$"), LONG).unwrap();
        assert_eq!(done.exit, Exit::Signalled(15));
        assert_eq!(done.exit.to_string(), "signal 15 (SIGTERM)");
    }

    #[test]
    fn the_deadline_ends_a_helper_that_ignores_requests_and_its_children() {
        let started = Instant::now();
        let script = "trap '' TERM; sleep 300 & echo $!; while :; do sleep 1; done";
        let done = capture(sh(script), Duration::from_millis(300)).unwrap();
        assert_eq!(done.exit, Exit::TimedOut(Duration::from_millis(300)));
        assert!(started.elapsed() < Duration::from_secs(20));
        assert_gone(&done.stdout[0]);
    }

    #[test]
    fn what_a_helper_leaves_running_is_ended_with_it() {
        let started = Instant::now();
        let done = capture(sh("sleep 300 & echo $!"), LONG).unwrap();
        assert_eq!(done.exit, Exit::Exited(0));
        assert!(started.elapsed() < Duration::from_secs(20));
        assert_gone(&done.stdout[0]);
    }

    #[test]
    fn bytes_that_are_not_text_do_not_stop_the_reading() {
        let done = capture(sh(r"printf '\377\376\n'; echo after"), LONG).unwrap();
        assert_eq!(done.stdout[1], "after");
    }

    #[test]
    fn what_a_helper_answers_to_its_input_is_kept_to_the_byte() {
        // More than any pipe holds, in both directions, and not text.
        let input: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
        let done = exchange(sh("cat; echo done >&2"), input.clone(), LONG).unwrap();
        assert_eq!((done.exit, done.stderr), (Exit::Exited(0), vec!["done".to_owned()]));
        assert!(done.stdout == input);
        let deaf = exchange(sh("exit 7"), input, LONG).unwrap();
        assert_eq!((deaf.exit, deaf.stdout.len()), (Exit::Exited(7), 0));
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        assert!(capture(Command::new("/nonexistent/program"), LONG).is_err());
    }

    #[test]
    fn passwords_in_urls_are_not_shown() {
        let mut command = Command::new("uv");
        command.args(["--index-url", "https://me:secret@example.org/simple", "a b"]);
        assert_eq!(shown(&command), "uv --index-url https://hidden@example.org/simple 'a b'");
        assert_eq!(without_password("no url"), "no url");
        assert_eq!(without_password("http://a/b@c http://x@y"), "http://a/b@c http://hidden@y");
    }

    /// Waits for a killed grandchild to be reaped by whoever inherited it; a zombie counts as gone.
    fn assert_gone(pid: &str) {
        let stat = format!("/proc/{pid}/stat");
        for _ in 0..100 {
            match std::fs::read_to_string(&stat) {
                Err(_) => return,
                Ok(text) if text.contains(") Z ") => return,
                Ok(_) => thread::sleep(TICK),
            }
        }
        panic!("process {pid} is still running");
    }
}
