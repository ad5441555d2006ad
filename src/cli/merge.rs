//! `torchleak merge`.

use std::path::PathBuf;

use clap::Args;

use super::ci::ReportArgs;
use super::error::CliError;
use super::matrix::{Format, exit_code, print_report};
use crate::exit_code::ExitCode;
use crate::report::MatrixReport;
use crate::versions::{merge, read_parts, with_causes};

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct MergeArgs {
    /// Documents of `torchleak matrix --format json`, run folders, and folders that hold such
    #[arg(value_name = "FILE|FOLDER", required = true)]
    paths: Vec<PathBuf>,
    /// How to print the result
    #[arg(long, value_enum, default_value = "human")]
    format: Format,
    #[command(flatten)]
    reports: ReportArgs,
}

const EXAMPLES: &str = "\
Examples:
  torchleak merge part-1.json part-2.json part-3.json
  torchleak merge artifacts --format markdown --junit junit.xml     all documents and run folders below

Exit codes are those of `torchleak matrix`; 4 also where parts disagree, are missing or cannot be read.";

/// Runs the command.
pub fn run(args: &MergeArgs) -> Result<ExitCode, CliError> {
    let (parts, problems) = read_parts(&args.paths)?;
    let merged = merge(parts);
    let problems = problems.iter().map(|problem| format!("{}; {}", with_causes(problem), problem.hint()));
    let report =
        MatrixReport::new(merged.cells).with_notes(merged.notes.into_iter().chain(problems).collect());
    print_report(&report, args.format)?;
    args.reports.write(&report, &[])?;
    Ok(exit_code(&report, 0))
}
