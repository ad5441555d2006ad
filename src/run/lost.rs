//! What of a run folder could not be written.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Files that a run folder lacks. A verdict is told without them, and then the command fails.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LostFiles(Vec<LostFile>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct LostFile {
    path: PathBuf,
    /// What the operating system said; its error cannot be cloned.
    cause: String,
}

impl LostFiles {
    /// Writes a file, or notes why it is lost. What was written of it goes, because it would pass for the whole.
    pub fn write(&mut self, path: PathBuf, text: &str) {
        if let Err(error) = std::fs::write(&path, text) {
            // A file that cannot be removed either is named as lost all the same.
            let _ = std::fs::remove_file(&path);
            self.note(path, &error);
        }
    }

    /// Notes that a file is lost, or not whole; once is enough.
    pub fn note(&mut self, path: PathBuf, cause: &io::Error) {
        if !self.0.iter().any(|lost| lost.path == path) {
            self.0.push(LostFile { path, cause: cause.to_string() });
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of these and all of those.
    pub fn extend(&mut self, others: &Self) {
        self.0.extend(others.0.iter().cloned());
    }
}

impl fmt::Display for LostFiles {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, LostFile { path, cause }) in self.0.iter().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(formatter, "{comma}`{}` ({cause})", path.display())?;
        }
        Ok(())
    }
}
