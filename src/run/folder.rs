//! The folder of one run of one case: everything that a verdict stands on.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use torchleak_protocol::ArmEvent;

use super::{CaseOutcome, LostFiles, RankOutcome, RunError};
use crate::case::Case;
use crate::cycles::{Diagnosis, dot, html};
use crate::environment::Environment;
use crate::verdict::Numbers;
use crate::worker::LogSink;

/// The events of the arms.
pub const EVENTS: &str = "events.jsonl";

/// What the arms print.
pub const LOG: &str = "stdout.log";

/// A run folder that is being written.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    events: File,
    log: Arc<Mutex<Log>>,
}

/// What the arms print, and why the file has not all of it.
#[derive(Debug)]
struct Log {
    file: File,
    failed: Option<io::Error>,
}

/// What `environment.json` holds.
#[derive(Serialize)]
struct EnvironmentFile<'a> {
    schema: u32,
    torchleak: &'static str,
    python_executable: &'a Path,
    #[serde(flatten)]
    facts: &'a crate::environment::Facts,
    devices: &'a [crate::environment::Device],
    /// What was laid over torch: its version and commit above are still those of the release.
    #[serde(skip_serializing_if = "Option::is_none")]
    overlay: Option<&'a crate::environment::Overlay>,
    environment_variables: Vec<String>,
}

/// One line of `events.jsonl` or `control.jsonl`.
#[derive(Serialize)]
struct EventLine<'a> {
    arm: &'a str,
    /// Which of the arm's ranks, where it has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    rank: Option<u32>,
    #[serde(flatten)]
    event: &'a ArmEvent,
}

impl RunFolder {
    /// Makes `<runs>/<time>-<case>` and writes the case and the environment into it.
    pub fn create(runs: &Path, case: &Case, environment: &Environment) -> Result<Self, RunError> {
        let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let failed = |path: &Path, source| RunError::Folder { path: path.to_owned(), source };
        std::fs::create_dir_all(runs).map_err(|source| failed(runs, source))?;
        let path = make_new_folder(runs, &format!("{time}-{}", case.name()))
            .map_err(|(path, source)| failed(&path, source))?;
        Self::fill(path.clone(), case, environment).map_err(|source| failed(&path, source))
    }

