//! The command line.

/// Runs the command line and gives the process's exit code.
pub fn main() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
