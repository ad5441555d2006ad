//! `torchleak explain`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::error::CliError;
use super::overlay::OverlayArgs;
use super::run::environment_line;
use super::settings::SettingsArgs;
use super::{print_json, print_text, width};
use crate::cache::{Cache, CacheArgs};
use crate::case::{Catalog, HEADLINE};
use crate::environment::{EnvironmentArgs, OnStderr};
use crate::exit_code::ExitCode;
use crate::explain::{Effect, Explanation, explain};
use crate::report::{ProgressWatcher, explain_document, explain_markdown, explain_text};

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ExplainArgs {
    /// A shipped case by name, or a case file by path
    #[arg(value_name = "CASE", default_value = HEADLINE)]
    case: String,
    #[command(flatten)]
    environment: EnvironmentArgs,
    #[command(flatten)]
    overlay: OverlayArgs,
    /// Write the minimal case to this file, which gives it its name [default: minimal.yaml in the run folder]
    #[arg(long, value_name = "FILE.yaml")]
    output_case: Option<PathBuf>,
    /// How to print the result
    #[arg(long, value_enum, default_value = "human")]
    format: Format,
    #[command(flatten)]
    settings: SettingsArgs,
}

const EXAMPLES: &str = "\
Examples:
  torchleak explain                                        the headline case on torch 2.13.0
  torchleak explain leak.yaml --output-case smaller.yaml   a case of your own, and the smallest that still leaks
  torchleak explain full-ac-disable --torch 2.8.0 --format markdown";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table of conditions, the laws, a sentence and the minimal case
    #[value(alias = "text")]
    Human,
    /// One document on standard output
    Json,
    /// For an issue
    Markdown,
}

/// Runs the command.
pub fn run(args: &ExplainArgs, cache: &CacheArgs) -> Result<ExitCode, CliError> {
    let case = Catalog::shipped()?.find(&args.case)?;
    let cache = Cache::open(cache)?;
    let settings = args.settings.settings(&cache)?;
    let environment = args.overlay.environment(&args.environment, &cache, &OnStderr::new())?;
    let options = settings.on(&environment)?;
    let device = options.device;
    let mut watcher = ProgressWatcher::new(|_| ());
    let explanation = explain(&case, &environment, options, args.output_case.as_deref(), &mut watcher)?;
    drop(watcher);
    let torch = &environment.facts.torch;
    match args.format {
        Format::Human => {
            print_text(&environment_line(&environment, device))?;
            print_text(&explain_text(&explanation, torch, width()))?;
        }
        Format::Json => print_json(&explain_document(&explanation, &environment))?,
        Format::Markdown => print_text(&explain_markdown(&explanation, torch))?,
    }
    Ok(exit_code(&explanation))
}

/// Success where there is a leak, something is known of its conditions, and the minimal case has it too.
fn exit_code(explanation: &Explanation) -> ExitCode {
    let is_known = explanation.rows.iter().any(|row| row.shown.effect != Effect::Unknown);
    match &explanation.minimal {
        _ if explanation.interrupted => ExitCode::Interrupted,
        Some(minimal) if !minimal.leaks => ExitCode::NoVerdict,
        _ if is_known => ExitCode::Success,
        _ => ExitCode::NoVerdict,
    }
}
