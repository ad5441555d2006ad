//! Why there are no candidates.

use std::io;
use std::path::PathBuf;

use crate::environment::EnvironmentError;
use crate::index::IndexError;

/// Why a source has no candidates to give.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The index cannot be read.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// What is asked for is no environment that could be made.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// The index is one, and has no nightly of torch.
    #[error("{index} lists no nightly of torch")]
    NoNightlies {
        /// The index.
        index: String,
    },
    /// There are builds, but none for this Python on this machine.
    #[error("{place} has no torch for {wanted}; it has {there}")]
    NoBuild {
        /// The index, folder or wheel.
        place: String,
        /// The Python and the machine.
        wanted: String,
        /// The Pythons that there are builds for.
        there: String,
    },
    /// There are builds, but none of these dates.
    #[error("{place} has no nightly in {range}: the first is of {first}, the last of {last}")]
    NoneInRange {
        /// The index.
        place: String,
        /// The dates that were asked for.
        range: String,
        /// The date of the first nightly that fits.
        first: String,
        /// The date of the last one.
        last: String,
    },
    /// Dates that cannot be read.
    #[error("`{given}` is no range of dates: {problem}")]
    BadRange {
        /// What was given.
        given: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A folder cannot be read.
    #[error("cannot read the folder {}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A folder holds no wheel of torch.
    #[error("there is no wheel of torch in {}", .0.display())]
    NoWheels(PathBuf),
}

impl SourceError {
    /// Whether the command line is wrong, which is exit code 2.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Environment(error) => error.is_usage(),
            Self::Index(error) => matches!(error, IndexError::BadAddress { .. }),
            Self::BadRange { .. } | Self::NoneInRange { .. } => true,
            _ => false,
        }
    }

    /// Whether the user asked to stop, which is exit code 130.
    pub fn is_interrupted(&self) -> bool {
        match self {
            Self::Environment(error) => error.is_interrupted(),
            Self::Index(error) => matches!(error, IndexError::Interrupted),
            _ => false,
        }
    }

    /// What to try.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Index(error) => return error.hint().map(str::to_owned),
            Self::Environment(error) => return error.hint(),
            Self::NoNightlies { .. } => {
                "name an index of nightlies with --index, or a backend that has some, such as cpu or cu128, with \
                 --torch-backend"
            }
            Self::NoBuild { .. } => "choose a Python that there is a build for with --python-version",
            Self::NoneInRange { first, last, .. } => {
                return Some(format!(
                    "ask for dates between {first} and {last}: an index keeps nightlies for some months only"
                ));
            }
            Self::BadRange { .. } => {
                "write it as 2025-05-01..2025-06-10, 2025-05-27, 2025-05-01.. or ..2025-06-10"
            }
            Self::Folder { .. } | Self::NoWheels(_) => {
                "give --wheelhouse a folder with files such as torch-2.9.0a0+git0123abc-cp312-cp312-linux_x86_64.whl"
            }
        };
        Some(hint.to_owned())
    }
}
