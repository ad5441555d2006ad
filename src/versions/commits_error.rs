//! Why there are no commits to lay over a release.

use super::git_error::GitError;
use crate::environment::EnvironmentError;

/// Why commits of a checkout cannot be candidates.
#[derive(Debug, thiserror::Error)]
pub enum CommitsError {
    /// The repository cannot be read, or lacks what is asked for.
    #[error(transparent)]
    Git(#[from] GitError),
    /// The release to lay them over cannot be found or made.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// No path was given.
    #[error("no paths are given")]
    NoPaths,
    /// A path that cannot be that of an installed file.
    #[error("`{path}` cannot be laid over an installed torch: {problem}")]
    BadPath {
        /// The path.
        path: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// No commit up to the newer end had such a path.
    #[error("there is and was no `{path}` at {commit}")]
    NoSuchPath {
        /// The path.
        path: String,
        /// The newest commit that was looked at.
        commit: String,
    },
    /// A path that is there and holds no Python.
    #[error("`{path}` has no Python file at {commit}, and nothing else is laid over a release")]
    NoPython {
        /// The path.
        path: String,
        /// The newest commit that was looked at.
        commit: String,
    },
    /// The ends do not differ in what would be laid over the release.
    #[error("no commit from {old} to {new} changes a Python file of {paths}")]
    NothingChanges {
        /// The older end, as it was given.
        old: String,
        /// The newer.
        new: String,
        /// The paths.
        paths: String,
    },
}

impl CommitsError {
    /// Whether the command line is wrong.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Git(error) => error.is_usage(),
            Self::Environment(error) => error.is_usage(),
            Self::NoPaths
            | Self::BadPath { .. }
            | Self::NoSuchPath { .. }
            | Self::NoPython { .. }
            | Self::NothingChanges { .. } => true,
        }
    }

    /// Whether the user asked to stop.
    pub fn is_interrupted(&self) -> bool {
        match self {
            Self::Git(error) => matches!(error, GitError::Interrupted),
            Self::Environment(error) => error.is_interrupted(),
            _ => false,
        }
    }

    /// What to try.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Git(error) => return error.hint(),
            Self::Environment(error) => return error.hint(),
            Self::NoPaths => "name files or folders with --paths, such as torch/utils/checkpoint.py",
            Self::BadPath { .. } => {
                "give paths as in a checkout of PyTorch, from its root, such as torch/utils/checkpoint.py"
            }
            Self::NoSuchPath { .. } => {
                "check its spelling, and that it is given from the root of the checkout"
            }
            Self::NoPython { .. } => {
                "a change of compiled sources needs a build: bisect the nightly builds instead"
            }
            Self::NothingChanges { .. } => "give ends that are further apart, or other --paths",
        };
        Some(hint.to_owned())
    }
}
