//! `torchleak env` and `torchleak doctor`.

use clap::Subcommand;

use super::error::CliError;
use super::{FormatArgs, PlainFormat, print_json, print_text};
use crate::bytes::human;
use crate::cache::{Cache, CacheArgs};
use crate::environment::{self, EnvironmentArgs, OnStderr, PruneArgs, Pruned};
use crate::exit_code::ExitCode;

#[derive(Debug, Subcommand)]
pub enum EnvCommand {
    /// List the environments in the cache: version, Python, size, last use
    List(FormatArgs),
    /// Find or make an environment, check it and print its interpreter
    Add(EnvironmentArgs),
    /// Remove environments that torchleak made, and the downloads that they were made of
    Prune(PruneArgs),
}

pub fn run(command: &EnvCommand, cache: &CacheArgs) -> Result<ExitCode, CliError> {
    let cache = Cache::open(cache)?;
    match command {
        EnvCommand::List(args) => {
            let listed = environment::list(&cache)?;
            match args.format {
                PlainFormat::Human => print_text(&environment::table(&listed, &cache))?,
                PlainFormat::Json => print_json(&serde_json::json!({"schema": 1, "environments": listed}))?,
            }
        }
        EnvCommand::Add(args) => {
            let found = environment::resolve(args, &cache, &OnStderr::new())?;
            print_text(&found.python.display().to_string())?;
        }
        EnvCommand::Prune(args) => {
            let pruned = environment::prune(&cache, args, &OnStderr::new())?;
            print_text(&pruned_text(&pruned, args.dry_run))?;
        }
    }
    Ok(ExitCode::Success)
}

fn pruned_text(pruned: &Pruned, dry_run: bool) -> String {
    let verb = if dry_run { "would remove" } else { "removed" };
    let mut lines: Vec<String> = pruned.removed.iter().map(|one| format!("{verb} {}", one.key)).collect();
    lines.extend(pruned.in_use.iter().map(|one| format!("kept {}, which is in use", one.key)));
    let verb = if dry_run { "would free" } else { "freed" };
    lines.push(format!("{verb} {}", human(pruned.freed_bytes as f64)));
    if pruned.shared_bytes > 0 {
        lines.push(format!(
            "{} of these files stay, because other environments share them, or the cache of a uv on PATH, which `uv cache prune --ci` \
             empties",
            human(pruned.shared_bytes as f64)
        ));
    }
    lines.join("\n")
}

pub fn doctor(args: &FormatArgs, cache: &CacheArgs) -> Result<ExitCode, CliError> {
    let found = environment::doctor(&Cache::open(cache)?)?;
    match args.format {
        PlainFormat::Human => print_text(&found.human())?,
        PlainFormat::Json => {
            print_json(&serde_json::json!({"schema": 1, "checks": found.checks, "well": found.is_well()}))?;
        }
    }
    Ok(if found.is_well() { ExitCode::Success } else { ExitCode::NoEnvironment })
}
