//! `torchleak run`.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode as ProcessExitCode;

use clap::{Args, ValueEnum};
use torchleak_protocol::Device;

use super::cases::CasesArgs;
use super::ci::{ReportArgs, part_of};
use super::error::CliError;
use super::overlay::{OverlayArgs, overlay_line};
use super::settings::SettingsArgs;
use super::{print_json, print_text};
use crate::cache::{Cache, CacheArgs};
use crate::case::{Partition, Verdict};
use crate::environment::{Environment, EnvironmentArgs, OnStderr};
use crate::exit_code::{BisectCode, ExitCode};
use crate::native;
use crate::report::{MatrixReport, ProgressWatcher, case_lines, case_text, document};
use crate::run::{CaseOutcome, Outcome, all_kept};
use crate::say::say;
use crate::versions::{Cell, label};

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RunArgs {
    #[command(flatten)]
    cases: CasesArgs,
    #[command(flatten)]
    environment: EnvironmentArgs,
    #[command(flatten)]
    overlay: OverlayArgs,
    /// How to print the results
    #[arg(long, value_enum, default_value = "human")]
    format: Format,
    /// What the exit code says
    #[arg(long, value_enum, default_value = "expect")]
    exit_code: ExitCodeMode,
    #[command(flatten)]
    settings: SettingsArgs,
    /// Also train each llama3 case by libtorch alone, without Python, on torch 2.13.0: memory that grows only under
    /// Python is kept by Python
    #[arg(long)]
    control: bool,
    /// How many findings to show below each verdict: which cycles keep which tensors
    #[arg(long, value_name = "N", default_value_t = 1)]
    findings: usize,
    /// Run one of N parts of the cases, for N machines
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
}

const EXAMPLES: &str = "\
Examples:
  torchleak run                                   the headline case on torch 2.13.0
  torchleak run --all --torch 2.8.0               every quick case on another torch
  torchleak run --all --slow                      those that compile or import torch anew, too
  torchleak run sac-stock --python .venv          your own environment, untouched
  torchleak run leak.yaml --format json           a case of your own, for a program to read
  torchleak run sac-stock --torch 2.8.0 --git ~/pytorch --commit HEAD --paths torch/utils/checkpoint.py
                                                  a release with Python files of a commit laid over it";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table and a verdict per case
    Human,
    /// One document on standard output
    Json,
    /// torchtitan's log lines
    Titan,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExitCodeMode {
    /// 0 all as expected, 1 some not, 4 no verdict
    Expect,
    /// For `git bisect run`: 0 fixed, 1 leaks, 125 cannot tell, 128 failure
    Bisect,
}

/// Runs the command. What a failure means for `--exit-code` is for the caller to say.
pub fn run(args: &RunArgs, cache: &CacheArgs) -> Result<ProcessExitCode, CliError> {
    let outcomes = run_cases(args, cache)?;
    Ok(match args.exit_code {
        ExitCodeMode::Expect => expect_code(&outcomes, !args.cases.all).into(),
        ExitCodeMode::Bisect => bisect_code(&outcomes).into(),
    })
}

