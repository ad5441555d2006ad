//! `torchleak bisect`.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use pep440_rs::Version;

use super::error::CliError;
use super::settings::SettingsArgs;
use super::{PlainFormat, print_json, print_text};
use crate::cache::{Cache, CacheArgs};
use crate::case::{Case, Catalog};
use crate::environment::{EnvironmentArgs, Managed, OnStderr, Progress, parse_torch};
use crate::exit_code::ExitCode;
use crate::report::{ProgressWatcher, bisect_document, bisect_line, bisect_text};
use crate::say::say;
use crate::versions::{
    BisectError, BisectReport, BisectWatcher, Bisection, CellWatcher, Commits, Find, Ran, Releases, Source,
    SourceArgs, State, between, direction,
};

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct BisectArgs {
    /// A shipped case by name, or a case file by path
    case: String,
    /// A version on which the case is `fixed`; with --nightly it may be a date, with --git a revision
    #[arg(long, value_name = "VERSION", allow_hyphen_values = true)]
    good: String,
    /// A version on which it leaks
    #[arg(long, value_name = "VERSION", allow_hyphen_values = true)]
    bad: String,
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
    #[command(flatten)]
    sources: SourceArgs,
    #[command(flatten)]
    checkout: CheckoutArgs,
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
  torchleak bisect pytree-is-leaf-closure --good 2.6.0 --bad 2.13.0    over the releases between the two
  torchleak bisect leak.yaml --good 2025-05-01 --bad 2025-05-27 --nightly
  torchleak bisect leak.yaml --good 2.6.0 --bad 2.8.0 --wheelhouse wheels
  torchleak bisect sac-stock --good v2.8.0 --bad main --git pytorch --paths torch/utils/checkpoint.py --torch 2.13.0
  torchleak bisect pytree-is-leaf-closure --good 2.6.0 --bad 2.13.0 --resume

Exit codes: 0 conclusive, 4 not conclusive, 2 bad usage, 3 no environment at all, 130 interrupted.";

/// Commits instead of versions.
#[derive(Debug, Args)]
#[command(next_help_heading = "Commits")]
struct CheckoutArgs {
    /// A checkout of PyTorch (or a bare clone), which is only read: candidates are the commits between the ends that
    /// change the paths, each laid over the release that --torch or --python names
    #[arg(long, value_name = "FOLDER", requires = "paths",
        conflicts_with_all = ["nightly", "index", "wheelhouse", "wheel"])]
    git: Option<PathBuf>,
    /// Which Python files and folders of it, from its root, such as torch/utils/checkpoint.py,torch/_compile.py
    #[arg(long, value_name = "PATH,PATH", requires = "git", value_delimiter = ',')]
    paths: Vec<String>,
}

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

/// Runs the command.
pub fn run(args: &BisectArgs, cache: &CacheArgs) -> Result<ExitCode, CliError> {
    let case = Catalog::shipped()?.find(&args.case)?;
    let cache = Cache::open(cache)?;
    let found = history(args, &cache)?;
    let report = search(args, &case, &found, &cache)?;
    match args.format {
        PlainFormat::Human => {
            print_text(&bisect_text(&report, std::io::stdout().is_terminal() && console::colors_enabled()))?;
        }
        PlainFormat::Json => print_json(&bisect_document(&report))?,
    }
    Ok(exit_code(&report))
}

/// What is searched.
struct History {
    source: Box<dyn Source>,
    /// What the candidates are.
    described: String,
    /// The names of the ends among the candidates.
    good: String,
    bad: String,
}

/// The candidates that the options name, and the ends among them.
fn history(args: &BisectArgs, cache: &Cache) -> Result<History, CliError> {
    let progress = OnStderr::new();
    if let Some(folder) = &args.checkout.git {
        return commits(args, folder, cache, &progress);
    }
    let template = Managed::template(&args.environment)?;
    if let Some(source) = args.sources.source(&template, cache, &progress)? {
        let described = args.sources.described();
        let [good, bad] = [&args.good, &args.bad].map(|end| source.find(end).unwrap_or_else(|| end.clone()));
        return Ok(History { source, described, good, bad });
    }
    let (good, bad) = (release("--good", &args.good)?, release("--bad", &args.bad)?);
    // Before the index is asked, which can take a while.
    direction(good.cmp(&bad), &args.good, &args.bad, args.find.map(Find::from))?;
    let source = Releases::between([&good, &bad], &template, cache, &progress)?;
    Ok(History {
        source: Box::new(source),
        described: "releases".to_owned(),
        good: good.to_string(),
        bad: bad.to_string(),
    })
}

/// Commits between the ends, over the release that the options of the environment name.
fn commits(
    args: &BisectArgs,
    folder: &Path,
    cache: &Cache,
    progress: &dyn Progress,
) -> Result<History, CliError> {
    let paths = &args.checkout.paths;
    let source = Commits::between(folder, &args.good, &args.bad, paths, &args.environment, cache, progress)?;
    for note in source.notes() {
        say(&format!("bisect: {note}"));
    }
    let base = source.base();
    let release = base.key().map_or_else(|| base.python.display().to_string(), str::to_owned);
    let described = format!("commits that change {}, over {release}", paths.join(", "));
    let (good, bad) = source.ends();
    let [good, bad] = [good, bad].map(|end| source.candidates()[end].label.clone());
    Ok(History { source: Box::new(source), described, good, bad })
}

fn release(option: &'static str, given: &str) -> Result<Version, CliError> {
    let problem = |error| CliError::BadEnd { option, given: given.to_owned(), problem: error };
    parse_torch(given).map_err(|error| problem(error.to_string()))
}

/// Searches the candidates between the ends.
fn search(
    args: &BisectArgs,
    case: &Case,
    history: &History,
    cache: &Cache,
) -> Result<BisectReport, CliError> {
    let source = &*history.source;
    let find = args.find.map(Find::from);
    let (candidates, find) = between(source.candidates(), &history.good, &history.bad, find)?;
    let settings = args.settings.settings(cache)?;
    let bisection = Bisection {
        case,
        case_argument: &args.case,
        candidates,
        find,
        confirm: args.confirm,
        settings: &settings,
    };
    let subject = bisection.subject(&history.described);
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

    fn run(&mut self) -> Box<dyn CellWatcher + '_> {
        Box::new(ProgressWatcher::new(|_| {}))
    }

    fn ran(&mut self, ran: &Ran<'_>) {
        say(&bisect_line(ran));
    }

    fn note(&mut self, note: &str) {
        say(&format!("bisect: {note}"));
    }
}
