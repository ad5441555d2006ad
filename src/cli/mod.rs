//! The command line.

mod bisect;
mod cases;
mod ci;
mod environments;
mod error;
mod explain;
mod matrix;
mod merge;
mod overlay;
mod report;
mod run;
mod settings;
mod shell;
mod titan_log;
mod watch;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode as ProcessExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tracing_subscriber::EnvFilter;

use crate::cache::CacheArgs;
use crate::case::Catalog;
use crate::exit_code::{BisectCode, ExitCode};
use crate::interrupt;
use crate::say::say;
use error::CliError;

/// Reproduces, measures and explains PyTorch memory leaks in which Python reference cycles keep
/// tensors alive.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    cache: CacheArgs,
}

const AFTER_HELP: &str = "\
Exit codes: 0 all as expected, 1 some verdict not as expected, 2 bad usage or bad case file, 3 no \
environment, 4 no verdict, 130 interrupted.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run cases and reach a verdict on each
    Run(run::RunArgs),
    /// Find the versions of torch between which a leak was introduced or fixed
    Bisect(bisect::BisectArgs),
    /// Run cases on many versions of torch and point out where verdicts change
    Matrix(matrix::MatrixArgs),
    /// Join what several machines found into one matrix
    Merge(merge::MergeArgs),
    /// Switch each condition of a leak on its own: which are necessary, which scale it, and a minimal case
    Explain(explain::ExplainArgs),
    /// Tell memory growth and collections out of a log of torchtitan
    TitanLog(titan_log::TitanLogArgs),
    /// Watch any training script, unedited: memory per step, cycles that keep tensors, a verdict
    Watch(watch::WatchArgs),
    /// Make the bundle for an upstream issue of a run: a draft, a script that is checked, a page, the evidence
    Report(report::ReportArgs),
    /// List the shipped cases, what they hold, and what is expected for which torch
    List(FormatArgs),
    /// List, add and prune the environments in the cache
    #[command(subcommand)]
    Env(environments::EnvCommand),
    /// Look at the machine: interpreters, uv, GPUs, disk, memory, cache
    Doctor(FormatArgs),
    /// Print the JSON Schema of a case file
    Schema,
    /// Print the completions of a shell
    Completions(shell::CompletionsArgs),
    /// Write the manual pages
    Man(shell::ManArgs),
}

#[derive(Debug, Args)]
struct FormatArgs {
    /// How to print it
    #[arg(long, value_enum, default_value = "human")]
    format: PlainFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PlainFormat {
    Human,
    Json,
}

/// Runs the command line and gives the process's exit code.
pub fn main() -> ProcessExitCode {
    let is_bisection = asks_for_bisection(std::env::args_os().skip(1));
    // What panics has said so on standard error already, where that can be written.
    catch_unwind(AssertUnwindSafe(|| parse_and_dispatch(is_bisection))).unwrap_or_else(|_| {
        say("torchleak has a bug and panicked; please report it with the lines above and the command");
        if is_bisection { BisectCode::Failure.into() } else { ExitCode::NoVerdict.into() }
    })
}

fn parse_and_dispatch(is_bisection: bool) -> ProcessExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            // Help and version are no errors; clap says which and where they are printed.
            return match (error.use_stderr(), is_bisection) {
                (false, _) => ExitCode::Success.into(),
                (true, false) => ExitCode::Usage.into(),
                (true, true) => BisectCode::of_failure(ExitCode::Usage).into(),
            };
        }
    };
    let filter = EnvFilter::try_from_env("TORCHLEAK_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // It reports what it cannot write with a macro that panics.
        .log_internal_errors(false)
        .init();
    match dispatch(cli) {
        Ok(code) => code,
        Err(error) => {
            error.print();
            ci::annotate_failure(&error);
            let code = error.exit_code();
            if is_bisection { BisectCode::of_failure(code).into() } else { code.into() }
        }
    }
}

/// Whether the raw arguments ask for the codes of `git bisect run`, which would take the code of bad
/// usage for a bad commit. Arguments that cannot be parsed have to be asked too.
fn asks_for_bisection(arguments: impl Iterator<Item = OsString>) -> bool {
    let mut asked = false;
    let mut arguments = arguments.take_while(|argument| argument != "--");
    while let Some(argument) = arguments.next() {
        if argument == "--exit-code" {
            asked = arguments.next().is_some_and(|mode| mode == "bisect");
        } else if let Some(mode) = argument.to_str().and_then(|text| text.strip_prefix("--exit-code=")) {
            asked = mode == "bisect";
        }
    }
    asked
}

fn dispatch(cli: Cli) -> Result<ProcessExitCode, CliError> {
    // A watched script gets the signals, and torchleak reports when that has ended.
    if !matches!(cli.command, Command::Watch(_)) {
        interrupt::install().map_err(CliError::Signals)?;
    }
    match cli.command {
        Command::Run(args) => run::run(&args, &cli.cache),
        Command::Bisect(args) => bisect::run(&args, &cli.cache).map(Into::into),
        Command::Matrix(args) => matrix::run(&args, &cli.cache).map(Into::into),
        Command::Merge(args) => merge::run(&args).map(Into::into),
        Command::Explain(args) => explain::run(&args, &cli.cache).map(Into::into),
        Command::TitanLog(args) => titan_log::run(&args).map(Into::into),
        Command::Watch(args) => watch::run(&args, &cli.cache),
        Command::Report(args) => report::run(&args, &cli.cache).map(Into::into),
        Command::List(args) => {
            let catalog = Catalog::shipped()?;
            match args.format {
                PlainFormat::Human => print_text(&crate::case::list(&catalog, width())),
                PlainFormat::Json => print_json(&crate::case::list_json(&catalog)),
            }?;
            Ok(ExitCode::Success.into())
        }
        Command::Env(command) => environments::run(&command, &cli.cache).map(Into::into),
        Command::Doctor(args) => environments::doctor(&args, &cli.cache).map(Into::into),
        Command::Schema => {
            print_text(&crate::case::schema_text())?;
            Ok(ExitCode::Success.into())
        }
        Command::Completions(args) => shell::completions(&args).map(|()| ExitCode::Success.into()),
        Command::Man(args) => shell::man(&args).map(|()| ExitCode::Success.into()),
    }
}

/// Columns of the terminal; a pipe gets lines that are wide enough for every table.
fn width() -> u16 {
    if std::io::stdout().is_terminal() { console::Term::stdout().size().1 } else { 160 }
}

/// Prints text to standard output with one end of line.
fn print_text(text: &str) -> Result<(), CliError> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush()) {
        // `torchleak list | head` is no error.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(CliError::Output),
    }
}

fn print_json(value: &serde_json::Value) -> Result<(), CliError> {
    print_text(&format!("{value:#}"))
}
