//! Threads that read what a host and its children write, and pass it on as messages.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use torchleak_protocol::{ArmEvent, HostEvent};

use super::job::LogSink;

/// The longest line that is read whole. A worker that writes more without an end of line writes
/// garbage, and must not fill our memory with it.
const LONGEST_LINE: u64 = 64 << 20;

/// How many lines of output are kept in memory for an error message.
const TAIL_LINES: usize = 20;

/// How much of each of those lines is kept; the log has all of it.
const TAIL_CHARS: usize = 500;

/// What reading threads tell the session.
#[derive(Debug)]
pub enum Message {
    Host(HostEvent),
    /// A line from the host that is no event.
    HostGarbage(String),
    /// The host's end of the socket is closed.
    HostGone,
    /// An event of an arm, with the number of the pipe that it came through.
    Arm(u64, u32, ArmEvent),
    /// A line of an arm that is no event, with the number of its pipe.
    ArmGarbage(u64, u32, String),
    /// An arm's last line has no end: it died while it wrote.
    ArmCut(u64, String),
    /// All write ends of one of an arm's event pipes are closed.
    ArmClosed(u64),
}

/// Reads a host's events until its socket is closed.
pub fn read_host(socket: impl Read + Send + 'static, messages: Sender<Message>) {
    std::thread::spawn(move || {
        read_lines(socket, |line, _| {
            let message = match serde_json::from_slice(line) {
                Ok(event) => Message::Host(event),
                Err(_) => Message::HostGarbage(shown(line)),
            };
            messages.send(message).is_ok()
        });
        // A session that is gone needs no message.
        let _ = messages.send(Message::HostGone);
    });
}

/// Reads the events that come through one of an arm's pipes until it is closed.
pub fn read_arm(arm: u64, pipe: u32, events: impl Read + Send + 'static, messages: Sender<Message>) {
    std::thread::spawn(move || {
        read_lines(events, |line, whole| {
            let message = match serde_json::from_slice(line) {
                Ok(event) => Message::Arm(arm, pipe, event),
                Err(_) if whole => Message::ArmGarbage(arm, pipe, shown(line)),
                Err(_) => Message::ArmCut(arm, shown(line)),
            };
            messages.send(message).is_ok()
        });
        let _ = messages.send(Message::ArmClosed(arm));
    });
}

/// The last lines that a process printed, shared with the thread that reads them.
#[derive(Debug, Clone, Default)]
pub struct Tail(Arc<Mutex<VecDeque<String>>>);

impl Tail {
    fn push(&self, mut line: String) {
        if let Some((end, _)) = line.char_indices().nth(TAIL_CHARS) {
            line.truncate(end);
            line.push_str("...");
            line.shrink_to_fit();
        }
        let mut lines = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if lines.len() == TAIL_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// The lines, oldest first.
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).iter().cloned().collect()
    }
}

/// Reads what a process prints, keeps the last lines and writes all of them to `log`.
pub fn read_output(pipe: impl Read + Send + 'static, log: Option<LogSink>) -> (Tail, JoinHandle<()>) {
    let tail = Tail::default();
    let kept = tail.clone();
    let thread = std::thread::spawn(move || {
        read_lines(pipe, |line, _| {
            let text = String::from_utf8_lossy(line).into_owned();
            if let Some(log) = &log {
                log(&text);
            }
            kept.push(text);
            true
        });
    });
    (tail, thread)
}

/// Calls `each` with every line, without its end, until the end of the stream or until `each` says
/// no. The flag says whether the line had an end: a last line without one is half a message.
fn read_lines(stream: impl Read, mut each: impl FnMut(&[u8], bool) -> bool) {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut reader).take(LONGEST_LINE).read_until(b'\n', &mut line) {
            Ok(0) => return,
            Ok(_) => {
                let whole = line.ends_with(b"\n");
                while line.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
                    line.pop();
                }
                if !each(&line, whole) {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// The beginning of a line that is not understood, fit for a message.
fn shown(line: &[u8]) -> String {
    const MOST: usize = 200;
    let text = String::from_utf8_lossy(&line[..line.len().min(MOST)]);
    let mut shown: String = text.escape_debug().collect();
    if line.len() > MOST {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(bytes: &'static [u8]) -> Vec<(String, bool)> {
        let mut lines = Vec::new();
        read_lines(bytes, |line, whole| {
            lines.push((String::from_utf8_lossy(line).into_owned(), whole));
            true
        });
        lines
    }

    #[test]
    fn a_last_line_without_an_end_is_given_as_cut() {
        let lines = [("one".to_owned(), true), ("two".to_owned(), true), ("hal".to_owned(), false)];
        assert_eq!(lines_of(b"one\ntwo\nhal"), lines);
    }

    #[test]
    fn bytes_that_are_no_text_do_not_end_the_reading() {
        assert_eq!(
            lines_of(b"\xff\xfe\nafter\n"),
            [("\u{fffd}\u{fffd}".to_owned(), true), ("after".to_owned(), true)]
        );
    }

    #[test]
    fn the_tail_keeps_the_last_lines_and_the_beginning_of_a_long_one() {
        let tail = Tail::default();
        for number in 0..30 {
            tail.push(number.to_string());
        }
        tail.push("\u{fc}".repeat(1000));
        let lines = tail.lines();
        assert_eq!((lines.len(), lines[0].as_str()), (20, "11"));
        assert_eq!(lines[19], "\u{fc}".repeat(500) + "...");
    }

    #[test]
    fn a_long_line_is_shown_by_its_beginning_only() {
        assert_eq!(shown(&[b'x'; 1000]).len(), 203);
    }
}
