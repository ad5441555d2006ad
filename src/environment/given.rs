//! An interpreter that the user has: it is looked at, never changed.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::check;
use super::error::EnvironmentError;
use super::facts::Facts;
use super::progress::Progress;
use crate::cache::{Cache, write_whole};

/// Finds the interpreter that a path or a name means and says what torch it has.
pub(super) fn find(
    given: &Path,
    cache: &Cache,
    progress: &dyn Progress,
) -> Result<(PathBuf, Facts), EnvironmentError> {
    let python = interpreter(given)?;
    let located = check::locate(&python)?;
    // Importing torch takes seconds, so the answer is kept for as long as interpreter and torch stay as they are.
    let id = Sha256::digest(format!("{}\n{located}", python.display()).as_bytes());
    let id: String = id.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let kept = cache.checked().join(format!("{id}.json"));
    if let Some(facts) = fs::read_to_string(&kept).ok().and_then(|text| serde_json::from_str(&text).ok()) {
        return Ok((python, facts));
    }
    progress.begin(&format!("checking the torch of {}", python.display()));
    let facts = check::facts(&python)?;
    // An interpreter of one's own needs no cache; without it, this is asked again next time.
    let keep = cache.prepare(&cache.checked()).map_err(|error| error.to_string()).and_then(|()| {
        let text = serde_json::to_string(&facts).map_err(|error| error.to_string())?;
        write_whole(&kept, &text).map_err(|error| error.to_string())
    });
    if let Err(error) = keep {
        tracing::debug!("cannot keep the facts of {}: {error}", python.display());
    }
    Ok((python, facts))
}

/// A virtual environment's folder means its interpreter; a bare name is looked up on PATH, as a shell does.
fn interpreter(given: &Path) -> Result<PathBuf, EnvironmentError> {
    let missing = || EnvironmentError::NoPythonAt(given.to_owned());
    if given.is_dir() {
        // Links are kept: a virtual environment is known by the path it is called by.
        let python =
            ["bin/python", "bin/python3"].iter().map(|name| given.join(name)).find(|path| path.exists());
        return absolute(&python.ok_or_else(missing)?);
    }
    if given.exists() {
        return absolute(given);
    }
    if given.components().count() == 1 && env::var_os("PATH").is_some() {
        return which::which(given).map_err(|_| missing());
    }
    Err(missing())
}

fn absolute(path: &Path) -> Result<PathBuf, EnvironmentError> {
    std::path::absolute(path).map_err(|source| EnvironmentError::Io {
        action: "find",
        path: path.to_owned(),
        source,
    })
}
