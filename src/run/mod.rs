//! Runs cases: plans their arms, records what they report, and concludes each with a verdict.
//!
//! This is where the rooms meet: cases and an environment come in, the worker runs the arms, and
//! measurements and verdicts come out as [`CaseOutcome`]s. How they look is for `report` to say.

mod conclude;
mod control;
mod folder;
mod kept;
mod lost;
mod native;
mod outcome;
mod plan;
mod ranks;
mod recorder;
mod settings;
mod watch;

use std::path::PathBuf;
use std::time::Duration;

use torchleak_protocol::Device;

pub(crate) use conclude::judged_memory;
pub(crate) use folder::relevant_variables;
pub use folder::{make_new_folder, write_diagnosis};
pub use kept::{Kept, KeptEnvironment, KeptError};
pub use lost::LostFiles;
pub use outcome::{ArmOutcome, CaseOutcome, Outcome};
pub use plan::default_device;
pub use ranks::RankOutcome;
pub use settings::{Settings, WantedDevice};
pub use watch::Watcher;

use crate::case::Case;
use crate::environment::Environment;
use crate::machine;
use crate::worker::{Session, SessionOptions, WorkerError};

/// How cases are run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    pub device: Device,
    /// How long one arm may run.
    pub deadline: Duration,
    /// How many threads' worth of arms run at once.
    pub jobs: usize,
    /// Limit of an arm's address space in bytes, on the CPU.
    pub memory_limit: Option<u64>,
    /// Whether a diagnosis may show values that the program computed.
    pub show_values: bool,
    /// The folder for run folders.
    pub runs: PathBuf,
    /// The folder for the unpacked worker.
    pub worker: PathBuf,
    /// The program of the native control, or why there is none. None where it was not asked for.
    pub native: Option<Result<PathBuf, String>>,
}

/// What keeps a run from starting, or from being kept.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Worker(#[from] WorkerError),
    #[error("the run folder `{path}` cannot be written")]
    Folder { path: PathBuf, source: std::io::Error },
    #[error("files of the run folder cannot be written: {0}")]
    Lost(LostFiles),
    #[error(transparent)]
    Case(#[from] crate::case::CaseError),
    #[error("torch {torch} sees no CUDA device on this machine")]
    NoDevice { torch: String },
}

impl RunError {
    /// What the user can try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Worker(error) => Some(error.hint().to_owned()),
            Self::Folder { .. } | Self::Lost(_) => Some("choose another folder with --runs, or free some space".to_owned()),
            Self::NoDevice { .. } => Some(
                "run on a machine with a GPU and its driver, or with --device cpu; `torchleak doctor` shows the GPUs"
                    .to_owned(),
            ),
            Self::Case(_) => None,
        }
    }
}

/// Runs the cases and gives an outcome for each, in their order.
///
/// `watcher` is told of everything while it happens; a case's outcome is told as soon as it is known.
///
/// # Errors
/// Nothing could be run at all. What goes wrong with one case is that case's verdict.
pub fn run(
    cases: &[Case],
    environment: &Environment,
    options: &RunOptions,
    watcher: &mut dyn Watcher,
) -> Result<Vec<CaseOutcome>, RunError> {
    std::fs::create_dir_all(&options.worker)
        .map_err(|source| WorkerError::Unpack { path: options.worker.clone(), source })?;
    let bundle = crate::worker::unpack(&options.worker)?;
    let memory = machine::memory().map(|memory| memory.available);
    let plan = plan::plan(cases, environment, options, memory)?;
    let session = SessionOptions {
        environment,
        bundle,
        deadline: options.deadline,
        // Arms share the one accelerator; run at once they would share its memory and its time.
        slots: if options.device == Device::Cuda { 1 } else { options.jobs },
        memory: memory.unwrap_or(u64::MAX),
    };
    let (jobs, mut recorder) = recorder::Recorder::new(plan, environment, watcher);
    if !jobs.is_empty() {
        Session::run(session, jobs, &mut recorder)?;
    }
    Ok(recorder.outcomes())
}

/// Whether everything is on disk that these verdicts stand on.
///
/// # Errors
/// Files of run folders could not be written.
pub fn all_kept(outcomes: &[CaseOutcome]) -> Result<(), RunError> {
    let mut lost = LostFiles::default();
    outcomes.iter().for_each(|outcome| lost.extend(&outcome.lost));
    if lost.is_empty() { Ok(()) } else { Err(RunError::Lost(lost)) }
}
