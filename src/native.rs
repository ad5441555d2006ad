//! The program of the native control: found beside this binary, or built from the sources that this binary was built from.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::cache::Cache;
use crate::environment::{Environment, Progress};
use crate::process::{self, Exit};

/// The one release that tch binds.
const TORCH: &str = "2.13.0";
const PROGRAM: &str = "torchleak-control";
/// The bindings are 4 MB of generated C++, which takes minutes on a laptop.
const DEADLINE: Duration = Duration::from_secs(3600);
/// How many of the last lines of a failed build are shown.
const TAIL: usize = 8;

/// Why there is no native control.
#[derive(Debug, thiserror::Error)]
pub enum NativeError {
    #[error("the native control is built for torch {TORCH} and this environment has torch {torch}")]
    OtherTorch { torch: String },
    #[error("there is no {PROGRAM} beside torchleak, and its sources are not in {}", path.display())]
    NoSources { path: PathBuf },
    #[error("there is no {PROGRAM} beside torchleak, and no cargo on PATH to build it")]
    NoCargo(#[source] which::Error),
    #[error("cargo cannot be started")]
    Start(#[source] io::Error),
    #[error("the native control does not build ({exit}):\n{tail}")]
    Build { exit: Exit, tail: String },
}

impl NativeError {
    /// What the user can try.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::OtherTorch { .. } => "run with --torch 2.13.0",
            Self::NoSources { .. } => {
                "build it in a checkout with ci/control.sh, and put it beside torchleak"
            }
            Self::NoCargo(_) | Self::Start(_) => {
                "install Rust, or put a built torchleak-control beside torchleak"
            }
            Self::Build { .. } => {
                "it needs a C++ compiler that knows C++17; ci/control.sh shows the whole build"
            }
        }
    }
}

/// Gives the program for an environment, and builds it if need be.
///
/// # Errors
/// The environment has another torch, or there is no program and none can be built.
pub fn find_or_build(
    environment: &Environment,
    cache: &Cache,
    progress: &dyn Progress,
) -> Result<PathBuf, NativeError> {
    check_release(&environment.facts.torch)?;
    let beside = std::env::current_exe().ok().map(|binary| binary.with_file_name(PROGRAM));
    if let Some(program) = beside.filter(|program| program.is_file()) {
        return Ok(program);
    }
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
    if !sources.join("harness/control/Cargo.toml").is_file() {
        return Err(NativeError::NoSources { path: sources.to_owned() });
    }
    let built = build(sources, &environment.python, &cache.control(), progress);
    progress.end();
    built
}

/// Refuses every torch that tch does not bind, nightlies of the same release among them.
fn check_release(torch: &str) -> Result<(), NativeError> {
    match torch.split('+').next() {
        Some(TORCH) => Ok(()),
        _ => Err(NativeError::OtherTorch { torch: torch.to_owned() }),
    }
}

/// Builds the program; cargo sees by itself whether it is built already.
fn build(
    sources: &Path,
    python: &Path,
    target: &Path,
    progress: &dyn Progress,
) -> Result<PathBuf, NativeError> {
    let mut cargo = Command::new(which::which("cargo").map_err(NativeError::NoCargo)?);
    // libtorch does the work, so a release build would only take twice as long to make.
    cargo.args(["build", "--locked", "--package", PROGRAM]).current_dir(sources);
    cargo.arg("--target-dir").arg(target);
    // torch-sys asks the first `python3` on PATH for the headers and libraries of its torch.
    cargo.env("LIBTORCH_USE_PYTORCH", "1").env("PATH", path_before(python)).env_remove("VIRTUAL_ENV");
    // It would put the program into another folder.
    cargo.env_remove("CARGO_BUILD_TARGET");
    progress.begin("building the native control, once; the bindings of libtorch take minutes");
    let mut tail = VecDeque::with_capacity(TAIL);
    let exit = process::run(cargo, DEADLINE, &mut |_, line| {
        let line = line.trim();
        if ["Compiling torch", "Compiling tch"].iter().any(|news| line.starts_with(news)) {
            progress.note(line);
        }
        if tail.len() == TAIL {
            tail.pop_front();
        }
        tail.push_back(format!("    {line}"));
    })
    .map_err(NativeError::Start)?;
    if !exit.success() {
        return Err(NativeError::Build { exit, tail: Vec::from(tail).join("\n") });
    }
    Ok(target.join("debug").join(PROGRAM))
}

/// PATH with the interpreter's folder first.
fn path_before(python: &Path) -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = python.parent().map(Path::to_owned).into_iter().chain(std::env::split_paths(&path));
    // A folder whose name has a colon cannot be on PATH at all.
    std::env::join_paths(folders).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::check_release;

    #[rstest]
    #[case("2.13.0", true)]
    #[case("2.13.0+cu130", true)]
    #[case("2.13.1+cpu", false)]
    #[case("2.8.0", false)]
    #[case("2.13.0.dev20260401+cu130", false)]
    fn only_the_release_that_tch_binds_is_accepted(#[case] torch: &str, #[case] accepted: bool) {
        assert_eq!(check_release(torch).is_ok(), accepted);
    }
}
