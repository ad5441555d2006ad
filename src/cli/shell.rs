//! `torchleak completions` and `torchleak man`: what a shell and `man` want to know of the command line.

use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::error::CliError;
use super::{Cli, print_text};

#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS)]
pub struct CompletionsArgs {
    /// The shell that reads them
    #[arg(value_enum)]
    shell: Shell,
}

const COMPLETIONS: &str = "\
Examples:
  torchleak completions bash > ~/.local/share/bash-completion/completions/torchleak
  torchleak completions fish > ~/.config/fish/completions/torchleak.fish
  torchleak completions zsh > ~/.zfunc/_torchleak          with ~/.zfunc in fpath";

#[derive(Debug, Args)]
#[command(after_help = MAN)]
pub struct ManArgs {
    /// A folder that is there, for a page of each command
    folder: PathBuf,
}

const MAN: &str = "\
Example:
  mkdir -p ~/.local/share/man/man1 && torchleak man ~/.local/share/man/man1 && man torchleak-run";

/// Prints the completions of a shell.
pub fn completions(args: &CompletionsArgs) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "torchleak", &mut script);
    print_text(&String::from_utf8_lossy(&script))
}

/// Writes the manual pages.
pub fn man(args: &ManArgs) -> Result<(), CliError> {
    clap_mangen::generate_to(Cli::command().disable_help_subcommand(true), &args.folder).map_err(|source| {
        CliError::File { what: "folder of manual pages", path: args.folder.clone(), source }
    })
}
