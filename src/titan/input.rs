//! A log from its bytes to lines: a file or a pipe, plain or gzip, of any size, in bounded memory.

use std::fs::File;
use std::io::{Cursor, ErrorKind, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use flate2::read::MultiGzDecoder;

use super::error::TitanError;
use super::track::Log;
use crate::interrupt;

const CHUNK: usize = 256 << 10;

/// Most bytes of a line that are looked at. A step line has about 200.
const LONGEST: usize = 64 << 10;

/// How long the writer of a pipe, which gets the same Ctrl-C, has for its last lines.
const GRACE: Duration = Duration::from_secs(2);

const TICK: Duration = Duration::from_millis(100);

/// How reading came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// All was read.
    Whole,
    /// The compressed data end early or are broken; what came before was read.
    Cut(String),
    /// The user asked to stop.
    Interrupted,
}

/// Cuts chunks into lines. Keeps at most the beginning of one line.
#[derive(Debug, Default)]
pub struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    /// Hands every line that a chunk completes to the log.
    pub fn feed(&mut self, mut chunk: &[u8], log: &mut Log) {
        while let Some(end) = memchr::memchr(b'\n', chunk) {
            if self.rest.is_empty() {
                log.line(&chunk[..end.min(LONGEST)]);
            } else {
                self.keep(&chunk[..end]);
                log.line(&self.rest);
                self.rest.clear();
            }
            chunk = &chunk[end + 1..];
        }
        self.keep(chunk);
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = LONGEST.saturating_sub(self.rest.len());
        self.rest.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Hands over what follows the last end of line.
    pub fn finish(&mut self, log: &mut Log) {
        if !self.rest.is_empty() {
            log.line(&self.rest);
            self.rest.clear();
        }
    }
}

/// Reads a log to its end; `-` is standard input.
///
/// # Errors
/// It cannot be opened or read, or is compressed with anything but gzip.
pub fn read(path: &Path, log: &mut Log) -> Result<Ended, TitanError> {
    if path.as_os_str() == "-" {
        return read_from(path, std::io::stdin(), Some(GRACE), log);
    }
    read_from(path, open(path)?, is_stream(path).then_some(GRACE), log)
}

/// Whether a path is standard input or a pipe, which end when their writer does and cannot be looked at again.
pub fn is_stream(path: &Path) -> bool {
    let is_other = |metadata: std::fs::Metadata| !metadata.is_file() && !metadata.is_dir();
    path.as_os_str() == "-" || std::fs::metadata(path).is_ok_and(is_other)
}

/// Opens a file that is no folder.
pub fn open(path: &Path) -> Result<File, TitanError> {
    let unreadable = |source| TitanError::Unreadable { path: path.to_owned(), source };
    let file = File::open(path).map_err(unreadable)?;
    if file.metadata().map_err(unreadable)?.is_dir() {
        return Err(TitanError::IsFolder { path: path.to_owned() });
    }
    Ok(file)
}

fn read_from(
    path: &Path,
    source: impl Read + Send + 'static,
    grace: Option<Duration>,
    log: &mut Log,
) -> Result<Ended, TitanError> {
    // A thread of its own reads, so that Ctrl-C is heard while a pipe is silent, and unpacks while lines are read.
    let (sender, chunks) = sync_channel(4);
    std::thread::Builder::new()
        .name("titan-log".to_owned())
        .spawn(move || send_chunks(source, &sender))
        .map_err(|source| TitanError::Unreadable { path: path.to_owned(), source })?;
    receive(path, &chunks, grace, log)
}

