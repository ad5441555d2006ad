//! The lock of one thing in the cache: exclusive while it is made or removed, shared while it is used.
//!
//! The kernel drops a lock when its holder dies, however it dies, so there are no stale ones.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::error::EnvironmentError;
use super::progress::Progress;
use crate::interrupt;

const POLL: Duration = Duration::from_millis(100);

/// A lock that is held until it is dropped.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Many may use a thing at once.
    Shared,
    /// One makes or removes it.
    Exclusive,
}

impl Lock {
    /// Takes the lock if nobody stands in the way.
    pub(super) fn try_take(path: &Path, kind: Kind) -> Result<Option<Self>, EnvironmentError> {
        let failed = |source| EnvironmentError::Io { action: "lock", path: path.to_owned(), source };
        loop {
            let file = open(path).map_err(failed)?;
            let taken = match kind {
                Kind::Shared => file.try_lock_shared(),
                Kind::Exclusive => file.try_lock(),
            };
            match taken {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
            // Whoever removed the thing removed its lock file too; a lock on that old file protects nothing.
            if is_at(&file, path).map_err(failed)? {
                let mut lock = Self { file, path: path.to_owned() };
                if kind == Kind::Exclusive {
                    // Only for the message of whoever waits; the lock holds without it.
                    let _ = lock.sign();
                }
                return Ok(Some(lock));
            }
        }
    }

    /// Waits for the exclusive lock, and tells for whom.
    pub(super) fn wait(path: &Path, what: &str, progress: &dyn Progress) -> Result<Self, EnvironmentError> {
        let mut waiting = Waiting::new(what);
        loop {
            if let Some(lock) = Self::try_take(path, Kind::Exclusive)? {
                return Ok(lock);
            }
            waiting.pause(path, progress)?;
        }
    }

    /// Removes the lock file; for whoever removed what it protects.
    pub(super) fn remove(self) -> io::Result<()> {
        std::fs::remove_file(&self.path)
    }

    fn sign(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        write!(self.file, "{}", std::process::id())
    }
}

/// Waits between two tries, says so once, and hears Ctrl-C.
pub(super) struct Waiting<'a> {
    what: &'a str,
    tries: u32,
}

impl<'a> Waiting<'a> {
    pub(super) fn new(what: &'a str) -> Self {
        Self { what, tries: 0 }
    }

    pub(super) fn pause(&mut self, path: &Path, progress: &dyn Progress) -> Result<(), EnvironmentError> {
        if interrupt::requested() {
            return Err(EnvironmentError::Interrupted(format!("waiting for {}", self.what)));
        }
        self.tries += 1;
        // Short holds, as between two lookers, are not worth a word.
        if self.tries == 5 {
            let who =
                holder(path).map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
            progress.begin(&format!("waiting for {who}, which is busy with {}", self.what));
        }
        // Different processes look at different moments, so they do not block each other for ever.
        thread::sleep(POLL + Duration::from_millis(u64::from(std::process::id() % 37)));
        Ok(())
    }
}

/// The process that last took the lock exclusively.
pub(super) fn holder(path: &Path) -> Option<u32> {
    let mut text = String::new();
    File::open(path).ok()?.take(20).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    match file {
        // A cache that others made can be used, though not changed.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            File::open(path).map_err(|_| error)
        }
        other => other,
    }
}

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let held = file.metadata()?;
    match std::fs::metadata(path) {
        Ok(there) => Ok(there.ino() == held.ino() && there.dev() == held.dev()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_share_but_one_excludes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let take = |kind| Lock::try_take(&path, kind).unwrap();
        let first = take(Kind::Shared).unwrap();
        let second = take(Kind::Shared).unwrap();
        assert!(take(Kind::Exclusive).is_none());
        drop((first, second));
        let alone = take(Kind::Exclusive).unwrap();
        assert!(take(Kind::Shared).is_none());
        assert_eq!(holder(&path), Some(std::process::id()));
        drop(alone);
        assert!(take(Kind::Shared).is_some());
    }

    #[test]
    fn a_lock_file_that_was_removed_is_taken_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let lock = Lock::try_take(&path, Kind::Exclusive).unwrap().unwrap();
        lock.remove().unwrap();
        assert!(Lock::try_take(&path, Kind::Exclusive).unwrap().is_some());
        assert!(path.exists());
    }
}
