//! Every error of the command line: what it prints and which exit code it has.

use std::error::Error;
use std::io::IsTerminal;

use crate::cache::CacheError;
use crate::case::CaseError;
use crate::environment::EnvironmentError;
use crate::exit_code::ExitCode;
use crate::run::RunError;
use crate::say::say;
use crate::versions::CommitsError;

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
    Commits(#[from] CommitsError),
    #[error("{0}")]
    CannotLayOver(String),
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
            Self::Commits(error) => error.hint(),
            Self::CannotLayOver(_) => Some(
                "choose a release closer to the commit with --torch, or add the --paths that changed together"
                    .to_owned(),
            ),
            Self::BadDevice { .. } => Some("set it to auto, cpu or cuda, or unset it".to_owned()),
            Self::Output(_) => Some("check the disk or the program that reads the output".to_owned()),
            Self::Case(_) | Self::Signals(_) => None,
        }
    }

    /// The exit code of design and `docs/exit-codes.md`.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            _ if crate::interrupt::requested() => ExitCode::Interrupted,
            Self::Environment(error) if error.is_interrupted() => ExitCode::Interrupted,
            Self::Commits(error) if error.is_interrupted() => ExitCode::Interrupted,
            Self::Environment(error) if error.is_usage() => ExitCode::Usage,
            Self::Commits(error) if error.is_usage() => ExitCode::Usage,
            Self::Case(_) | Self::Run(RunError::Case(_)) | Self::BadDevice { .. } => ExitCode::Usage,
            Self::Environment(_)
            | Self::Commits(_)
            | Self::CannotLayOver(_)
            | Self::Cache(_)
            | Self::Run(RunError::Worker(_) | RunError::NoDevice { .. }) => ExitCode::NoEnvironment,
            Self::Run(RunError::Folder { .. }) | Self::Signals(_) | Self::Output(_) => ExitCode::NoVerdict,
        }
    }
}
