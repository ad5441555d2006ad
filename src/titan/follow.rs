//! A log that is still being written, read as `tail -F` does: it waits for more, and goes on after the file was
//! replaced or emptied.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use super::error::TitanError;
use super::input::{Lines, open, packing};
use super::track::Log;
use crate::interrupt;

const TICK: Duration = Duration::from_millis(200);

/// How the caller takes part.
pub trait Watcher {
    /// The file is not there yet.
    fn waits(&mut self);
    /// Everything that was written so far has been read, and some of it was new.
    fn caught_up(&mut self, log: &Log);
}

/// Reads a log until the user asks to stop.
///
/// # Errors
/// It cannot be read, or is compressed. A file that is not there yet is waited for.
pub fn follow(path: &Path, log: &mut Log, watcher: &mut dyn Watcher) -> Result<(), TitanError> {
    let mut lines = Lines::default();
    let mut open_file: Option<File> = None;
    let mut told = false;
    while !interrupt::requested() {
        let Some(file) = &mut open_file else {
            match open(path) {
                Ok(file) => {
                    refuse_compressed(path, &file)?;
                    open_file = Some(file);
                }
                Err(TitanError::Unreadable { source, .. }) if source.kind() == ErrorKind::NotFound => {
                    if !std::mem::replace(&mut told, true) {
                        watcher.waits();
                    }
                    std::thread::sleep(TICK);
                }
                Err(error) => return Err(error),
            }
            continue;
        };
        let unreadable = |source| TitanError::Unreadable { path: path.to_owned(), source };
        if read_on(file, &mut lines, log).map_err(unreadable)? {
            watcher.caught_up(log);
        }
        if was_emptied(file).map_err(unreadable)? {
            file.seek(SeekFrom::Start(0)).map_err(unreadable)?;
            lines.finish(log);
        } else if was_replaced(file, path) {
            // What was written between the last look and the replacement.
            read_on(file, &mut lines, log).map_err(unreadable)?;
            lines.finish(log);
            open_file = None;
            told = false;
        } else {
            std::thread::sleep(TICK);
        }
    }
    lines.finish(log);
    Ok(())
}

/// Reads to the present end; gives whether there was anything.
fn read_on(file: &mut File, lines: &mut Lines, log: &mut Log) -> std::io::Result<bool> {
    let mut chunk = vec![0; 256 << 10];
    let mut some = false;
    while !interrupt::requested() {
        match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(length) => {
                lines.feed(&chunk[..length], log);
                some = true;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(some)
}

fn refuse_compressed(path: &Path, mut file: &File) -> Result<(), TitanError> {
    let unreadable = |source| TitanError::Unreadable { path: path.to_owned(), source };
    let mut start = Vec::new();
    file.take(6).read_to_end(&mut start).map_err(unreadable)?;
    if packing(&start).is_some() {
        return Err(TitanError::CompressedFollowed { path: path.to_owned() });
    }
    file.seek(SeekFrom::Start(0)).map_err(unreadable)?;
    Ok(())
}

/// Whether the file is shorter than what was read of it.
fn was_emptied(file: &mut File) -> std::io::Result<bool> {
    Ok(file.metadata()?.len() < file.stream_position()?)
}

/// Whether the path leads to another file by now. While it leads nowhere the old one is kept.
fn was_replaced(file: &File, path: &Path) -> bool {
    let (Ok(here), Ok(there)) = (file.metadata(), std::fs::metadata(path)) else { return false };
    (here.dev(), here.ino()) != (there.dev(), there.ino())
}
