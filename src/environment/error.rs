//! Why there is no environment. Every error but bad usage and an interrupt means exit code 3.

use std::io;
use std::path::PathBuf;

use pep440_rs::Version;

use crate::cache::CacheError;
use crate::process::Exit;

/// Why an environment cannot be found, made or checked.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// An option has a value that cannot mean anything.
    #[error("{option}: `{given}` {problem}")]
    BadOption {
        /// The option or variable.
        option: &'static str,
        /// Its value.
        given: String,
        /// What is wrong with it.
        problem: String,
        /// What to try.
        hint: &'static str,
    },
    /// Two settings exclude each other.
    #[error("{0} and {1} exclude each other")]
    Conflict(&'static str, &'static str),
    /// An option names one environment where a command goes over many.
    #[error("--python, --torch and --torch-wheel mean one environment, and this command goes over several")]
    OneEnvironment,
    /// The disk cannot hold one more environment.
    #[error("the disk of {} has {} free and one more environment takes up to {}", folder.display(),
        indicatif::DecimalBytes(*free), indicatif::DecimalBytes(*needed))]
    NoRoom {
        /// Where environments are.
        folder: PathBuf,
        /// Bytes that a user may still write.
        free: u64,
        /// Bytes that a build for CUDA takes with its downloads.
        needed: u64,
    },
    /// The cache cannot be used.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// A file or folder cannot be read, written or removed.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// With which file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// There is no interpreter at the given path.
    #[error("there is no Python interpreter at {}", .0.display())]
    NoPythonAt(PathBuf),
    /// The program at the path does not behave as an interpreter.
    #[error("{} cannot be run as a Python interpreter: {problem}", path.display())]
    NotPython {
        /// The program.
        path: PathBuf,
        /// What it did.
        problem: String,
    },
    /// The interpreter cannot run torchleak's worker.
    #[error("{} is {what}, and torchleak needs CPython 3.10 or newer", path.display())]
    UnusablePython {
        /// The interpreter.
        path: PathBuf,
        /// What it is.
        what: String,
    },
    /// No interpreter of the wanted version is on the machine, and uv cannot get one.
    #[error("no Python {wanted} was found and uv could not get one\n{}", tail.join("\n"))]
    NoPythonVersion {
        /// The wanted version.
        wanted: String,
        /// The last lines uv printed.
        tail: Vec<String>,
    },
    /// The interpreter has no torch.
    #[error("{} has no torch", .0.display())]
    NoTorch(PathBuf),
    /// The interpreter has a torch that cannot be imported.
    #[error("torch cannot be imported by {}: {problem}", python.display())]
    BrokenTorch {
        /// The interpreter.
        python: PathBuf,
        /// The last lines of the traceback, or how the interpreter ended.
        problem: String,
    },
    /// No private view can be made of the environment, so no files can be laid over it.
    #[error("files cannot be laid over the torch of {}: {problem}", python.display())]
    NoView {
        /// The interpreter.
        python: PathBuf,
        /// What is in the way.
        problem: String,
    },
    /// The environment does not work with the files that were laid over it.
    #[error(
        "with the Python files of commit {commit} over torch {torch}, {module} cannot be imported:\n{traceback}"
    )]
    DoesNotImport {
        /// Where the files are from.
        commit: String,
        /// The release that they were laid over.
        torch: String,
        /// The module that could not be imported.
        module: String,
        /// The last lines of the traceback.
        traceback: String,
    },
    /// torch is older than what workers need.
    #[error("torch {torch} is too old: torchleak needs torch {oldest} or newer")]
    OldTorch {
        /// The version that was asked for, or that the interpreter has.
        torch: String,
        /// The oldest that there can be.
        oldest: Version,
    },
    /// The index gave another version than was asked for.
    #[error("torch {wanted} was asked for and torch {found} was installed")]
    WrongTorch {
        /// The version asked for.
        wanted: String,
        /// The version that came.
        found: String,
    },
    /// `uv` is not on the machine and cannot be installed.
    #[error("uv is not on PATH and cannot be installed into the cache: {0}")]
    NoUv(String),
    /// A helper program failed.
    #[error("{doing} failed: `{command}` ended with {exit}\n{}", tail.join("\n"))]
    Helper {
        /// What it was for.
        doing: String,
        /// The command as a person would type it.
        command: String,
        /// How it ended.
        exit: Exit,
        /// The last lines it printed.
        tail: Vec<String>,
    },
    /// A helper program cannot be started.
    #[error("cannot start `{command}`")]
    Spawn {
        /// The command as a person would type it.
        command: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// The user asked to stop.
    #[error("interrupted while {0}; nothing half-made will be used")]
    Interrupted(String),
}

