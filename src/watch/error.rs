//! What keeps a script from being watched.

use std::io;
use std::path::PathBuf;

use crate::run::LostFiles;
use crate::worker::WorkerError;

#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    #[error(transparent)]
    Worker(#[from] WorkerError),
    #[error("the run folder `{path}` cannot be written")]
    Folder { path: PathBuf, source: io::Error },
    #[error("the command `{command}` cannot be started")]
    Start { command: String, source: io::Error },
    #[error("files of the run folder cannot be written: {0}")]
    Lost(LostFiles),
    #[error("signals cannot be passed on to the script")]
    Signals(#[source] io::Error),
    #[error("the report cannot be written to `{path}`")]
    Output { path: PathBuf, source: io::Error },
}

impl WatchError {
    /// What the user can try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Worker(error) => Some(error.hint().to_owned()),
            Self::Folder { .. } | Self::Lost(_) => {
                Some("choose another folder with --runs, or free some space".to_owned())
            }
            Self::Start { .. } => {
                Some("check the command after `--`, such as `torchleak watch -- python train.py`".to_owned())
            }
            Self::Output { .. } => Some(
                "choose another file with --output; the run folder has the same in verdict.json".to_owned(),
            ),
            Self::Signals(_) => None,
        }
    }

    /// Whether the command line is to blame.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Start { .. })
    }
}