fn run_cases(args: &RunArgs, cache: &CacheArgs) -> Result<Vec<CaseOutcome>, CliError> {
    let cases = args.cases.selected()?;
    args.reports.check()?;
    let cases = part_of(&cases, args.partition);
    let cache = Cache::open(cache)?;
    let settings = args.settings.settings(&cache)?;
    let environment = args.overlay.environment(&args.environment, &cache, &OnStderr::new())?;
    let mut options = settings.on(&environment)?;
    if args.control {
        // A build of minutes is only worth it for a case that can use it.
        options.native = Some(match cases.iter().any(|case| case.spec.program.is_none()) {
            true => native_control(&environment, &cache),
            false => Err("no case trains the llama3 model".to_owned()),
        });
    }
    if options.device == Device::Cuda && options.memory_limit.is_some() {
        say("torchleak: --memory-limit has no effect on CUDA, which maps more address space than it uses");
    }
    if args.format == Format::Human {
        print_text(&environment_line(&environment, options.device))?;
    }
    let colour = std::io::stdout().is_terminal() && console::colors_enabled();
    let (format, findings) = (args.format, args.findings);
    let mut output = Ok(());
    let mut watcher = ProgressWatcher::new(|outcome| {
        let text = match format {
            Format::Human => case_text(outcome, findings, colour),
            Format::Titan => case_lines(outcome),
            Format::Json => return,
        };
        output = std::mem::replace(&mut output, Ok(())).and_then(|()| print_text(&format!("{text}\n")));
    });
    let outcomes = crate::run::run(cases, &environment, &options, &mut watcher)?;
    drop(watcher);
    output?;
    if format == Format::Json {
        print_json(&document(&environment, options.device, &outcomes))?;
    }
    let overlay = environment.overlay().map(|overlay| overlay.commit.as_str());
    let label = label(&environment.facts.torch, overlay);
    let cells = outcomes.iter().map(|outcome| Cell::of(outcome, &label, &environment));
    args.reports.write(&MatrixReport::new(cells.collect()), cases)?;
    all_kept(&outcomes)?;
    Ok(outcomes)
}

/// Gives the program of the native control; without one the cases run all the same, and each says so.
fn native_control(environment: &Environment, cache: &Cache) -> Result<PathBuf, String> {
    native::find_or_build(environment, cache, &OnStderr::new()).map_err(|error| {
        say(&format!("torchleak: the native control is skipped: {error}\n  try: {}", error.hint()));
        error.to_string()
    })
}

/// What every number below it depends on.
pub fn environment_line(environment: &Environment, device: Device) -> String {
    let facts = &environment.facts;
    let commit = facts.torch_commit.as_deref().map_or("unknown", |commit| &commit[..commit.len().min(10)]);
    let device = match (device, environment.devices.first()) {
        (Device::Cuda, Some(gpu)) => format!("CUDA: {}, allocated bytes", gpu.name),
        _ => "CPU, bytes in use by the C allocator".to_owned(),
    };
    let overlay = environment.overlay().map_or_else(String::new, overlay_line);
    format!("torch {} (commit {commit}), Python {}, {device}\n{overlay}", facts.torch, facts.python)
}

/// The worst of all cases. A case, or a native control, that cannot run is fine among all, and is no verdict where the
/// case was `named`.
fn expect_code(outcomes: &[CaseOutcome], named: bool) -> ExitCode {
    let mut worst = ExitCode::Success;
    for outcome in outcomes {
        let code = match &outcome.outcome {
            Outcome::Interrupted => ExitCode::Interrupted,
            Outcome::Skipped { .. } if named => ExitCode::NoVerdict,
            _ if outcome.is_ok() => ExitCode::Success,
            Outcome::Judged(judgement) if judgement.verdict.is_conclusive() => ExitCode::Unexpected,
            _ => ExitCode::NoVerdict,
        };
        let native = match outcome.native.as_ref().map(|native| native.agrees) {
            Some(Some(false)) => ExitCode::Unexpected,
            Some(None) if named => ExitCode::NoVerdict,
            _ => ExitCode::Success,
        };
        worst = worst.max(code).max(native);
    }
    worst
}

/// Bad if any case leaks, good if all are fixed, else it cannot be told.
fn bisect_code(outcomes: &[CaseOutcome]) -> BisectCode {
    let leaks = |outcome: &CaseOutcome| {
        matches!(outcome.verdict(), Some(Verdict::Reproduced | Verdict::Uncollectable | Verdict::OneOff))
    };
    if outcomes.iter().any(|outcome| matches!(outcome.outcome, Outcome::Interrupted)) {
        BisectCode::Failure
    } else if outcomes.iter().any(leaks) {
        BisectCode::Bad
    } else if !outcomes.is_empty() && outcomes.iter().all(|outcome| outcome.verdict() == Some(Verdict::Fixed))
    {
        BisectCode::Good
    } else {
        BisectCode::CannotTell
    }
}
