//! Why an index cannot be read.

use std::io;

use crate::process::without_password;

/// Why an index or one of its files cannot be read. No message holds a password.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// What was given cannot be an index.
    #[error("`{given}` is no index: {problem}")]
    BadAddress {
        /// What was given, without credentials.
        given: String,
        /// What is wrong with it.
        problem: String,
    },
    /// No answer came.
    #[error("cannot reach {url}: {problem}")]
    Unreachable {
        /// What was asked for.
        url: String,
        /// What the network said.
        problem: String,
    },
    /// An answer came, and it is a refusal.
    #[error("{url} cannot be had: the server says HTTP {status}")]
    Refused {
        /// What was asked for.
        url: String,
        /// The status of HTTP.
        status: u16,
    },
    /// A file of an index in a folder cannot be read.
    #[error("cannot read {url}")]
    File {
        /// The file.
        url: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// The page is something else.
    #[error("{url} is not a page of a package index: {problem}")]
    NotAnIndex {
        /// The page.
        url: String,
        /// What it is instead.
        problem: String,
    },
    /// The user asked to stop.
    #[error("interrupted while reading a package index")]
    Interrupted,
}

impl IndexError {
    /// Whether what was asked for is not there, which is an answer and no failure.
    pub fn is_missing(&self) -> bool {
        match self {
            Self::Refused { status, .. } => matches!(status, 404 | 410),
            Self::File { source, .. } => source.kind() == io::ErrorKind::NotFound,
            _ => false,
        }
    }

    /// What to try.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::BadAddress { .. } => {
                "write an https:// URL or the path of a folder that holds torch/index.html; for a folder of wheels use \
                 --wheelhouse"
            }
            Self::Unreachable { .. } => {
                "check the network, HTTPS_PROXY, NO_PROXY and SSL_CERT_FILE, or name another index with --index"
            }
            Self::Refused { status: 401 | 403 | 407, .. } => {
                "the server wants other credentials: put them into the URL of the index or into ~/.netrc"
            }
            Self::Refused { status: 500.., .. } => "the server has a failure of its own; try again later",
            Self::Refused { .. } | Self::File { .. } | Self::NotAnIndex { .. } => {
                "give the folder of all projects to --index, as in https://download.pytorch.org/whl/nightly/cpu/; the \
                 page that is read is torch/ below it"
            }
            Self::Interrupted => return None,
        })
    }

    pub(super) fn unreachable(url: &url::Url, problem: &impl std::fmt::Display) -> Self {
        let problem = without_password(&problem.to_string());
        Self::Unreachable { url: super::without_credentials(url).to_string(), problem }
    }
}