/// What the thread that reads says.
enum Chunk {
    Bytes(Vec<u8>),
    Compressed(&'static str),
    Broken { is_gzip: bool, error: std::io::Error },
}

fn send_chunks(mut source: impl Read, to: &SyncSender<Chunk>) {
    let mut start = Vec::new();
    if let Err(error) = source.by_ref().take(6).read_to_end(&mut start) {
        let _ = to.send(Chunk::Broken { is_gzip: false, error });
        return;
    }
    let packing = packing(&start);
    let source = Cursor::new(start).chain(source);
    match packing {
        None => send_all(source, false, to),
        Some("gzip") => send_all(MultiGzDecoder::new(source), true, to),
        Some(format) => {
            let _ = to.send(Chunk::Compressed(format));
        }
    }
}

/// What a file is compressed with, by its first bytes.
pub fn packing(start: &[u8]) -> Option<&'static str> {
    let magic: [(&[u8], &str); 4] =
        [(b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zXZ", "xz"), (b"BZh", "bzip2")];
    magic.iter().find(|(magic, _)| start.starts_with(magic)).map(|(_, name)| *name)
}

fn send_all(mut source: impl Read, is_gzip: bool, to: &SyncSender<Chunk>) {
    loop {
        let mut chunk = vec![0; CHUNK];
        match source.read(&mut chunk) {
            Ok(0) => return,
            Ok(length) => {
                chunk.truncate(length);
                if to.send(Chunk::Bytes(chunk)).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                let _ = to.send(Chunk::Broken { is_gzip, error });
                return;
            }
        }
    }
}

fn receive(
    path: &Path,
    chunks: &Receiver<Chunk>,
    grace: Option<Duration>,
    log: &mut Log,
) -> Result<Ended, TitanError> {
    let mut lines = Lines::default();
    let mut asked: Option<Instant> = None;
    let mut ended = Ended::Whole;
    loop {
        if asked.is_none() && interrupt::requested() {
            asked = Some(Instant::now());
        }
        if asked.is_some_and(|asked| asked.elapsed() >= grace.unwrap_or_default()) {
            ended = Ended::Interrupted;
            break;
        }
        match chunks.recv_timeout(TICK) {
            Ok(Chunk::Bytes(bytes)) => lines.feed(&bytes, log),
            Ok(Chunk::Compressed(format)) => {
                return Err(TitanError::Compressed { path: path.to_owned(), format });
            }
            Ok(Chunk::Broken { is_gzip: true, error }) => {
                ended = Ended::Cut(match error.kind() {
                    ErrorKind::UnexpectedEof => "the compressed data end early".to_owned(),
                    _ => format!("the compressed data are broken: {error}"),
                });
                break;
            }
            Ok(Chunk::Broken { error, .. }) => {
                return Err(TitanError::Unreadable { path: path.to_owned(), source: error });
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    lines.finish(log);
    Ok(ended)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::titan::Rows;

    fn steps(log: &Log) -> u64 {
        log.tracks().iter().map(|track| track.step_lines).sum()
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_where_chunks_end(cuts in proptest::collection::vec(1..80_usize, 1..40)) {
            let text: String = (1..30).map(|step| format!("step: {step}  memory: {step}.00GiB(1%)\r\n")).collect();
            let (mut log, mut lines) = (Log::new(Rows::Spaced), Lines::default());
            let mut rest = text.as_bytes();
            for cut in cuts.iter().cycle() {
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                lines.feed(now, &mut log);
                rest = later;
                if rest.is_empty() { break; }
            }
            lines.finish(&mut log);
            prop_assert_eq!((log.lines, steps(&log)), (29, 29));
        }

        #[test]
        fn no_bytes_make_reading_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000), is_gzip: bool) {
            let bytes = if is_gzip { [b"\x1f\x8b\x08\x00".to_vec(), bytes].concat() } else { bytes };
            let _ = read_from(Path::new("noise"), Cursor::new(bytes), None, &mut Log::new(Rows::All));
        }
    }

    #[test]
    fn a_line_without_an_end_is_cut_and_the_next_is_read() {
        let (mut log, mut lines) = (Log::new(Rows::Spaced), Lines::default());
        for _ in 0..100 {
            lines.feed(&vec![b'x'; CHUNK], &mut log);
            assert!(lines.rest.len() <= LONGEST);
        }
        lines.feed(b"\nstep: 1  memory: 1.00GiB(1%)\n", &mut log);
        assert_eq!((log.lines, steps(&log)), (2, 1));
    }
}
