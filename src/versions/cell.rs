//! A cell: what one case shows on one version.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use torchleak_protocol::Device;

use crate::case::{Case, Verdict};
use crate::environment::Environment;
use crate::run::{CaseOutcome, Outcome, RunError, RunOptions, Watcher};

/// What one case showed in one environment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    pub case: String,
    /// The name of the candidate.
    pub label: String,
    /// `torch.__version__`.
    pub torch: String,
    /// The commit torch was built from.
    pub torch_commit: Option<String>,
    /// The commit whose Python files were laid over it, if any were.
    #[serde(default)]
    pub overlay: Option<String>,
    /// The full Python version.
    pub python: String,
    pub device: Device,
    /// None where the case does not run on this device.
    pub verdict: Option<Verdict>,
    pub reason: String,
    pub expected: Option<Verdict>,
    /// Whether the verdict is the expected one or, where nothing is expected, is one at all.
    pub ok: bool,
    /// Bytes per step of the uncollected arm, where they were measured.
    pub growth: Option<f64>,
    /// Seconds for all cells of this environment that ran together, the import of torch included, divided by their
    /// number.
    pub seconds: f64,
    /// Where the evidence is kept.
    pub run_dir: Option<PathBuf>,
    /// Whether it was not run now but is from an earlier run.
    #[serde(default)]
    pub cached: bool,
}

/// Runs the cases in the environment, together, and gives a cell for each that was not interrupted.
///
/// # Errors
/// Nothing could be run at all.
pub fn run_cells(
    cases: &[Case],
    label: &str,
    environment: &Environment,
    options: &RunOptions,
    watcher: &mut dyn Watcher,
) -> Result<Vec<Cell>, RunError> {
    let started = Instant::now();
    let outcomes = crate::run::run(cases, environment, options, watcher)?;
    let share = started.elapsed().div_f64(outcomes.len().max(1) as f64);
    let finished = outcomes.into_iter().filter(|outcome| !matches!(outcome.outcome, Outcome::Interrupted));
    Ok(finished.map(|outcome| cell(&outcome, label, environment, options.device, share)).collect())
}

fn cell(
    outcome: &CaseOutcome,
    label: &str,
    environment: &Environment,
    device: Device,
    share: Duration,
) -> Cell {
    Cell {
        case: outcome.name.clone(),
        label: label.to_owned(),
        torch: environment.facts.torch.clone(),
        torch_commit: environment.facts.torch_commit.clone(),
        overlay: environment.overlay().map(|overlay| overlay.commit.clone()),
        python: environment.facts.python.clone(),
        device,
        verdict: outcome.verdict(),
        reason: outcome.reason().to_owned(),
        expected: outcome.expected,
        ok: outcome.is_ok(),
        growth: outcome.numbers().map(|numbers| numbers.growth),
        seconds: share.as_secs_f64(),
        run_dir: outcome.folder.clone(),
        cached: false,
    }
}
