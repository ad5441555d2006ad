//! Why a repository cannot be read.

use std::io;
use std::path::PathBuf;

use crate::process::Exit;

/// Why a repository cannot be read, or does not have what is asked for.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// There is no `git` on PATH.
    #[error("there is no `git` program on PATH")]
    NoGit,
    /// The folder is in no repository.
    #[error("{} is no git repository: {said}", folder.display())]
    NotARepository {
        /// The folder.
        folder: PathBuf,
        /// What git said.
        said: String,
    },
    /// A revision that git would take for an option, or that is empty.
    #[error("`{0}` is no revision")]
    BadRevision(String),
    /// No commit of this name is in the repository.
    #[error("there is no commit `{revision}` in {}", folder.display())]
    UnknownRevision {
        /// What was asked for.
        revision: String,
        /// The repository.
        folder: PathBuf,
        /// Whether it has only a part of the history.
        is_shallow: bool,
    },
    /// Neither end is an ancestor of the other.
    #[error("neither of {a} and {b} is an ancestor of the other in {}", folder.display())]
    Unrelated {
        /// One end, as it was given.
        a: String,
        /// The other.
        b: String,
        /// The repository.
        folder: PathBuf,
        /// Whether it has only a part of the history.
        is_shallow: bool,
    },
    /// The older end came to the newer one by a merge.
    #[error("{old} is an ancestor of {new}, but only by way of a branch that was merged")]
    OffTheLine {
        /// The older end, as it was given.
        old: String,
        /// The newer.
        new: String,
        /// The last commit on the newer one's line that the older one has too.
        before: String,
    },
    /// A git command failed.
    #[error("`{command}` in {} ended with {exit}: {said}", folder.display())]
    Failed {
        /// The command.
        command: String,
        /// The repository.
        folder: PathBuf,
        /// How it ended.
        exit: Exit,
        /// The last lines it printed.
        said: String,
    },
    /// git cannot be started.
    #[error("cannot start {}", program.display())]
    Spawn {
        /// The program.
        program: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The user asked to stop.
    #[error("interrupted while reading the repository")]
    Interrupted,
}

const UNSHALLOW: &str = "the clone is shallow: get the rest of its history with `git fetch --unshallow`";

impl GitError {
    /// Whether the command line is wrong, which would be so at every commit.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::NotARepository { .. }
                | Self::BadRevision(_)
                | Self::UnknownRevision { .. }
                | Self::Unrelated { .. }
                | Self::OffTheLine { .. }
        )
    }

    /// What to try.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoGit => "install git, or put it on PATH",
            Self::NotARepository { .. } => {
                "give the folder of a clone of https://github.com/pytorch/pytorch; a bare or partial one will do"
            }
            Self::BadRevision(_) => "give a hash, a tag or a branch",
            Self::UnknownRevision { is_shallow: true, .. } | Self::Unrelated { is_shallow: true, .. } => {
                UNSHALLOW
            }
            Self::UnknownRevision { .. } => {
                "check the name, or get what upstream has with `git fetch --tags` in that repository"
            }
            Self::Unrelated { a, b, .. } => {
                return Some(format!(
                    "give two commits of one line; releases are on branches of their own, so take for one end what \
                     `git merge-base {a} {b}` prints"
                ));
            }
            Self::OffTheLine { before, .. } => {
                return Some(format!(
                    "take {before} for the older end: the last commit of that line that it builds on"
                ));
            }
            Self::Failed { .. } => {
                "see what git says in that repository; a partial clone needs its network to read old files"
            }
            Self::Spawn { .. } | Self::Interrupted => return None,
        };
        Some(hint.to_owned())
    }
}
