//! What CI systems read: files beside the output, and annotations.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use super::error::CliError;
use crate::case::{Case, Origin, Partition};
use crate::report::{MatrixReport, SUMMARY_LIMIT, annotation, annotations, junit, summary};
use crate::say::say;
use crate::writable;

/// Files that are written beside the output.
#[derive(Debug, Args)]
#[command(next_help_heading = "For CI")]
pub struct ReportArgs {
    /// Write JUnit XML: a suite per version and a test case per case
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Add Markdown to the end of a file, as $GITHUB_STEP_SUMMARY wants it; the file stays under 1 MiB
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
}

impl ReportArgs {
    /// Sees before anything runs that the files can be written.
    ///
    /// # Errors
    /// One cannot.
    pub fn check(&self) -> Result<(), CliError> {
        for (what, path) in [("JUnit report", &self.junit), ("summary", &self.summary)] {
            let Some(path) = path else { continue };
            writable::check(path).map_err(|source| CliError::File { what, path: path.clone(), source })?;
        }
        Ok(())
    }

    /// Writes the files, and annotations where GitHub Actions reads them.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, report: &MatrixReport, cases: &[Case]) -> Result<(), CliError> {
        if in_github_actions() {
            // Standard output may be a document.
            annotations(report, |name| file_of(cases, name)).iter().for_each(|line| say(line));
        }
        if let Some(path) = &self.junit {
            let written =
                junit(report).map_err(std::io::Error::other).and_then(|xml| std::fs::write(path, xml));
            written.map_err(|source| CliError::File { what: "JUnit report", path: path.clone(), source })?;
        }
        if let Some(path) = &self.summary {
            add_summary(report, path).map_err(|source| CliError::File {
                what: "summary",
                path: path.clone(),
                source,
            })?;
        }
        Ok(())
    }
}

/// What this machine runs of the cases.
pub fn part_of(cases: &[Case], partition: Partition) -> &[Case] {
    &cases[partition.range(cases.len())]
}

/// Says why the command failed where GitHub Actions shows it.
pub fn annotate_failure(error: &CliError) {
    if in_github_actions() {
        say(&annotation("torchleak", None, &error.to_string()));
    }
}

fn in_github_actions() -> bool {
    std::env::var_os("GITHUB_ACTIONS").is_some_and(|value| value == "true")
}

/// The file of a case from the root of the repository, where it is in there.
fn file_of(cases: &[Case], name: &str) -> Option<String> {
    let case = cases.iter().find(|case| case.name() == name)?;
    let Origin::File(path) = &case.origin else { return None };
    let root = std::env::var_os("GITHUB_WORKSPACE")?;
    Some(path.strip_prefix(Path::new(&root)).ok()?.display().to_string())
}

/// Steps of a job may share the file, so what is there stays.
fn add_summary(report: &MatrixReport, path: &Path) -> std::io::Result<()> {
    let mut file: File = OpenOptions::new().create(true).append(true).open(path)?;
    let taken = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    file.write_all(summary(report, SUMMARY_LIMIT.saturating_sub(taken)).as_bytes())
}
