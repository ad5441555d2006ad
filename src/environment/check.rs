//! Asks interpreters what they are, in processes of their own.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Environment;
use super::error::EnvironmentError;
use super::facts::{Device, Facts};
use crate::process::{self, Captured, Exit};

const SOURCE: &str = include_str!("check.py");
const MARK: &str = "torchleak-check: ";

/// A cold import of torch from a busy network disk takes minutes.
const IMPORT_DEADLINE: Duration = Duration::from_secs(600);
/// A shim or a broken interpreter must not hold up a search.
const QUICK_DEADLINE: Duration = Duration::from_secs(30);

/// What an interpreter says of itself without torch.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Interpreter {
    pub(super) executable: PathBuf,
    pub(super) python: String,
    pub(super) version: [u32; 3],
    pub(super) implementation: String,
    pub(super) free_threaded: bool,
}

impl Interpreter {
    /// Whether torchleak's worker can run on it.
    pub(super) fn is_usable(&self) -> bool {
        self.implementation == "CPython" && self.version >= [3, 10, 0]
    }

    /// Its minor version, if it is a Python 3.
    pub(super) fn minor(&self) -> Option<u32> {
        (self.version[0] == 3).then_some(self.version[1])
    }
}

/// Asks what an interpreter is; quick.
pub(super) fn interpreter(python: &Path) -> Result<Interpreter, EnvironmentError> {
    let asked = ask(python, "interpreter", QUICK_DEADLINE)?;
    parse(python, &asked)
}

/// Asks where an interpreter has torch, without importing it. The answer, as text, changes when torch is replaced.
pub(super) fn locate(python: &Path) -> Result<String, EnvironmentError> {
    #[derive(Deserialize)]
    struct Located {
        #[serde(flatten)]
        interpreter: Interpreter,
        torch: Option<serde_json::Value>,
    }
    let asked = ask(python, "locate", QUICK_DEADLINE)?;
    let found: Located = parse(python, &asked)?;
    if !found.interpreter.is_usable() {
        let what = format!("{} {}", found.interpreter.implementation, found.interpreter.python);
        return Err(EnvironmentError::UnusablePython { path: python.to_owned(), what });
    }
    if found.torch.is_none() {
        return Err(EnvironmentError::NoTorch(python.to_owned()));
    }
    Ok(line(&asked).unwrap_or_default().to_owned())
}

/// Imports torch and says what it is.
pub(super) fn facts(python: &Path) -> Result<Facts, EnvironmentError> {
    facts_of(python, "facts")
}

/// As [`facts`], and imports what workers import, so that its bytecode is there before the environment is ready:
/// importing torch without it takes more than twice as long. A torch whose Dynamo cannot be imported has none, and is
/// used without.
pub(super) fn facts_of_new(python: &Path) -> Result<Facts, EnvironmentError> {
    facts_of(python, "made")
}

fn facts_of(python: &Path, how: &str) -> Result<Facts, EnvironmentError> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Answer {
        Failed { import_error: Vec<String> },
        Known(Box<Facts>),
    }
    let asked = ask(python, how, IMPORT_DEADLINE)?;
    let broken = |problem| EnvironmentError::BrokenTorch { python: python.to_owned(), problem };
    if line(&asked).is_none() {
        // The interpreter itself answered before, so torch ended it.
        return Err(broken(ended(&asked)));
    }
    match parse(python, &asked)? {
        Answer::Known(facts) => Ok(*facts),
        Answer::Failed { import_error } => Err(broken(import_error.join("\n"))),
    }
}

/// Where an interpreter is, and its torch.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Layout {
    /// The interpreter that a virtual environment was made of, or the interpreter itself.
    pub(super) base_executable: PathBuf,
    pub(super) prefix: PathBuf,
    pub(super) base_prefix: PathBuf,
    /// The minor version of Python 3.
    pub(super) minor: u32,
    /// Where it has packages installed.
    pub(super) purelib: PathBuf,
    /// The folder that holds the folder `torch`.
    pub(super) site: Option<PathBuf>,
    /// Whether that is a folder for installed packages, and no checkout of PyTorch.
    pub(super) is_installed: bool,
}

impl Layout {
    pub(super) fn is_virtual(&self) -> bool {
        self.prefix != self.base_prefix
    }
}

/// Asks an environment, by the interpreter that is given, where it and its torch are.
pub(super) fn layout(environment: &Environment, python: &Path) -> Result<Layout, EnvironmentError> {
    let asked = ask_as(environment.command_of(python), &["layout".as_ref()], QUICK_DEADLINE)?;
    parse(python, &asked)
}

