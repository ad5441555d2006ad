//! Explains a leak by ablation: each condition of its case is switched on its own, and what that does to the leak is
//! measured.
//!
//! Architecture invariant: what a variant showed is a verdict of `run` like any other, with a run folder. What is
//! said here of conditions, of laws and of the minimal case follows from those.

mod ablation;
mod conditions;
mod effect;
mod laws;
mod minimal;
mod reduce;
mod sentence;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use ablation::Row;
pub use effect::{Effect, Shown};
pub use laws::{Law, Line, Quantity};
pub use reduce::Minimal;
pub use sentence::{law_words, sentence};

use crate::case::{Body, Case, CaseError};
use crate::environment::Environment;
use crate::interrupt;
use crate::run::{CaseOutcome, RunError, RunOptions, Watcher, all_kept, make_new_folder, run};
use crate::writable;
use effect::Leak;

/// What the name of an explanation's folder has between its time and its case.
pub const FOLDER: &str = "-explain-";

/// What keeps an explanation from being made.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Case(#[from] CaseError),
    #[error("`{case}` has a program of its own, so there is no minimal case to write")]
    NothingToReduce { case: String },
    #[error("the minimal case cannot be written to {}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

impl ExplainError {
    /// What the user can try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Run(error) => error.hint(),
            Self::Case(_) => None,
            Self::NothingToReduce { .. } => Some("leave out --output-case".to_owned()),
            Self::Write { .. } => {
                Some("name a file in a folder that can be written with --output-case".to_owned())
            }
        }
    }
}

/// What is known of a leak after its conditions were switched.
#[derive(Debug)]
pub struct Explanation {
    /// The case itself.
    pub base: CaseOutcome,
    /// What the case itself showed. None where it does not leak here, so that there is nothing to explain.
    pub own: Option<Shown>,
    /// Whether the case trains torchleak's own model. The conditions of a program are not known.
    pub has_model: bool,
    pub rows: Vec<Row>,
    pub laws: Vec<Law>,
    /// None where the case has no model, or an interruption came first.
    pub minimal: Option<Minimal>,
    /// Where every run is kept.
    pub folder: PathBuf,
    pub interrupted: bool,
    pub took: Duration,
}

/// What all runs of an explanation have in common.
struct Bench<'a> {
    environment: &'a Environment,
    options: RunOptions,
    watcher: &'a mut dyn Watcher,
}

impl Bench<'_> {
    /// Runs cases in one warm host. Their outcomes are in the order of the cases.
    fn run(&mut self, cases: &[Case]) -> Result<Vec<CaseOutcome>, RunError> {
        let outcomes = run(cases, self.environment, &self.options, self.watcher)?;
        all_kept(&outcomes).map(|()| outcomes)
    }
}

/// Explains why a case leaks. The minimal case is written to `output`, or else into the folder of the runs.
///
/// # Errors
/// Nothing could be run at all, or the minimal case cannot be written.
pub fn explain(
    case: &Case,
    environment: &Environment,
    mut options: RunOptions,
    output: Option<&Path>,
    watcher: &mut dyn Watcher,
) -> Result<Explanation, ExplainError> {
    let started = Instant::now();
    let resolved = case.resolved(options.device);
    let has_model = matches!(resolved.body, Body::Llama3(_));
    let document = case.document(options.device)?;
    if let Some(output) = output {
        if !has_model {
            return Err(ExplainError::NothingToReduce { case: case.name().to_owned() });
        }
        // What the file can never hold is said before anything is run.
        reduce::check(case, &document, output)?;
        writable::check(output).map_err(|source| ExplainError::Write { path: output.to_owned(), source })?;
    }
    let folder = new_folder(&options.runs, case)?;
    options.runs.clone_from(&folder);
    let mut bench = Bench { environment, options, watcher };
    let mut explanation = Explanation {
        base: ablation::base(case, &document, &mut bench)?,
        own: None,
        has_model,
        rows: Vec::new(),
        laws: Vec::new(),
        minimal: None,
        folder,
        interrupted: false,
        took: Duration::ZERO,
    };
    if let Some(leak) = Leak::of(&explanation.base, &resolved) {
        let conditions = conditions::conditions(&resolved);
        let variants = ablation::variants(case, &document, &conditions);
        let rows = ablation::rows(&variants, &explanation.base, &leak, &mut bench)?;
        explanation.laws = ablation::laws(&rows, &explanation.base, &leak, &resolved);
        if has_model && !interrupt::requested() {
            let simplifications = ablation::simplifications(&variants, &rows, &leak);
            let path = output.map_or_else(|| explanation.folder.join("minimal.yaml"), Path::to_owned);
            explanation.minimal = reduce::reduce(case, document, &simplifications, &leak, &path, &mut bench)?;
        }
        explanation.rows = rows;
        explanation.own = Some(leak.own);
    }
    explanation.interrupted = interrupt::requested();
    explanation.took = started.elapsed();
    Ok(explanation)
}

/// Makes `<runs>/<time>-explain-<case>` for the run folders of all variants.
fn new_folder(runs: &Path, case: &Case) -> Result<PathBuf, RunError> {
    let failed = |(path, source)| RunError::Folder { path, source };
    std::fs::create_dir_all(runs).map_err(|source| failed((runs.to_owned(), source)))?;
    let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
    make_new_folder(runs, &format!("{time}{FOLDER}{}", case.name())).map_err(failed)
}
