//! The files of run folders, as they are before anything of them is shown.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::BundleError;

/// What a run folder keeps as text. `torch-cycles.html` is not among it: torch's page asks the network for
/// its drawing, and what it draws is in the events.
const TEXTS: [&str; 9] = [
    "case.yaml",
    "environment.json",
    "events.jsonl",
    "control.jsonl",
    "verdict.json",
    "stdout.log",
    "cycles.json",
    "cycles.dot",
    "cycles.html",
];

/// A run folder's texts, by name.
#[derive(Debug)]
pub struct RunFiles {
    pub folder: PathBuf,
    pub texts: BTreeMap<String, String>,
}

impl RunFiles {
    /// Reads the texts and the case's own program.
    ///
    /// # Errors
    /// There is no such folder, or a file in it cannot be read.
    pub fn read(folder: &Path) -> Result<Self, BundleError> {
        let failed = |path: &Path, source| BundleError::Read { path: path.to_owned(), source };
        let mut texts = BTreeMap::new();
        for entry in std::fs::read_dir(folder).map_err(|source| failed(folder, source))? {
            let entry = entry.map_err(|source| failed(folder, source))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            // A link could lead to a file that was never part of the run.
            let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
            if is_file && (TEXTS.contains(&name.as_str()) || name.ends_with(".py")) {
                texts.insert(name, read(&entry.path())?);
            }
        }
        Ok(Self { folder: folder.to_owned(), texts })
    }
}

/// Reads a text. What a program printed need not be UTF-8.
///
/// # Errors
/// It cannot be read.
pub fn read(path: &Path) -> Result<String, BundleError> {
    let bytes = std::fs::read(path).map_err(|source| BundleError::Read { path: path.to_owned(), source })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