/// Imports torch and the modules that are listed in the file, as this environment does. Gives the module that failed
/// and the last lines of its traceback, if one did.
pub(super) fn modules(
    environment: &Environment,
    python: &Path,
    list: &Path,
) -> Result<Option<(String, String)>, EnvironmentError> {
    #[derive(Deserialize)]
    struct Answer {
        module: Option<String>,
        import_error: Vec<String>,
    }
    let words = ["modules".as_ref(), list.as_os_str()];
    let asked = ask_as(environment.command_of(python), &words, IMPORT_DEADLINE)?;
    if line(&asked).is_none() {
        // The interpreter itself answered before, so a module ended it.
        return Ok(Some(("torch".to_owned(), ended(&asked))));
    }
    let answer: Answer = parse(python, &asked)?;
    Ok(answer.module.map(|module| (module, answer.import_error.join("\n"))))
}

/// Asks torch for its devices. This starts CUDA, in a process that has no other purpose.
pub(super) fn devices(python: &Path) -> Result<Vec<Device>, EnvironmentError> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Answer {
        Known { devices: Vec<Device> },
        Failed { device_error: Vec<String> },
    }
    let asked = ask(python, "devices", IMPORT_DEADLINE)?;
    let broken = |problem| EnvironmentError::BrokenTorch { python: python.to_owned(), problem };
    if line(&asked).is_none() {
        return Err(broken(ended(&asked)));
    }
    match parse(python, &asked)? {
        Answer::Known { devices } => Ok(devices),
        Answer::Failed { device_error } => Err(broken(device_error.join("\n"))),
    }
}

fn ask(python: &Path, what: &str, deadline: Duration) -> Result<Captured, EnvironmentError> {
    let mut command = Command::new(python);
    if what == "made" {
        command.env_remove("PYTHONDONTWRITEBYTECODE");
    } else {
        command.env("PYTHONDONTWRITEBYTECODE", "1");
    }
    ask_as(command, &[what.as_ref()], deadline)
}

fn ask_as(mut command: Command, words: &[&OsStr], deadline: Duration) -> Result<Captured, EnvironmentError> {
    let python = PathBuf::from(command.get_program());
    // `-c` puts the current folder first on the path; in a checkout of PyTorch that would be another torch.
    command.args(["-c", SOURCE]).args(words).current_dir("/").env("PYTHONSAFEPATH", "1");
    let asked = process::capture(command, deadline).map_err(|source| EnvironmentError::NotPython {
        path: python.clone(),
        problem: source.to_string(),
    })?;
    if asked.exit == Exit::Interrupted {
        return Err(EnvironmentError::Interrupted(format!("asking {} what it is", python.display())));
    }
    Ok(asked)
}

fn line(asked: &Captured) -> Option<&str> {
    asked.stdout.iter().rev().find_map(|line| line.strip_prefix(MARK))
}

fn parse<T: DeserializeOwned>(python: &Path, asked: &Captured) -> Result<T, EnvironmentError> {
    let not_python = |problem| EnvironmentError::NotPython { path: python.to_owned(), problem };
    let line = line(asked).ok_or_else(|| not_python(ended(asked)))?;
    serde_json::from_str(line).map_err(|error| not_python(format!("it answered {line}: {error}")))
}

fn ended(asked: &Captured) -> String {
    let mut problem = format!("it ended with {} and no answer", asked.exit);
    let lines: Vec<_> = asked.stderr.iter().filter(|line| !line.trim().is_empty()).collect();
    for line in &lines[lines.len().saturating_sub(6)..] {
        problem.push('\n');
        problem.push_str(line);
    }
    problem
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn program(script: &str) -> tempfile::TempPath {
        let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        file
    }

    #[test]
    fn a_program_that_is_no_interpreter_is_told_with_what_it_printed() {
        let shim = program("echo 'shim: command not found' >&2; exit 127");
        let error = interpreter(&shim).unwrap_err().to_string();
        assert!(error.contains("exit code 127") && error.contains("shim: command not found"), "{error}");
    }

    #[test]
    fn what_start_up_code_prints_does_not_hide_the_answer() {
        let noisy = program(r#"echo junk; printf 'torchleak-check: '; echo; exec python3 "$@""#);
        assert!(interpreter(&noisy).unwrap().is_usable());
    }

    #[test]
    fn an_answer_that_is_garbage_is_an_error() {
        let liar = program("echo 'torchleak-check: {}'");
        assert!(matches!(interpreter(&liar), Err(EnvironmentError::NotPython { .. })));
    }
}
