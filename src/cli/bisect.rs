//! `torchleak bisect`.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use pep440_rs::Version;

use super::error::CliError;
use super::settings::SettingsArgs;
use super::{PlainFormat, print_json, print_text};
use crate::cache::{Cache, CacheArgs};
use crate::case::{Case, Catalog};
use crate::environment::{EnvironmentArgs, OnStderr, Progress};
use crate::exit_code::ExitCode;
use crate::report::{ProgressWatcher, bisect_document, bisect_line, bisect_text};
use crate::run::Watcher;
use crate::say::say;
use crate::versions::{
    BisectError, BisectReport, BisectWatcher, Bisection, Find, Ran, Releases, Source, State, between,
    direction,
};

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct BisectArgs {
    /// A shipped case by name, or a case file by path
    case: String,
    /// A version on which the case is `fixed`
    #[arg(long, value_name = "VERSION", value_parser = version)]
    good: Version,
    /// A version on which it leaks
    #[arg(long, value_name = "VERSION", value_parser = version)]
    bad: Version,
    /// What to search for; the ends say it too, so this only checks them
    #[arg(long, value_enum)]
    find: Option<FindWord>,
    /// Run each candidate up to N times until two runs agree; with 1 the first verdict counts
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=20))]
    confirm: u8,
    /// Go on where an earlier bisection of the same case and ends stopped
    #[arg(long)]
    resume: bool,
    /// The file that keeps what was found [default: bisect-CASE-KEY.json in the folder for run folders]
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// The versions to search
    #[arg(long, value_name = "VERSION,...", value_delimiter = ',', value_parser = version)]
    candidates: Vec<Version>,
    #[command(flatten)]
    environment: EnvironmentArgs,
    /// How to print the result
    #[arg(long, value_enum, default_value = "human")]
    format: PlainFormat,
    #[command(flatten)]
    settings: SettingsArgs,
}

const EXAMPLES: &str = "\
Examples:
  torchleak bisect leak.yaml --good 2.6.0 --bad 2.8.0 --candidates 2.6.0,2.7.0,2.7.1,2.8.0
  torchleak bisect leak.yaml --good 2.6.0 --bad 2.8.0 --candidates 2.6.0,2.7.0,2.7.1,2.8.0 --resume

Exit codes: 0 conclusive, 4 not conclusive, 2 bad usage, 3 no environment at all, 130 interrupted.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FindWord {
    /// The good version is the older one
    Introduced,
    /// The bad version is the older one
    Fixed,
}

impl From<FindWord> for Find {
    fn from(word: FindWord) -> Self {
        match word {
            FindWord::Introduced => Self::Introduced,
            FindWord::Fixed => Self::Fixed,
        }
    }
}

fn version(text: &str) -> Result<Version, String> {
    Version::from_str(text.trim()).map_err(|error| error.to_string())
}

/// Runs the command.
pub fn run(args: &BisectArgs, cache: &CacheArgs) -> Result<ExitCode, CliError> {
    let case = Catalog::shipped()?.find(&args.case)?;
    let cache = Cache::open(cache)?;
    if args.environment.torch.is_some() {
        return Err(CliError::TorchOfBisection);
    }
    // Before a source is asked, which can take a while.
    let find = args.find.map(Find::from);
    direction(args.good.cmp(&args.bad), &args.good.to_string(), &args.bad.to_string(), find)?;
    if args.candidates.is_empty() {
        // A history without what lies between its ends would be called conclusive.
        return Err(CliError::NoCandidates);
    }
    let mut versions = args.candidates.clone();
    versions.extend([args.good.clone(), args.bad.clone()]);
    let source = Releases::named(&versions, &args.environment, &cache)?;
    let report = search(args, &case, &source, "releases", &cache)?;
    match args.format {
        PlainFormat::Human => {
            print_text(&bisect_text(&report, std::io::stdout().is_terminal() && console::colors_enabled()))?;
        }
        PlainFormat::Json => print_json(&bisect_document(&report))?,
    }
    Ok(exit_code(&report))
}

/// Searches the candidates of a source; `described` says what they are.
fn search(
    args: &BisectArgs,
    case: &Case,
    source: &dyn Source,
    described: &str,
    cache: &Cache,
) -> Result<BisectReport, CliError> {
    let (good, bad) = (args.good.to_string(), args.bad.to_string());
    let (candidates, find) = between(source.candidates(), &good, &bad, args.find.map(Find::from))?;
    let settings = args.settings.settings(cache)?;
    let bisection = Bisection {
        case,
        case_argument: &args.case,
        candidates,
        find,
        confirm: args.confirm,
        settings: &settings,
    };
    let subject = bisection.subject(described);
    let path = args.state.clone().unwrap_or_else(|| subject.default_path(&settings.runs));
    let (mut state, notes) = State::open(&path, subject, candidates, bisection.device(), args.resume)
        .map_err(BisectError::State)?;
    let mut watcher = OnStandardError { environment: OnStderr::new() };
    for note in notes {
        watcher.note(&note);
    }
    Ok(bisection.search(source, &mut state, &mut watcher)?)
}

fn exit_code(report: &BisectReport) -> ExitCode {
    if report.conclusive {
        ExitCode::Success
    } else if report.had_an_environment() {
        ExitCode::NoVerdict
    } else {
        ExitCode::NoEnvironment
    }
}

/// Tells a person, a line per run.
struct OnStandardError {
    environment: OnStderr,
}

impl BisectWatcher for OnStandardError {
    fn environment(&self) -> &dyn Progress {
        &self.environment
    }

    fn run(&mut self) -> Box<dyn Watcher + '_> {
        Box::new(ProgressWatcher::new(|_| {}))
    }

    fn ran(&mut self, ran: &Ran<'_>) {
        say(&bisect_line(ran));
    }

    fn note(&mut self, note: &str) {
        say(&format!("bisect: {note}"));
    }
}
