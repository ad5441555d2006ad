//! `torchleak watch`.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode as ProcessExitCode;

use clap::{Args, ValueEnum};
use torchleak_protocol::{Boundary, WatchEvent, WatchMode};

use super::PlainFormat;
use super::error::CliError;
use crate::bytes::human;
use crate::cache::{Cache, CacheArgs};
use crate::exit_code::ExitCode;
use crate::report::{WatchLines, watch_document, watch_text};
use crate::say::say;
use crate::watch::{Follower, Process, ScriptExit, WatchError, WatchOptions, Watched, parse_boundary, watch};
use crate::writable;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct WatchArgs {
    /// The script's own command line
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    /// What is done after each step
    #[arg(long, value_enum, default_value = "observe")]
    mode: Mode,
    /// What ends a step: optimizer:INDEX, every:STEPS, call:MODULE:FUNCTION or time:SECONDS
    #[arg(long, value_name = "WHAT", default_value = "optimizer:0", value_parser = parse_boundary)]
    step: Boundary,
    /// Steps at the beginning that are not judged by
    #[arg(long, value_name = "N", default_value_t = 3)]
    warmup: u32,
    /// With --mode compare: steps without collection between two collects
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(3..))]
    round: u32,
    /// With --mode periodic: steps between two collects
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    gc_freq: u32,
    /// Stop the script after so many steps, as if it had called sys.exit(0)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    steps: Option<u32>,
    /// The ranks that report cycles [default: all]
    #[arg(long, value_name = "RANK,RANK", value_delimiter = ',')]
    ranks: Option<Vec<u32>>,
    /// Watch the workers of a DataLoader too; a step of theirs is a batch
    #[arg(long)]
    workers: bool,
    /// Exit with 1 if memory grows by more than this per step on any rank, such as 1MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    fail_on_leak: Option<u64>,
    /// Growth of at most this many bytes per step is flat
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = parse_size)]
    tolerance: u64,
    /// How the file of --output is written
    #[arg(long, value_enum, default_value = "human", requires = "output")]
    format: PlainFormat,
    /// A file for the summary; standard output belongs to the script
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Folder for run folders
    #[arg(long, value_name = "FOLDER", default_value = "runs")]
    runs: PathBuf,
    /// How many findings to show: which cycles keep which tensors
    #[arg(long, value_name = "N", default_value_t = 3)]
    findings: usize,
    /// Show strings and numbers that the program holds in findings; without it only types and lengths
    #[arg(long)]
    show_values: bool,
    /// Print no line per step
    #[arg(long)]
    quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  torchleak watch -- python train.py                       counts, and changes nothing
  torchleak watch --mode compare -- python -m pkg.train    a verdict, with the cycles that keep tensors
  torchleak watch --mode compare --steps 30 --fail-on-leak 1MiB -- torchrun --nproc-per-node 8 train.py
  torchleak watch --mode debug --ranks 0 -- torchrun --nproc-per-node 8 train.py
  torchleak watch --step time:10 -- python serve.py        a measurement every 10 s
Exit codes: the script's own if it is not 0 (128 and its number for a signal); else 1 for --fail-on-leak; else 0.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Count what automatic collections find, and change nothing
    Observe,
    /// As torchtitan's debug mode: no automatic collection, a full collect and a report of cycles each step; never says
    /// that a script is clean
    Debug,
    /// Rounds of steps without collection, each ended by a collect: a verdict with evidence
    Compare,
    /// As torchtitan in production: no automatic collection, a collect of generation 1 every --gc-freq steps
    Periodic,
}

/// Runs the script and gives the exit code.
pub fn run(args: &WatchArgs, cache: &CacheArgs) -> Result<ProcessExitCode, CliError> {
    let cache = Cache::open(cache)?;
    if let Some(path) = &args.output {
        writable::check(path).map_err(|source| WatchError::Output { path: path.clone(), source })?;
    }
    let options = options(args, &cache);
    let follower: &mut dyn Follower = if args.quiet { &mut Silent } else { &mut WatchLines };
    let watched = watch(&options, follower)?;
    let colour = std::io::stderr().is_terminal() && console::colors_enabled_stderr();
    say(watch_text(&watched.summary, &watched.folder, args.findings, colour).trim_end());
    let written = write_output(args, &watched);
    let written = all_kept(&watched).and(written);
    if let Err(error) = &written
        && watched.exit != ScriptExit::Exited(0)
    {
        // The script's own code is worth more to whoever started us.
        say(&format!("torchleak: {error}"));
    } else {
        written?;
    }
    Ok(exit_code(args, &watched))
}

fn options(args: &WatchArgs, cache: &Cache) -> WatchOptions {
    let mode = match args.mode {
        Mode::Observe => WatchMode::Observe,
        Mode::Debug => WatchMode::Debug,
        Mode::Compare => WatchMode::Compare,
        Mode::Periodic => WatchMode::Periodic,
    };
    WatchOptions {
        command: args.command.clone(),
        mode,
        boundary: args.step.clone(),
        warmup: args.warmup,
        every: if mode == WatchMode::Periodic { args.gc_freq } else { args.round },
        steps: args.steps,
        ranks: args.ranks.clone(),
        workers: args.workers,
        show_values: args.show_values,
        tolerance: args.tolerance,
        runs: args.runs.clone(),
        worker: cache.worker(),
    }
}

fn write_output(args: &WatchArgs, watched: &Watched) -> Result<(), WatchError> {
    let Some(path) = &args.output else { return Ok(()) };
    let text = match args.format {
        PlainFormat::Human => watch_text(&watched.summary, &watched.folder, args.findings, false),
        PlainFormat::Json => {
            format!("{:#}\n", watch_document(&watched.summary, watched.exit, &watched.folder))
        }
    };
    std::fs::write(path, text).map_err(|source| WatchError::Output { path: path.clone(), source })
}

/// Whether everything of the run folder is on disk.
fn all_kept(watched: &Watched) -> Result<(), WatchError> {
    if watched.lost.is_empty() { Ok(()) } else { Err(WatchError::Lost(watched.lost.clone())) }
}

fn exit_code(args: &WatchArgs, watched: &Watched) -> ProcessExitCode {
    if watched.exit != ScriptExit::Exited(0) {
        return watched.exit.code().into();
    }
    match (args.fail_on_leak, watched.summary.growth()) {
        (Some(limit), Some((growth, rank, what))) if growth > limit as f64 => {
            let (growth, limit) = (human(growth), human(limit as f64));
            say(&format!(
                "torchleak: --fail-on-leak: {rank}: {what} is {growth} per step, more than {limit}"
            ));
            ExitCode::Unexpected.into()
        }
        (Some(_), None) => {
            say("torchleak: no growth was measured, so --fail-on-leak cannot be answered");
            ExitCode::NoVerdict.into()
        }
        _ => ExitCode::Success.into(),
    }
}

fn parse_size(text: &str) -> Result<u64, String> {
    text.parse::<bytesize::ByteSize>().map(|size| size.0)
}

struct Silent;

impl Follower for Silent {
    fn event(&mut self, _process: &Process, _event: &WatchEvent) {}
}
