//! The options that lay Python files of a commit over the environment.

use std::path::PathBuf;

use clap::Args;

use super::error::CliError;
use crate::cache::Cache;
use crate::environment::{self, Environment, EnvironmentArgs, Overlay, Progress};
use crate::versions::{Commits, Source, Unavailable};

/// What to lay over the environment's torch, for this run only.
#[derive(Debug, Args)]
#[command(next_help_heading = "Overlay")]
pub struct OverlayArgs {
    /// A checkout of PyTorch (or a bare clone); it is only read
    #[arg(long, value_name = "FOLDER", requires_all = ["commit", "paths"])]
    git: Option<PathBuf>,
    /// The commit whose Python files are laid over the environment's torch
    #[arg(long, value_name = "REVISION", requires = "git", allow_hyphen_values = true)]
    commit: Option<String>,
    /// Which files and folders of it, from the root of the checkout, such as torch/utils/checkpoint.py
    #[arg(long, value_name = "PATH,PATH", requires = "git", value_delimiter = ',')]
    paths: Vec<String>,
}

impl OverlayArgs {
    /// The environment, with the files of the commit laid over a private view of it if there is one.
    ///
    /// # Errors
    /// There is no environment, no such commit, or torch cannot be imported with its files.
    pub fn environment(
        &self,
        base: &EnvironmentArgs,
        cache: &Cache,
        progress: &dyn Progress,
    ) -> Result<Environment, CliError> {
        let (Some(folder), Some(commit)) = (&self.git, &self.commit) else {
            return Ok(environment::resolve(base, cache, progress)?);
        };
        let commits = Commits::at(folder, commit, &self.paths, base, cache, progress)?;
        commits.environment(&commits.candidates()[0], progress).map_err(|error| match error {
            Unavailable::Environment(error) => CliError::Environment(error),
            Unavailable::Broken(problem) => CliError::CannotLayOver(problem),
        })
    }
}

/// Says that the torch that is named above is not as it was released.
pub fn overlay_line(overlay: &Overlay) -> String {
    let commit = &overlay.commit[..overlay.commit.len().min(10)];
    let changed = match overlay.changed.as_slice() {
        [] => "no file differs from the release".to_owned(),
        [one] => format!("{one} differs from the release"),
        many => format!("{} files differ from the release", many.len()),
    };
    format!("overlaid with {} of commit {commit}: {changed}\n", overlay.paths.join(", "))
}
