//! Every error of the command line: what it prints and which exit code it has.

use std::error::Error;
use std::io::IsTerminal;
use std::path::PathBuf;

use crate::bundle::BundleError;
use crate::cache::CacheError;
use crate::case::CaseError;
use crate::environment::EnvironmentError;
use crate::exit_code::ExitCode;
use crate::explain::ExplainError;
use crate::run::RunError;
use crate::say::say;
use crate::titan::TitanError;
use crate::versions::{BisectError, CommitsError, MatrixError, PartError, SourceError};
use crate::watch::WatchError;

/// Why a command could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error(transparent)]
    Case(#[from] CaseError),
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error(transparent)]
    Cache(#[from] CacheError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Explain(ExplainError),
    #[error(transparent)]
    Watch(#[from] WatchError),
    #[error(transparent)]
    Bundle(#[from] BundleError),
    #[error(transparent)]
    Bisect(BisectError),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("{option} is `{given}`, which is no version: {problem}")]
    BadEnd { option: &'static str, given: String, problem: String },
    #[error("no version of torch is selected by `{text}`")]
    NothingSelected { text: String },
    #[error(transparent)]
    Commits(#[from] CommitsError),
    #[error("{0}")]
    CannotLayOver(String),
    #[error(transparent)]
    TitanLog(#[from] TitanError),
    #[error("the {what} {} cannot be written", path.display())]
    File { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Part(#[from] PartError),
    #[error("TORCHLEAK_DEVICE is `{given}`, which is no device")]
    BadDevice { given: String },
    #[error("the handlers for Ctrl-C cannot be installed")]
    Signals(#[source] std::io::Error),
    #[error("standard output cannot be written")]
    Output(#[source] std::io::Error),
}

impl CliError {
    /// Prints the message, its causes and what to try, on standard error.
    pub fn print(&self) {
        let terminal = std::io::stderr().is_terminal();
        if let Self::Case(error) | Self::Run(RunError::Case(error)) = self {
            let width = usize::from(console::Term::stderr().size().1).max(80);
            say(error.render(terminal, width).trim_end());
            return;
        }
        let mark = console::style("error").red().bold().for_stderr();
        let mut text = format!("{mark}: {self}");
        let mut cause = self.source();
        while let Some(source) = cause {
            text.push_str(&format!(": {source}"));
            cause = source.source();
        }
        if let Some(hint) = self.hint() {
            text.push_str(&format!("\n  try: {hint}"));
        }
        say(&text);
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Environment(error) => error.hint(),
            Self::Cache(error) => Some(error.hint()),
            Self::Run(error) => error.hint(),
            Self::Explain(error) => error.hint(),
            Self::Watch(error) => error.hint(),
            Self::Bundle(error) => error.hint(),
            Self::Bisect(error) => error.hint(),
            Self::Source(error) => error.hint(),
            Self::BadEnd { .. } => Some(
                "write a release such as 2.13.0; a date needs --nightly, and a commit needs --git".to_owned(),
            ),
            Self::NothingSelected { .. } => Some(
                "check the range: `torchleak matrix CASE --torch ..` goes over all releases of the index"
                    .to_owned(),
            ),
            Self::Commits(error) => error.hint(),
            Self::CannotLayOver(_) => Some(
                "choose a release closer to the commit with --torch, or add the --paths that changed together"
                    .to_owned(),
            ),
            Self::TitanLog(error) => Some(error.hint()),
            Self::File { .. } => Some("name a file in a folder that is there and can be written".to_owned()),
            Self::Part(error) => Some(error.hint().to_owned()),
            Self::BadDevice { .. } => Some("set it to auto, cpu or cuda, or unset it".to_owned()),
            Self::Output(_) => Some("check the disk or the program that reads the output".to_owned()),
            Self::Case(_) | Self::Signals(_) => None,
        }
    }

    /// The exit code of design and `docs/exit-codes.md`.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            _ if crate::interrupt::requested() => ExitCode::Interrupted,
            Self::Bundle(error) => error.exit_code(),
            Self::Environment(error) if error.is_interrupted() => ExitCode::Interrupted,
            Self::Commits(error) if error.is_interrupted() => ExitCode::Interrupted,
            Self::Environment(error) if error.is_usage() => ExitCode::Usage,
            Self::Bisect(BisectError::Interrupted(_)) => ExitCode::Interrupted,
            Self::Bisect(BisectError::State(error)) if !error.is_usage() => ExitCode::NoVerdict,
            Self::Commits(error) if error.is_usage() => ExitCode::Usage,
            Self::Watch(error) if error.is_usage() => ExitCode::Usage,
            Self::Source(error) if error.is_interrupted() => ExitCode::Interrupted,
            Self::Source(error) if error.is_usage() => ExitCode::Usage,
            Self::Case(_)
            | Self::Run(RunError::Case(_))
            | Self::BadDevice { .. }
            | Self::Explain(ExplainError::NothingToReduce { .. })
            | Self::TitanLog(_)
            | Self::Bisect(_)
            | Self::BadEnd { .. }
            | Self::NothingSelected { .. }
            | Self::Part(_) => ExitCode::Usage,
            Self::Environment(_)
            | Self::Source(_)
            | Self::Commits(_)
            | Self::CannotLayOver(_)
            | Self::Cache(_)
            | Self::Run(RunError::Worker(_) | RunError::NoDevice { .. }) => ExitCode::NoEnvironment,
            Self::Watch(WatchError::Worker(_)) => ExitCode::NoEnvironment,
            Self::Watch(_)
            | Self::Explain(_)
            | Self::Run(RunError::Folder { .. } | RunError::Lost(_))
            | Self::Signals(_)
            | Self::Output(_)
            | Self::File { .. } => ExitCode::NoVerdict,
        }
    }
}

impl From<MatrixError> for CliError {
    fn from(error: MatrixError) -> Self {
        match error {
            MatrixError::Environment(error) => Self::Environment(error),
            MatrixError::Run(error) => Self::Run(error),
        }
    }
}

impl From<ExplainError> for CliError {
    fn from(error: ExplainError) -> Self {
        match error {
            ExplainError::Case(error) => Self::Case(error),
            ExplainError::Run(error) => Self::Run(error),
            error => Self::Explain(error),
        }
    }
}

impl From<BisectError> for CliError {
    fn from(error: BisectError) -> Self {
        match error {
            BisectError::Environment(error) => Self::Environment(error),
            BisectError::Run(error) => Self::Run(error),
            error => Self::Bisect(error),
        }
    }
}
