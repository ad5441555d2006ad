//! The command line: everything is in the library.

fn main() -> std::process::ExitCode {
    torchleak::cli::main()
}
