//! Which cases a command runs.

use clap::Args;

use super::error::CliError;
use crate::case::{Case, Catalog, HEADLINE};

/// Cases by name, by path, or all of them.
#[derive(Debug, Args)]
pub struct CasesArgs {
    /// Shipped cases by name, or case files by path [default: the headline case]
    #[arg(value_name = "CASE")]
    cases: Vec<String>,
    /// Run every shipped case that is marked neither `when: slow` nor `when: named`
    #[arg(long, conflicts_with = "cases")]
    pub all: bool,
    /// With --all: also the cases that are marked `when: slow`, which compile or import torch anew
    #[arg(long, requires = "all")]
    slow: bool,
}

impl CasesArgs {
    /// The cases that the command line names.
    ///
    /// # Errors
    /// There is no such case, or its file is bad.
    pub fn selected(&self) -> Result<Vec<Case>, CliError> {
        let catalog = Catalog::shipped()?;
        if self.all {
            return Ok(catalog.all(self.slow).cloned().collect());
        }
        let headline = [HEADLINE.to_owned()];
        Ok(catalog.select(if self.cases.is_empty() { &headline } else { &self.cases })?)
    }
}
