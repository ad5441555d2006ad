//! Runs what is about to be handed over: `repro.py`, and torch's own list of versions.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use torchleak_protocol::Device;

use super::BundleError;
use super::redact::Redactor;
use crate::cache::Cache;
use crate::environment::{self, Environment, EnvironmentArgs, Progress, Request};
use crate::process::{Captured, Exit, capture};
use crate::run::{Kept, KeptEnvironment};

/// `collect_env` asks pip, nvidia-smi and others, each of which may be slow.
const VERSIONS_DEADLINE: Duration = Duration::from_secs(300);
/// The history of CUDA's memory, for pytorch.org/memory_viz.
pub const SNAPSHOT_FILE: &str = "memory-snapshot.pickle";
const SNAPSHOT: &str = include_str!("snapshot.py");
const NO_VERDICT: &str = "none";

/// What came of running `repro.py`.
#[derive(Debug, Clone, PartialEq)]
pub enum Verification {
    /// It says what the run says, with this torch.
    Agrees { seconds: f64, torch: String, is_the_runs: bool },
    /// It says something else, or nothing.
    Disagrees { word: String, exit: Exit },
    /// It was not run.
    NotRun { why: String },
}

impl Verification {
    /// In one sentence.
    pub fn sentence(&self, verdict: &str) -> String {
        match self {
            Self::Agrees { seconds, torch, is_the_runs } => {
                let other = if *is_the_runs { "" } else { ", which is not the torch of the run," };
                format!(
                    "`repro.py` was run with torch {torch}{other} and says `{verdict}` too ({seconds:.1} s)"
                )
            }
            Self::Disagrees { word, exit } if word == NO_VERDICT => {
                format!("`repro.py` gives no verdict ({exit}), and the run says `{verdict}`")
            }
            Self::Disagrees { word, exit } => {
                format!("`repro.py` says `{word}` ({exit}), and the run says `{verdict}`")
            }
            Self::NotRun { why } => format!("`repro.py` was not run here: {why}"),
        }
    }

    /// What must be said loudly: all but that it is as it should be.
    pub fn warning(&self, verdict: &str) -> Option<String> {
        match self {
            Self::Agrees { is_the_runs, .. } => (!is_the_runs).then(|| self.sentence(verdict) + "."),
            Self::Disagrees { .. } => {
                Some(format!("{}. Do not file this before you know why.", self.sentence(verdict)))
            }
            Self::NotRun { .. } => {
                Some(format!("{}. Run it where the leak is before you file this.", self.sentence(verdict)))
            }
        }
    }
}

/// What was seen in the environment.
#[derive(Debug)]
pub struct Verified {
    pub verification: Verification,
    /// What `repro.py` printed.
    pub output: Option<String>,
    /// What `python -m torch.utils.collect_env` printed.
    pub versions: Option<String>,
    /// Whether the history of CUDA's memory is in [`SNAPSHOT_FILE`].
    pub has_snapshot: bool,
}

/// Where things are run, and for how long.
#[derive(Clone, Copy)]
pub struct Where<'a> {
    pub args: &'a EnvironmentArgs,
    pub cache: &'a Cache,
    pub deadline: Duration,
    pub progress: &'a dyn Progress,
}

impl std::fmt::Debug for Where<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Where").field("args", self.args).finish_non_exhaustive()
    }
}

/// Runs `script`, which lies in `folder`, in the run's environment. `recorded` is what the run's own folder says of it,
/// before anything was taken out.
///
/// # Errors
/// The environment that the user names cannot be had, Python cannot be started, or the user asked to stop.
pub fn verify(
    run: &Kept,
    recorded: &KeptEnvironment,
    script: &Path,
    redactor: &Redactor,
    place: Where<'_>,
) -> Result<Verified, BundleError> {
    let found = find(run, recorded, place);
    place.progress.end();
    let environment = match found? {
        Ok(environment) => environment,
        Err(why) => {
            let verification = Verification::NotRun { why };
            return Ok(Verified { verification, output: None, versions: None, has_snapshot: false });
        }
    };
    let folder = script.parent().unwrap_or(Path::new("."));
    place.progress.begin("asking torch for the versions of everything");
    let mut command = environment.command();
    command.args(["-m", "torch.utils.collect_env"]).current_dir(folder);
    let versions = captured(command, VERSIONS_DEADLINE, place)?;
    place.progress.begin("running repro.py");
    let mut command = environment.command();
    command.arg(script).current_dir(folder);
    let started = Instant::now();
    let ran = captured(command, place.deadline, place)?;
    let seconds = started.elapsed().as_secs_f64();
    let verdict = run.outcome.verdict().map_or(NO_VERDICT, |verdict| verdict.word());
    let word = word(&ran);
    let verification = if word == verdict {
        let torch = environment.facts.torch.clone();
        let is_the_runs = torch == recorded.facts.torch;
        Verification::Agrees { seconds, torch, is_the_runs }
    } else {
        Verification::Disagrees { word: word.to_owned(), exit: ran.exit }
    };
    let has_snapshot = run.resolved.device == Device::Cuda && {
        place.progress.begin("recording the memory of repro.py");
        let out = folder.join(SNAPSHOT_FILE);
        let mut command = environment.command();
        command.args(["-c", SNAPSHOT]).arg(script).arg(&out).arg(redactor.pattern()).current_dir(folder);
        captured(command, place.deadline, place)?;
        out.is_file()
    };
    let text = |lines: Vec<String>| lines.join("\n") + "\n";
    Ok(Verified {
        verification,
        output: Some(text([ran.stdout, ran.stderr].concat())),
        versions: versions.exit.success().then(|| text(versions.stdout)),
        has_snapshot,
    })
}