impl EnvironmentError {
    /// Whether the command line is wrong, which is exit code 2.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::BadOption { .. } | Self::Conflict(..) | Self::OneEnvironment)
    }

    /// Whether the user asked to stop, which is exit code 130.
    pub fn is_interrupted(&self) -> bool {
        matches!(self, Self::Interrupted(_))
    }

    /// Whether uv said that there is no version that was asked for, or none that fits this Python and machine.
    pub(super) fn is_nothing_that_fits(&self) -> bool {
        [NO_VERSION, NO_BUILD, NO_PLATFORM].iter().any(|cause| self.is_caused_by(cause))
    }

    /// Whether the wanted torch has no build for the wanted Python, which no retry changes.
    pub fn is_no_build(&self) -> bool {
        self.is_caused_by(NO_BUILD)
    }

    /// Whether the wanted torch is older than all that torchleak can use.
    pub fn is_too_old(&self) -> bool {
        matches!(self, Self::OldTorch { .. })
    }

    fn is_caused_by(&self, hint: &str) -> bool {
        matches!(self, Self::Helper { tail, exit, .. } if helper_hint(&tail.join("\n"), *exit) == Some(hint))
    }

    /// What to try.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::BadOption { hint, .. } => hint,
            Self::Conflict("TORCHLEAK_PYTHON", _) => "unset one of the two variables",
            Self::Conflict(..) => {
                "--python takes an interpreter as it is; the other options describe one that torchleak makes"
            }
            Self::OneEnvironment => {
                "leave them out; the versions are named by the command's own options, and --python-version chooses the Python"
            }
            Self::NoRoom { .. } => {
                "make room with `torchleak env prune --keep 1` or `uv cache clean`, keep fewer with --keep, or choose \
                 another disk with --cache-dir"
            }
            Self::Cache(error) => return Some(error.hint()),
            Self::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => DISK,
            Self::Io { .. } => "check that the folder can be written, or choose another with --cache-dir",
            Self::NoPythonAt(_) => {
                "give the path of an interpreter or of a virtual environment; `torchleak doctor` lists what is here"
            }
            Self::NotPython { .. } => {
                "try `--python` with the interpreter itself instead of a wrapper or shim"
            }
            Self::UnusablePython { .. } => "try --python-version 3.12, or another --python",
            Self::NoPythonVersion { wanted, .. } => {
                return Some(format!(
                    "install it, for example with `uv python install {wanted}`, or choose one that \
                     `torchleak doctor` lists with --python-version"
                ));
            }
            Self::NoTorch(python) => {
                return Some(format!(
                    "install it there with `uv pip install --python {} torch`, or let torchleak make an \
                     environment with --torch",
                    python.display()
                ));
            }
            Self::BrokenTorch { python, .. } => {
                return Some(format!("see the whole error with `{} -c 'import torch'`", python.display()));
            }
            Self::NoView { .. } => {
                "install a release of torch into a virtual environment, or let torchleak make one with --torch"
            }
            Self::DoesNotImport { .. } => {
                "choose a release closer to the commit with --torch, or more --paths that changed together"
            }
            Self::OldTorch { .. } => {
                "choose a newer release with --torch, or another interpreter with --python"
            }
            Self::WrongTorch { .. } => "check the indexes given with --index-url and --extra-index-url",
            Self::NoUv(_) => {
                "install it (https://docs.astral.sh/uv/, or `pip install uv`) and put it on PATH, or pass an \
                 interpreter that has torch with --python"
            }
            Self::Helper { tail, exit, .. } => {
                return helper_hint(&tail.join("\n"), *exit).map(str::to_owned);
            }
            Self::Spawn { .. } | Self::Interrupted(_) => return None,
        };
        Some(hint.to_owned())
    }
}

