//! `torchleak report`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::error::CliError;
use super::{PlainFormat, print_json, print_text};
use crate::bundle::{self, Made, Request, Verification, Where};
use crate::cache::{Cache, CacheArgs};
use crate::environment::{EnvironmentArgs, OnStderr};
use crate::exit_code::ExitCode;
use crate::say::say;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ReportArgs {
    /// Run folders of one case; the first is what the bundle is about, the others are rows of its table of versions
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,
    /// A document of `torchleak matrix --format json`: more rows of the table of versions
    #[arg(long, value_name = "FILE")]
    matrix: Option<PathBuf>,
    /// A document of `torchleak bisect --format json`
    #[arg(long, value_name = "FILE")]
    bisect: Option<PathBuf>,
    /// A document of `torchleak explain --format json`
    #[arg(long, value_name = "FILE")]
    explain: Option<PathBuf>,
    /// The folder to make; the archive is made beside it [default: report-CASE-torch-VERSION]
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Take out this text too, such as a project's name
    #[arg(long, value_name = "TEXT", conflicts_with = "no_redact")]
    redact: Vec<String>,
    /// Leave names of users and machines, home folders and secrets in
    #[arg(long)]
    no_redact: bool,
    /// Seconds that repro.py may run
    #[arg(long, value_name = "SECONDS", default_value_t = 900, value_parser = clap::value_parser!(u64).range(1..))]
    deadline: u64,
    /// How to print what was made
    #[arg(long, value_enum, default_value = "human")]
    format: PlainFormat,
    #[command(flatten)]
    environment: EnvironmentArgs,
}

const EXAMPLES: &str = "\
Examples:
  torchleak report runs/20260101T120000Z-sac-disable-recompute
  torchleak report runs/*-sac-stock --output sac-stock-bundle         a row for each version
  torchleak report RUN --matrix matrix.json --bisect bisect.json --explain explain.json
  torchleak report RUN --torch 2.13.0                                 a run of another machine

repro.py is run in the environment of the run, or in the one that is named, before the bundle is finished.

Exit codes: 0 made and repro.py agrees, 1 it does not agree, 2 bad usage or unusable run folder, 3 made and repro.py was not
run, or no environment, 4 cannot be written, 130 interrupted.";

/// Runs the command.
pub fn run(args: &ReportArgs, cache: &CacheArgs) -> Result<ExitCode, CliError> {
    let cache = Cache::open(cache)?;
    let progress = OnStderr::new();
    let request = Request {
        runs: &args.runs,
        matrix: args.matrix.as_deref(),
        bisect: args.bisect.as_deref(),
        explain: args.explain.as_deref(),
        output: args.output.as_deref(),
        redact: (!args.no_redact).then_some(&args.redact),
    };
    let place = Where {
        args: &args.environment,
        cache: &cache,
        deadline: Duration::from_secs(args.deadline),
        progress: &progress,
    };
    let made = bundle::make(&request, place)?;
    for warning in &made.warnings {
        say(&format!("torchleak: WARNING: {warning}"));
    }
    match args.format {
        PlainFormat::Human => print_text(&text(&made))?,
        PlainFormat::Json => print_json(&document(&made))?,
    }
    Ok(match made.verification {
        Verification::Agrees { .. } => ExitCode::Success,
        Verification::Disagrees { .. } => ExitCode::Unexpected,
        Verification::NotRun { .. } => ExitCode::NoEnvironment,
    })
}

fn text(made: &Made) -> String {
    format!(
        "{} on torch {}: {}\n  {}\n  folder: {}\n  archive: {}\n  issue.md is a draft: read it, and file it yourself",
        made.case,
        made.torch,
        made.verdict,
        made.verification.sentence(made.verdict.word()),
        made.folder.display(),
        made.archive.display(),
    )
}

fn document(made: &Made) -> serde_json::Value {
    let word = match &made.verification {
        Verification::Agrees { .. } => Some(made.verdict.word()),
        Verification::Disagrees { word, .. } => Some(word.as_str()),
        Verification::NotRun { .. } => None,
    };
    json!({
        "schema": 1,
        "case": made.case,
        "torch": made.torch,
        "verdict": made.verdict,
        "repro_verdict": word,
        "repro_agrees": matches!(made.verification, Verification::Agrees { .. }),
        "warnings": made.warnings,
        "folder": made.folder,
        "archive": made.archive,
    })
}
