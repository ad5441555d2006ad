//! A cell: what one case shows on one version.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use torchleak_protocol::Device;

use super::Unavailable;
use crate::case::{Case, Verdict};
use crate::environment::Environment;
use crate::run::{CaseOutcome, Outcome, RunError, RunOptions, Watcher, all_kept};

/// What one case showed in one environment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    pub case: String,
    /// The name of the candidate.
    #[serde(rename = "torch")]
    pub label: String,
    /// `torch.__version__`.
    #[serde(rename = "build")]
    pub torch: String,
    /// The commit torch was built from.
    #[serde(rename = "commit")]
    pub torch_commit: Option<String>,
    /// The commit whose Python files were laid over it, if any were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    /// Whole bytes per step of the uncollected arm, where they were measured.
    #[serde(rename = "growth_bytes_per_step")]
    pub growth: Option<i64>,
    /// As in [`CaseOutcome`]; 0 where nothing was run.
    pub seconds: f64,
    /// Where the evidence is kept.
    pub run_dir: Option<PathBuf>,
    /// Whether it was not run now but is from an earlier run.
    #[serde(default)]
    pub cached: bool,
}

/// How a cell stands to what is expected, the worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    Expected,
    /// It has no verdict, which breaks no expectation: the case is about another device, or the version was never built.
    Skipped,
    Unexpected,
    /// There should be a verdict that tells, and there is none.
    NoVerdict,
}

impl Cell {
    /// What a case came to in an environment that is called `label`.
    pub fn of(outcome: &CaseOutcome, label: &str, environment: &Environment) -> Self {
        let facts = &environment.facts;
        Self {
            case: outcome.name.clone(),
            label: label.to_owned(),
            torch: facts.torch.clone(),
            torch_commit: facts.torch_commit.clone(),
            overlay: environment.overlay().map(|overlay| overlay.commit.clone()),
            python: facts.python.clone(),
            device: outcome.device,
            verdict: outcome.verdict(),
            reason: outcome.reason().to_owned(),
            expected: outcome.expected,
            ok: outcome.is_ok(),
            growth: outcome.numbers().map(|numbers| numbers.growth.round() as i64),
            seconds: outcome.seconds,
            run_dir: outcome
                .folder
                .as_deref()
                .map(|path| std::path::absolute(path).unwrap_or(path.to_owned())),
            cached: false,
        }
    }

    /// How it stands to what is expected.
    pub fn standing(&self) -> Standing {
        match self.verdict {
            Some(_) if self.ok => Standing::Expected,
            None if self.ok => Standing::Skipped,
            Some(verdict) if verdict.is_conclusive() => Standing::Unexpected,
            _ => Standing::NoVerdict,
        }
    }

    /// The cell of a case on a version that has no environment. It is as well as expected where the version was never
    /// built for this Python, or is too old for torchleak.
    pub fn without_environment(
        case: &Case,
        label: &str,
        python: String,
        device: Device,
        why: &Unavailable,
    ) -> Self {
        let is_no_build = matches!(why, Unavailable::Environment(error) if error.is_no_build());
        Self {
            case: case.name().to_owned(),
            label: label.to_owned(),
            torch: label.to_owned(),
            torch_commit: None,
            overlay: None,
            reason: if is_no_build {
                format!("torch {label} has no build for Python {python}")
            } else {
                why.with_causes()
            },
            python,
            device,
            verdict: None,
            expected: None,
            ok: is_no_build || matches!(why, Unavailable::Environment(error) if error.is_too_old()),
            growth: None,
            seconds: 0.0,
            run_dir: None,
            cached: false,
        }
    }
}

/// Is told of what goes on while cells run.
pub trait CellWatcher: Watcher {
    /// A cell is known.
    fn cell(&mut self, _cell: &Cell) {}
}

/// Runs the cases in the environment, together, and gives a cell for each that was not interrupted, in the order in
/// which they were known.
///
/// # Errors
/// Nothing could be run at all.
pub fn run_cells(
    cases: &[Case],
    label: &str,
    environment: &Environment,
    options: &RunOptions,
    watcher: &mut dyn CellWatcher,
) -> Result<Vec<Cell>, RunError> {
    let mut cells = Cells { watcher, label, environment, found: Vec::new() };
    // Each cell was told already, and whoever keeps cells has it.
    all_kept(&crate::run::run(cases, environment, options, &mut cells)?)?;
    Ok(cells.found)
}

/// Makes a cell of each case as soon as it is over.
struct Cells<'a> {
    watcher: &'a mut dyn CellWatcher,
    label: &'a str,
    environment: &'a Environment,
    found: Vec<Cell>,
}

impl Watcher for Cells<'_> {
    fn inner(&mut self) -> Option<&mut dyn Watcher> {
        Some(&mut *self.watcher)
    }

    fn decided(&mut self, outcome: &CaseOutcome) {
        self.watcher.decided(outcome);
        if !matches!(outcome.outcome, Outcome::Interrupted) {
            let cell = Cell::of(outcome, self.label, self.environment);
            self.watcher.cell(&cell);
            self.found.push(cell);
        }
    }
}
