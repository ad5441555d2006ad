//! `torchleak matrix`.

use std::io::IsTerminal;

use clap::{Args, ValueEnum};

use super::cases::CasesArgs;
use super::ci::ReportArgs;
use super::error::CliError;
use super::settings::SettingsArgs;
use super::{print_json, print_text, width};
use crate::cache::{Cache, CacheArgs};
use crate::case::Partition;
use crate::environment::{EnvironmentArgs, EnvironmentError, Managed, OnStderr};
use crate::exit_code::ExitCode;
use crate::report::{
    MatrixReport, matrix_csv, matrix_document, matrix_markdown, matrix_progress, matrix_text,
};
use crate::versions::{CellStore, Columns, IndexArgs, Matrix, Selection, Share, Standing};

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct MatrixArgs {
    #[command(flatten)]
    cases: CasesArgs,
    /// The versions of torch: 2.6.0,2.8.0..2.15.0, or >=2.8, or latest, or nightly:2025-05-01..2025-06-10
    #[arg(long, value_name = "RANGE|LIST")]
    torch: Selection,
    /// The Pythons, each with every version, such as 3.11,3.12,3.13 [default: one, as for `run`]
    #[arg(long, value_name = "X.Y,...", value_delimiter = ',')]
    python: Vec<String>,
    #[command(flatten)]
    environment: TemplateArgs,
    #[command(flatten)]
    index: IndexArgs,
    /// Keep at most N of the environments that this command makes, besides the one that is being made; the least
    /// recently used are removed, and what was there before never is. With 0, nothing is fetched ahead
    #[arg(long, value_name = "N")]
    keep: Option<usize>,
    /// Run every cell again, also those that an earlier matrix has finished
    #[arg(long)]
    fresh: bool,
    /// How to print the result
    #[arg(long, value_enum, default_value = "human")]
    format: Format,
    /// Run one of N parts of the cells, for N machines whose documents `torchleak merge` joins
    #[arg(
        long,
        value_name = "I/N",
        default_value = "1/1",
        hide_default_value = true,
        help_heading = "For CI"
    )]
    partition: Partition,
    #[command(flatten)]
    reports: ReportArgs,
    #[command(flatten)]
    settings: SettingsArgs,
}

/// What all environments of a matrix have in common.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Environments")]
struct TemplateArgs {
    /// The package index to install from, instead of the default one
    #[arg(long, value_name = "URL")]
    index_url: Option<String>,
    /// A further package index; it is looked at first
    #[arg(long, value_name = "URL")]
    extra_index_url: Vec<String>,
    /// uv's torch backend, such as cpu, cu128 or auto
    #[arg(long, value_name = "BACKEND")]
    torch_backend: Option<String>,
    /// A further package to install, such as transformers or numpy==2.0.0
    #[arg(long, value_name = "PACKAGE")]
    with: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  torchleak matrix sac-stock --torch 2.6.0,2.8.0..2.15.0
  torchleak matrix --all --torch '>=2.8' --format markdown > matrix.md
  torchleak matrix leak.yaml --torch latest --python 3.11,3.12,3.13
  torchleak matrix leak.yaml --torch nightly:2025-05-01..2025-06-10 --keep 2

Specifiers that follow each other are one range: '>=2.8,<2.12'. A matrix that was broken off goes on where it stopped:
finished cells are kept in the cache by the content of the case, the environment and the build of torchleak.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// A table, what changes between which versions, and what is to be known of single cells
    Human,
    /// One document on standard output
    Json,
    /// A table for an issue or a step summary
    Markdown,
    /// A line per cell
    Csv,
}

/// Runs the command.
pub fn run(args: &MatrixArgs, cache: &CacheArgs) -> Result<ExitCode, CliError> {
    let cases = args.cases.selected()?;
    args.reports.check()?;
    let cache = Cache::open(cache)?;
    let settings = args.settings.settings(&cache)?;
    let columns = columns(args, &cache)?;
    let share = Share::new(args.partition, &cases, &columns);
    let wanted = args.partition.range(share.cells);
    let store = if args.fresh {
        CellStore::open(&cache, &settings)?.without_the_known()
    } else {
        CellStore::open(&cache, &settings)?
    };
    let matrix = Matrix {
        cases: &cases,
        sources: &columns.sources,
        columns: &columns.columns,
        wanted: wanted.clone(),
        settings: &settings,
        cache: &cache,
        keep: args.keep,
    };
    let (mut progress, fetching) = matrix_progress(wanted.len());
    let found = matrix.run(&store, &fetching, &mut progress);
    drop((progress, fetching));
    let report = MatrixReport::new(found?).with_share(share);
    print_report(&report, args.format)?;
    args.reports.write(&report, &cases)?;
    Ok(exit_code(&report, wanted.len()))
}

/// Prints a matrix to standard output.
pub(super) fn print_report(report: &MatrixReport, format: Format) -> Result<(), CliError> {
    match format {
        Format::Human => {
            let colour = std::io::stdout().is_terminal() && console::colors_enabled();
            print_text(&matrix_text(report, colour, width()))
        }
        Format::Json => print_json(&matrix_document(report)),
        Format::Markdown => print_text(&matrix_markdown(report)),
        Format::Csv => print_text(&matrix_csv(report).map_err(|error| CliError::Output(error.into()))?),
    }
}

/// The versions under each Python, and where they come from.
fn columns(args: &MatrixArgs, cache: &Cache) -> Result<Columns, CliError> {
    let one = |python_version: Option<String>| {
        Managed::template(&EnvironmentArgs {
            python_version,
            index_url: args.environment.index_url.clone(),
            extra_index_url: args.environment.extra_index_url.clone(),
            torch_backend: args.environment.torch_backend.clone(),
            with: args.environment.with.clone(),
            ..Default::default()
        })
        .map_err(called_by_its_name_here)
    };
    let templates: Vec<Managed> = if args.python.is_empty() {
        vec![one(None)?]
    } else {
        args.python.iter().map(|python| one(Some(python.trim().to_owned()))).collect::<Result<_, _>>()?
    };
    let found = Columns::new(&args.torch, &templates, &args.index, cache, &OnStderr::new())?;
    if found.columns.is_empty() {
        return Err(CliError::NothingSelected { text: args.torch.to_string() });
    }
    Ok(found)
}

/// The option that chooses the Python has another name elsewhere.
fn called_by_its_name_here(error: EnvironmentError) -> EnvironmentError {
    match error {
        EnvironmentError::BadOption { option: "--python-version", given, problem, .. } => {
            EnvironmentError::BadOption {
                option: "--python",
                given,
                problem,
                hint: "write versions as 3.11,3.12; torchleak needs 3.10 or newer",
            }
        }
        error => error,
    }
}

/// The worst of all cells.
pub(super) fn exit_code(report: &MatrixReport, wanted: usize) -> ExitCode {
    let cells = report.cells();
    if cells.len() < wanted {
        // Only an interruption leaves cells out; should anything else do so, it must not pass for success.
        return if crate::interrupt::requested() { ExitCode::Interrupted } else { ExitCode::NoVerdict };
    }
    let of = |standing| match standing {
        Standing::Expected | Standing::Skipped => ExitCode::Success,
        Standing::Unexpected => ExitCode::Unexpected,
        Standing::NoVerdict => ExitCode::NoVerdict,
    };
    let notes = if report.notes().is_empty() { ExitCode::Success } else { ExitCode::NoVerdict };
    cells.iter().map(|cell| of(cell.standing())).fold(notes, ExitCode::max)
}