    fn fill(path: PathBuf, case: &Case, environment: &Environment) -> io::Result<Self> {
        std::fs::write(path.join("case.yaml"), &case.source)?;
        if let (Some(name), Some(text)) = (&case.spec.program, &case.program_source) {
            std::fs::write(path.join(name), text)?;
        }
        let description = EnvironmentFile {
            schema: 1,
            torchleak: env!("CARGO_PKG_VERSION"),
            python_executable: &environment.python,
            facts: &environment.facts,
            devices: &environment.devices,
            overlay: environment.overlay(),
            environment_variables: relevant_variables(),
        };
        std::fs::write(path.join("environment.json"), serde_json::to_string_pretty(&description)? + "\n")?;
        let append = |name| OpenOptions::new().create(true).append(true).open(path.join(name));
        let events = append(EVENTS)?;
        let log = Arc::new(Mutex::new(Log { file: append(LOG)?, failed: None }));
        Ok(Self { path, events, log })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes one event; it is in the file when this returns.
    pub fn record(&mut self, arm: &str, rank: Option<u32>, event: &ArmEvent) -> io::Result<()> {
        self.events.write_all(event_line(arm, rank, event)?.as_bytes())
    }

    /// Notes that an arm begins anew: what it reported until here does not count.
    pub fn record_restart(&mut self, arm: &str) -> io::Result<()> {
        self.events.write_all(restart_line(arm).as_bytes())
    }

    /// Writes the verdict with its numbers, and after it what it stands on: what the positive control reported,
    /// without which no verdict holds that says that nothing was found, and the diagnosis. Gives what is lost.
    pub fn conclude(&self, outcome: &CaseOutcome, control: &str) -> LostFiles {
        let mut lost = LostFiles::default();
        lost.write(self.path.join("verdict.json"), &verdict_text(outcome));
        lost.write(self.path.join("control.jsonl"), control);
        if let Some(diagnosis) = &outcome.diagnosis {
            lost.extend(&write_diagnosis(&self.path, &outcome.name, diagnosis));
        }
        if let Some(error) = self.log.lock().unwrap_or_else(PoisonError::into_inner).failed.take() {
            lost.note(self.path.join(LOG), &error);
        }
        lost
    }

    /// Gives the log for what an arm prints. Each line gets the arm's name, because arms print at the
    /// same time.
    pub fn log(&self, arm: &str) -> LogSink {
        let (log, arm) = (Arc::clone(&self.log), arm.to_owned());
        Arc::new(move |line| {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(error) = writeln!(log.file, "[{arm}] {line}") {
                // The arm goes on, because its events may have room still.
                log.failed = Some(error);
            }
        })
    }
}

/// `verdict.json`.
fn verdict_text(outcome: &CaseOutcome) -> String {
    let ranks: Vec<_> = outcome
        .ranks
        .iter()
        .map(|RankOutcome { judgement, .. }| {
            serde_json::json!({
                "verdict": judgement.verdict.word(),
                "reason": judgement.reason,
                "numbers": judgement.numbers.as_ref().map(numbers_json),
            })
        })
        .collect();
    let verdict = serde_json::json!({
        "schema": 1,
        "name": outcome.name,
        "device": outcome.device,
        "verdict": outcome.verdict().map(|verdict| verdict.word()),
        "reason": outcome.reason(),
        "expected": outcome.expected.map(|verdict| verdict.word()),
        "ok": outcome.is_ok(),
        "seconds": outcome.seconds,
        "numbers": outcome.numbers().map(numbers_json),
        "ranks": ranks,
        "native": outcome.native,
    });
    format!("{verdict:#}\n")
}

fn numbers_json(numbers: &Numbers) -> serde_json::Value {
    serde_json::json!({
        "predicted_bytes_per_step": numbers.predicted.map(|predicted| predicted.total),
        "predicted_garbage_bytes_per_step": numbers.predicted.map(|predicted| predicted.in_garbage),
        "garbage_bytes_per_step": numbers.garbage.bytes,
        "garbage_objects_per_step": numbers.garbage.objects,
        "growth_bytes_per_step": numbers.growth,
        "growth_collected_bytes_per_step": numbers.growth_collected,
        "freed_bytes_per_collect": numbers.freed,
    })
}

/// Writes a diagnosis into a run folder, as data, as a graph and as a page, and gives what is lost. `name` is the
/// page's title.
pub fn write_diagnosis(folder: &Path, name: &str, diagnosis: &Diagnosis) -> LostFiles {
    let mut lost = LostFiles::default();
    match serde_json::to_string_pretty(diagnosis) {
        Ok(json) => lost.write(folder.join("cycles.json"), &(json + "\n")),
        Err(error) => lost.note(folder.join("cycles.json"), &error.into()),
    }
    lost.write(folder.join("cycles.dot"), &dot(diagnosis));
    lost.write(folder.join("cycles.html"), &html(name, diagnosis));
    lost
}

/// One event as a line of `events.jsonl` or `control.jsonl`.
pub fn event_line(arm: &str, rank: Option<u32>, event: &ArmEvent) -> io::Result<String> {
    Ok(serde_json::to_string(&EventLine { arm, rank, event })? + "\n")
}

/// The line that says that an arm begins anew.
pub fn restart_line(arm: &str) -> String {
    format!("{}\n", serde_json::json!({"arm": arm, "event": "restarted"}))
}

/// Makes a folder that was not there. Runs in the same second get a number.
pub fn make_new_folder(runs: &Path, name: &str) -> Result<PathBuf, (PathBuf, io::Error)> {
    let mut path = runs.join(name);
    for number in 2.. {
        match std::fs::create_dir(&path) {
            Ok(()) => break,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1000 => {
                path = runs.join(format!("{name}-{number}"));
            }
            Err(error) => return Err((path, error)),
        }
    }
    Ok(path)
}

/// Variables that change what Python, torch or an allocator does. Values that may be secret are not
/// among them.
pub(crate) fn relevant_variables() -> Vec<String> {
    const PREFIXES: [&str; 10] = [
        "PYTHON",
        "PYTORCH_",
        "TORCH",
        "CUDA_",
        "CUBLAS_",
        "OMP_",
        "MKL_",
        "KMP_",
        "MALLOC_",
        "GLIBC_TUNABLES",
    ];
    let mut found: Vec<String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    found.sort();
    found
}