/// The environment that the user names, else the run's own; or why that is not here.
fn find(
    run: &Kept,
    recorded: &KeptEnvironment,
    place: Where<'_>,
) -> Result<Result<Environment, String>, BundleError> {
    let Where { args, cache, progress, .. } = place;
    if run.resolved.ranks > 1 {
        return Ok(Err(format!("the case trains {} ranks, and the script one", run.resolved.ranks)));
    }
    if *args != EnvironmentArgs::default() {
        let environment = environment::resolve(args, cache, progress)?;
        return Ok(with_device(run, environment));
    }
    let python = &recorded.python_executable;
    if let Some(overlay) = &recorded.overlay {
        return Ok(Err(format!(
            "files of commit {:.10} were laid over its torch, for the run only",
            overlay.commit
        )));
    }
    if !python.is_file() {
        return Ok(Err(
            "its environment is not on this machine (choose one with --python or --torch)".to_owned()
        ));
    }
    let found = environment::resolve_request(&Request::Interpreter(python.clone()), cache, progress);
    let environment = match found {
        Ok(environment) => environment,
        Err(error) if error.is_interrupted() => return Err(BundleError::Interrupted),
        Err(error) => return Ok(Err(format!("its environment cannot be used any more: {error}"))),
    };
    let (here, there) = (&environment.facts, &recorded.facts);
    if (&here.torch, &here.torch_commit, &here.python) != (&there.torch, &there.torch_commit, &there.python) {
        return Ok(Err(format!(
            "its environment has torch {} on Python {} now, and the run had torch {} on Python {}",
            here.torch, here.python, there.torch, there.python
        )));
    }
    Ok(with_device(run, environment))
}

fn with_device(run: &Kept, environment: Environment) -> Result<Environment, String> {
    if run.resolved.device == Device::Cuda && environment.devices.is_empty() {
        return Err("the run was on CUDA, and there is no GPU here".to_owned());
    }
    Ok(environment)
}

fn captured(command: Command, deadline: Duration, place: Where<'_>) -> Result<Captured, BundleError> {
    let shown = crate::process::shown(&command);
    let ran = capture(command, deadline);
    place.progress.end();
    match ran {
        Ok(ran) if ran.exit == Exit::Interrupted => Err(BundleError::Interrupted),
        Ok(ran) => Ok(ran),
        Err(source) => Err(BundleError::Start { command: shown, source }),
    }
}

/// The script's last word. An exception is an error, as it is in a run.
fn word(ran: &Captured) -> &str {
    let said = ran.stdout.iter().rev().find_map(|line| line.strip_prefix("verdict: "));
    match said {
        Some(word) => word.trim(),
        None if ran.stderr.iter().any(|line| line.starts_with("Traceback (most recent call last)")) => {
            "error"
        }
        None => NO_VERDICT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_of_a_script_counts_and_an_exception_is_an_error() {
        let ran = |stdout: &[&str], stderr: &[&str]| Captured {
            exit: Exit::Exited(1),
            stdout: stdout.iter().map(|line| (*line).to_owned()).collect(),
            stderr: stderr.iter().map(|line| (*line).to_owned()).collect(),
        };
        assert_eq!(word(&ran(&["verdict: fixed", "verdict: reproduced", "bye"], &[])), "reproduced");
        assert_eq!(word(&ran(&["step 3"], &["Traceback (most recent call last):", "ValueError"])), "error");
        assert_eq!(word(&ran(&[], &["Killed"])), "none");
    }

    #[test]
    fn what_is_not_as_it_should_be_is_said_loudly() {
        let wrong = Verification::Disagrees { word: "fixed".to_owned(), exit: Exit::Exited(0) };
        assert!(wrong.warning("reproduced").unwrap().contains("says `fixed`"));
        let why = "its environment is not on this machine".to_owned();
        assert!(Verification::NotRun { why }.warning("fixed").unwrap().contains("was not run here"));
        let agrees =
            |is_the_runs| Verification::Agrees { seconds: 1.0, torch: "2.8.0".to_owned(), is_the_runs };
        assert_eq!(agrees(true).warning("fixed"), None);
        assert!(agrees(false).warning("fixed").unwrap().contains("not the torch of the run"));
    }
}
