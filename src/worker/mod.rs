//! Worker processes: one host per environment, one child per arm, and what can happen to them.
//!
//! Architecture invariant: this module knows processes, pipes and the protocol. It does not know
//! what a case or a verdict is; who uses it gives [`Job`]s and is told of events by an [`Observer`].

mod bundle;
mod ending;
mod host;
mod job;
mod last_words;
mod pipes;
mod running;
mod session;

pub use bundle::{content_key, startup_folder, unpack};
pub use ending::{Ending, tail};
pub use job::{Job, LogSink, Observer, SessionOptions};
pub use session::Session;

use std::path::PathBuf;

/// What keeps a worker host from starting. An arm that fails is an [`Ending`], not an error.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error("the worker's files cannot be written to `{path}`")]
    Unpack { path: PathBuf, source: std::io::Error },
    #[error("the interpreter `{python}` cannot be started")]
    Start { python: PathBuf, source: std::io::Error },
    #[error("the worker host of `{python}` ended before it was ready ({status})\n{tail}")]
    Died { python: PathBuf, status: String, tail: String },
}

impl WorkerError {
    /// What the user can try.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Unpack { .. } => "choose another folder with --cache-dir, or free some space",
            Self::Start { .. } => "check that the file exists and is a Python 3.10 or later",
            Self::Died { .. } => {
                "run the interpreter by hand; torchleak needs CPython 3.10 or later of this machine's architecture"
            }
        }
    }
}