const DISK: &str = "the disk is full: make room with `torchleak env prune --keep 1` or `uv cache clean`, or choose another disk \
                    with --cache-dir";

const NO_BUILD: &str =
    "this torch has no build for this Python; choose another with --python-version (3.10 to 3.13)";

const NO_PLATFORM: &str =
    "this torch has no build for this machine; choose another with --torch or --index-url";

const NO_VERSION: &str = "check that the index has this version: --torch takes a release such as 2.13.0, and a nightly needs --index-url";

/// Reads the cause out of what uv or pip printed; their words are the only thing that tells.
fn helper_hint(text: &str, exit: Exit) -> Option<&'static str> {
    let lower = text.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    if matches!(exit, Exit::TimedOut(_)) {
        return Some("the network or the disk is too slow; what was downloaded is kept, so try again");
    }
    if says(&["no space left", "os error 28", "disk quota", "os error 122"]) {
        return Some(DISK);
    }
    if says(&["matching python abi", "matching python version", "matching python implementation"]) {
        return Some(NO_BUILD);
    }
    if says(&["matching platform", "not compatible with the current platform"]) {
        return Some(NO_PLATFORM);
    }
    // An unreachable index also ends in "no version", so the network comes first.
    if says(&["401 ", "403 ", "unauthorized", "forbidden"]) {
        return Some("the index wants other credentials; check --index-url and UV_INDEX settings");
    }
    if says(&[
        "dns error",
        "error sending request",
        "connection",
        "failed to fetch",
        "timed out",
        "certificate",
        "tls",
        "name resolution",
        "network",
    ]) {
        return Some(
            "check the network, HTTPS_PROXY and SSL_CERT_FILE, or name a reachable index with --index-url; on a machine \
             without network pass --python",
        );
    }
    if says(&["there is no version of", "no solution found", "no matching distribution", "was not found in"])
    {
        return Some(NO_VERSION);
    }
    None
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("Because there is no version of torch==99.0.0", "index has this version")]
    #[case("write error: No space left on device (os error 28)", "disk is full")]
    #[case("error: Failed to fetch: `https://x/`\n dns error: no version", "check the network")]
    #[case("torch==2.0.0 has no wheels with a matching Python ABI tag", "--python-version")]
    #[case("HTTP status client error (403 Forbidden)", "credentials")]
    fn the_hint_follows_what_uv_said(#[case] said: &str, #[case] hint: &str) {
        let given = helper_hint(said, Exit::Exited(1)).unwrap();
        assert!(given.contains(hint), "{given}");
    }

    /// What uv says below the oldest release that is built for the Python, and below the oldest of all.
    #[rstest]
    #[case(
        "Because torch<=2.4.1 has no wheels with a matching Python ABI tag (e.g., `cp313`) and only the following",
        true
    )]
    #[case("Because there are no versions of torch<1.0 and you require torch<1.0", false)]
    #[case(
        "Because only torch>=1.0 is available and you require torch<1.0, no solution found when resolving",
        false
    )]
    fn the_end_of_a_listing_is_told_from_a_failure(#[case] said: &str, #[case] is_no_build: bool) {
        let failure = |said: &str| EnvironmentError::Helper {
            doing: "asking".to_owned(),
            command: "uv".to_owned(),
            exit: Exit::Exited(1),
            tail: vec!["error: No solution found when resolving dependencies".to_owned(), said.to_owned()],
        };
        assert!(failure(said).is_nothing_that_fits());
        assert_eq!(failure(said).is_no_build(), is_no_build);
        assert!(!failure("error sending request for url").is_nothing_that_fits());
    }

    #[test]
    fn a_failure_nobody_knows_has_no_invented_hint() {
        assert_eq!(helper_hint("something else", Exit::Exited(1)), None);
    }
}
