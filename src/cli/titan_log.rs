//! `torchleak titan-log`.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;

use super::error::CliError;
use super::settings::parse_size;
use super::{PlainFormat, print_json, print_text};
use crate::bytes::human;
use crate::exit_code::ExitCode;
use crate::report::{titan_log_document, titan_log_line, titan_log_text};
use crate::say::say;
use crate::titan::{Ended, Judged, Log, Options, Rows, Watcher, Word, follow, is_stream, judge, read, svg};

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct TitanLogArgs {
    /// The log, plain or gzip; `-` for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Wait for more, as `tail -F` does, until Ctrl-C, which ends with the summary
    #[arg(long)]
    follow: bool,
    /// Show a row for each N steps
    #[arg(long, value_name = "N", conflicts_with = "all", value_parser = clap::value_parser!(u32).range(1..))]
    every: Option<u32>,
    /// Show a row for each step line
    #[arg(long)]
    all: bool,
    /// Drop the lines of the N steps after the first one, in place of the rule: the first line, and those of the first
    /// ten steps where 8 lines are left then
    #[arg(long, value_name = "N")]
    warmup: Option<u32>,
    /// Layers of the model, where the log does not tell them, to say what each collect freed of each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    layers: Option<u64>,
    /// Exit with 1 if any rank's memory grows by as much per step, such as 100MiB, or if collects freed as much
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    fail_on_leak: Option<u64>,
    /// How to print it
    #[arg(long, value_enum, default_value = "human")]
    format: PlainFormat,
    /// Also draw memory over steps
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  torchleak titan-log train.log                   growth per step of each rank, and when memory is used up
  torchleak titan-log train.log.gz --svg memory.svg
  torchleak titan-log --follow outputs/train.log  of a running job
  torchleak titan-log train.log --fail-on-leak 100MiB     for CI
  cat logs/attempt_0/*/stderr.log | torchleak titan-log - --format json

Exit codes: 0 analysed, 1 a leak of --fail-on-leak, 2 bad usage or unreadable file, 4 no verdict, 130 interrupted
(but not with --follow or standard input, which Ctrl-C ends).";

/// Runs the command.
pub fn run(args: &TitanLogArgs) -> Result<ExitCode, CliError> {
    let rows = match (args.every, args.all) {
        (Some(every), _) => Rows::Every(every),
        (None, true) => Rows::All,
        (None, false) => Rows::Spaced,
    };
    let options = Options { warmup: args.warmup, layers: args.layers };
    let mut log = Log::new(rows);
    let is_pipe = is_stream(&args.file);
    let mut notes = Vec::new();
    let mut was_interrupted = false;
    if args.follow && !is_pipe {
        let mut watcher =
            OnStandardError { options, next: Instant::now(), name: args.file.display().to_string() };
        follow(&args.file, &mut log, &mut watcher)?;
    } else {
        match read(&args.file, &mut log)? {
            Ended::Whole => {}
            Ended::Cut(why) => notes.push(format!("{why}; what came before was read")),
            Ended::Interrupted => {
                notes.push("interrupted: this is of what was read until then".to_owned());
                was_interrupted = !is_pipe;
            }
        }
    }
    let judged = judge(&log, &options);
    print(args, &judged, rows, &notes)?;
    Ok(if was_interrupted { ExitCode::Interrupted } else { exit_code(&judged, args.fail_on_leak) })
}

fn print(args: &TitanLogArgs, judged: &Judged<'_>, rows: Rows, notes: &[String]) -> Result<(), CliError> {
    let name =
        if args.file.as_os_str() == "-" { "standard input".into() } else { args.file.to_string_lossy() };
    if let Some(path) = &args.svg {
        let drawn = svg(judged, &crate::titan::plain(&name)).map_err(std::io::Error::other);
        let written = drawn.and_then(|picture| std::fs::write(path, picture));
        written.map_err(|source| CliError::File { what: "picture", path: path.clone(), source })?;
    }
    match args.format {
        PlainFormat::Json => print_json(&titan_log_document(judged, &name, rows, notes)),
        PlainFormat::Human => {
            let colour = std::io::stdout().is_terminal() && console::colors_enabled();
            print_text(&titan_log_text(judged, &name, rows, notes, colour))
        }
    }
}

fn exit_code(judged: &Judged<'_>, limit: Option<u64>) -> ExitCode {
    let leak = judged.ranks.iter().map(|rank| rank.leak()).fold(0.0, f64::max);
    if let Some(limit) = limit.filter(|limit| leak > 0.0 && leak >= *limit as f64) {
        say(&format!(
            "torchleak: a leak of {} per step, and --fail-on-leak is {}",
            human(leak),
            human(limit as f64)
        ));
        return ExitCode::Unexpected;
    }
    if judged.word == Word::Inconclusive { ExitCode::NoVerdict } else { ExitCode::Success }
}

/// Tells a person who follows a job, a line at most each second.
struct OnStandardError {
    options: Options,
    next: Instant,
    name: String,
}

impl Watcher for OnStandardError {
    fn waits(&mut self) {
        say(&format!("titan-log: {} is not there yet; waiting for it (Ctrl-C ends)", self.name));
    }

    fn caught_up(&mut self, log: &Log) {
        let begun = Instant::now();
        if begun < self.next {
            return;
        }
        if let Some(line) = titan_log_line(&judge(log, &self.options)) {
            say(&format!("titan-log: {line}"));
        }
        // Of thousands of ranks it takes a while, and must not take a processor.
        self.next = begun + (begun.elapsed() * 20).max(Duration::from_secs(1));
    }
}
