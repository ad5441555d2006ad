//! Finds Python interpreters to make environments from.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use super::check::{self, Interpreter};
use super::error::EnvironmentError;
use super::request::DEFAULT_PYTHON_MINORS;

/// The `python3` that a person would get.
pub(super) fn on_path() -> Result<Option<Interpreter>, EnvironmentError> {
    match which::which("python3") {
        Ok(path) => usable(&path),
        Err(_) => Ok(None),
    }
}

/// The interpreter to use for a minor version, or, without one, the `python3` on PATH if it is of the usual versions
/// and the newest of those found elsewhere if not. None if the machine has none; `uv` may then be able to get one.
pub(super) fn choose(minor: Option<u32>) -> Result<Option<Interpreter>, EnvironmentError> {
    let fits = |found: &Interpreter| {
        !found.free_threaded
            && found.minor().is_some_and(|has| match minor {
                Some(wanted) => has == wanted,
                None => DEFAULT_PYTHON_MINORS.contains(&has),
            })
    };
    if let Some(found) = on_path()?.filter(fits) {
        return Ok(Some(found));
    }
    Ok(all()?.into_iter().filter(fits).max_by_key(|found| found.version))
}

/// Every usable interpreter on PATH, in pyenv and among those `uv` manages, each once.
pub(super) fn all() -> Result<Vec<Interpreter>, EnvironmentError> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for path in candidates() {
        let Ok(real) = fs::canonicalize(&path) else { continue };
        if seen.insert(real) {
            found.extend(usable(&path)?);
        }
    }
    found.sort_by_key(|interpreter| interpreter.version);
    Ok(found)
}

fn usable(path: &Path) -> Result<Option<Interpreter>, EnvironmentError> {
    match check::interpreter(path) {
        Ok(found) => Ok(found.is_usable().then_some(found)),
        Err(error) if error.is_interrupted() => Err(error),
        // A shim without a version behind it or a broken interpreter is no candidate; that is all there is to say.
        Err(_) => Ok(None),
    }
}

fn candidates() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in env::var_os("PATH").iter().flat_map(env::split_paths) {
        // pyenv's shims stand for what its own folder holds, and most of them only fail.
        if !folder.ends_with("shims") {
            found.extend(interpreters_in(&folder));
        }
    }
    let home = etcetera::home_dir().ok();
    let pyenv = env::var_os("PYENV_ROOT").map(PathBuf::from).or_else(|| Some(home.as_ref()?.join(".pyenv")));
    let uv = env::var_os("UV_PYTHON_INSTALL_DIR")
        .map(PathBuf::from)
        .or_else(|| Some(home.as_ref()?.join(".local/share/uv/python")));
    for root in pyenv.map(|root| root.join("versions")).into_iter().chain(uv) {
        for version in fs::read_dir(root).into_iter().flatten().flatten() {
            found.push(version.path().join("bin/python3"));
        }
    }
    found
}

fn interpreters_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| is_interpreter(&entry.file_name().to_string_lossy()))
        .map(|e| e.path())
        .collect();
    found.sort();
    found
}

/// `python3` and `python3.12`, but not `python3-config` or `python3.12-gdb.py`.
fn is_interpreter(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("python3") else { return false };
    match rest.strip_prefix('.') {
        Some(minor) => !minor.is_empty() && minor.chars().all(|c| c.is_ascii_digit()),
        None => rest.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_interpreters_are_told_from_their_neighbours() {
        for name in ["python3", "python3.10", "python3.13"] {
            assert!(is_interpreter(name), "{name}");
        }
        for name in ["python", "python3-config", "python3.12-gdb.py", "python3.", "ipython3", "python2.7"] {
            assert!(!is_interpreter(name), "{name}");
        }
    }

    #[test]
    fn an_interpreter_is_found_once_and_is_of_a_usable_version() {
        let found = all().unwrap();
        assert!(found.iter().all(Interpreter::is_usable));
        let mut real: Vec<_> = found.iter().map(|f| fs::canonicalize(&f.executable).unwrap()).collect();
        let count = real.len();
        real.sort();
        real.dedup();
        assert_eq!(real.len(), count);
    }
}
