//! What keeps a bundle from being made.

use std::path::PathBuf;

use crate::environment::EnvironmentError;
use crate::exit_code::ExitCode;
use crate::run::KeptError;

/// Why there is no bundle.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    #[error("`{}` cannot be read", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("the run folder `{}` cannot be used", folder.display())]
    Kept { folder: PathBuf, source: KeptError },
    #[error("`{}` is a run of another case than `{}`", folder.display(), first.display())]
    NotTheSame { folder: PathBuf, first: PathBuf },
    #[error("`{}` is no document of `torchleak {command} --format json`", path.display())]
    NoDocument { path: PathBuf, command: &'static str, source: serde_json::Error },
    #[error("`{}` says nothing of the case `{case}`", path.display())]
    OtherCase { path: PathBuf, case: String },
    #[error("`{}` is there already", path.display())]
    Exists { path: PathBuf },
    #[error("`{}` cannot be written", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("`{name}` cannot be made, which is a bug of torchleak's: {problem}")]
    Make { name: &'static str, problem: String },
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error("`{command}` cannot be started")]
    Start { command: String, source: std::io::Error },
    #[error("interrupted; no bundle was made")]
    Interrupted,
}

impl BundleError {
    /// What the user can try.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Environment(error) => return error.hint(),
            Self::Kept { source, .. } => source.hint(),
            Self::Read { .. } => {
                "name a folder that `torchleak run` made (the line `kept in` names it), and files that exist"
            }
            Self::NotTheSame { .. } => {
                "name runs of one case, unchanged between them; make a bundle for each case"
            }
            Self::NoDocument { .. } => "write it with --format json, and nothing else, to a file",
            Self::OtherCase { .. } => "leave it out, or name the document that is about this case",
            Self::Exists { .. } => "choose another folder with --output, or remove this one",
            Self::Write { .. } => "choose another folder with --output, or free some space",
            Self::Start { .. } => "choose a working environment with --python or --torch",
            Self::Make { .. } => "report it with the run folder",
            Self::Interrupted => return None,
        };
        Some(hint.to_owned())
    }

    /// The exit code of `docs/exit-codes.md`.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Interrupted => ExitCode::Interrupted,
            Self::Environment(error) if error.is_interrupted() => ExitCode::Interrupted,
            Self::Environment(error) if error.is_usage() => ExitCode::Usage,
            Self::Environment(_) | Self::Start { .. } => ExitCode::NoEnvironment,
            Self::Write { .. } | Self::Make { .. } => ExitCode::NoVerdict,
            Self::Read { .. }
            | Self::Kept { .. }
            | Self::NotTheSame { .. }
            | Self::NoDocument { .. }
            | Self::OtherCase { .. }
            | Self::Exists { .. } => ExitCode::Usage,
        }
    }
}
