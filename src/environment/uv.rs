//! The `uv` program: on PATH, else installed once into the cache; and how torchleak runs it.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::error::EnvironmentError;
use super::interpreters;
use super::lock::Lock;
use super::managed::free_bytes;
use super::progress::Progress;
use crate::cache::Cache;
use crate::process::{self, Exit};

/// Enough for 5 GB over a slow line; past it nothing will come.
const DEADLINE: Duration = Duration::from_secs(2 * 60 * 60);
/// How many of a failed helper's last lines an error repeats.
const TAIL: usize = 15;
/// What uv takes on the disk with the folder that it is installed by, in bytes.
const ROOM: u64 = 100_000_000;

/// The `uv` to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Uv {
    program: PathBuf,
    /// The download cache, where torchleak chooses it.
    cache: Option<PathBuf>,
}

impl Uv {
    /// The `uv` on PATH or in the cache, without installing one.
    pub(super) fn find(cache: &Cache) -> Option<Self> {
        if let Ok(program) = which::which("uv") {
            return Some(Self { program, cache: None });
        }
        let own = own_program(cache);
        own.is_file().then(|| Self::own(cache))
    }

    /// The `uv` on PATH or in the cache, installed there if need be.
    pub(super) fn find_or_install(cache: &Cache, progress: &dyn Progress) -> Result<Self, EnvironmentError> {
        if let Some(found) = Self::find(cache) {
            return Ok(found);
        }
        cache.prepare(cache.root())?;
        let _lock = Lock::wait(&cache.root().join("uv.lock"), "installing uv", progress)?;
        // Whoever held the lock may have installed it.
        if !own_program(cache).is_file() {
            install(cache, progress)?;
        }
        Ok(Self::own(cache))
    }

    fn own(cache: &Cache) -> Self {
        // A user who chose a download cache keeps it.
        let chosen = std::env::var_os("UV_CACHE_DIR").is_some_and(|folder| !folder.is_empty());
        Self { program: own_program(cache), cache: (!chosen).then(|| cache.uv_cache()) }
    }

    /// The downloads of the uv that torchleak installed, if that is the one in use: links to them make environments. A
    /// link in their place leads to downloads that are not torchleak's to remove.
    pub(super) fn downloads(cache: &Cache) -> Option<PathBuf> {
        let folder = cache.uv_cache();
        let is_folder = fs::symlink_metadata(&folder).is_ok_and(|found| found.is_dir());
        let is_own = || Self::find(cache).is_some_and(|uv| uv.is_own(cache));
        (is_folder && is_own()).then_some(folder)
    }

    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// Whether torchleak installed it.
    pub(super) fn is_own(&self, cache: &Cache) -> bool {
        self.program == own_program(cache)
    }

    /// A command that heeds the user's uv settings but no project in the folder torchleak is run from.
    pub(super) fn command(&self, folder: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(folder).args(["--color", "never"]);
        // Both would point uv at another environment or project than the one it is told of.
        command.env_remove("VIRTUAL_ENV").env_remove("UV_PROJECT");
        if let Some(cache) = &self.cache {
            command.env("UV_CACHE_DIR", cache);
        }
        command
    }

    /// What `uv --version` says.
    pub(super) fn version(&self) -> Option<String> {
        let mut command = Command::new(&self.program);
        command.arg("--version");
        let said = process::capture(command, Duration::from_secs(20)).ok()?;
        said.stdout.into_iter().next().filter(|_| said.exit.success())
    }
}

fn own_program(cache: &Cache) -> PathBuf {
    cache.uv().join("bin/uv")
}

/// Installs uv into the cache. The caller holds the lock.
fn install(cache: &Cache, progress: &dyn Progress) -> Result<(), EnvironmentError> {
    let python = interpreters::choose(None)?
        .ok_or_else(|| EnvironmentError::NoUv("there is no python3 to install it with".to_owned()))?;
    progress.begin("installing uv into the cache, because there is none on PATH");
    let partial = cache.root().join("uv.partial");
    remove_folder(&partial)?;
    let mut venv = Command::new(&python.executable);
    venv.args(["-m", "venv"]).arg(&partial).current_dir(cache.root());
    let made = run_helper("making a folder for uv", venv, progress);
    let installed = made.and_then(|()| {
        let mut pip = Command::new(partial.join("bin/python"));
        pip.args(["-m", "pip", "install", "--no-input", "--disable-pip-version-check", "uv>=0.8"]);
        pip.current_dir(cache.root());
        run_helper("installing uv", pip, progress)
    });
    if let Err(error) = installed {
        let free = free_bytes(cache.root());
        // The next attempt removes it anyway; the first error is the one to show.
        let _ = remove_folder(&partial);
        return Err(match error {
            // Python's venv tells of a full disk by nothing but its exit code.
            _ if free.is_some_and(|free| free < ROOM) => EnvironmentError::Io {
                action: "install uv into",
                path: cache.uv(),
                source: io::ErrorKind::StorageFull.into(),
            },
            EnvironmentError::Helper { tail, .. } if tail.iter().any(|line| line.contains("ensurepip")) => {
                EnvironmentError::NoUv(format!(
                    "{} has no venv module (on Debian and Ubuntu: `apt install python3-venv`)",
                    python.executable.display()
                ))
            }
            error => error,
        });
    }
    // `uv` is a program of its own, so that it works wherever the folder is.
    fs::rename(&partial, cache.uv()).map_err(|source| EnvironmentError::Io {
        action: "put uv into",
        path: cache.uv(),
        source,
    })
}

/// Runs a helper to success, or gives an error with the command, its end and its last lines.
pub(super) fn run_helper(
    doing: &str,
    command: Command,
    progress: &dyn Progress,
) -> Result<(), EnvironmentError> {
    let shown = process::shown(&command);
    let mut tail = VecDeque::with_capacity(TAIL);
    let exit = process::run(command, DEADLINE, &mut |_, line| {
        let line = process::without_password(line.trim_end());
        if line.is_empty() {
            return;
        }
        if is_news(&line) {
            progress.note(&line);
        }
        if tail.len() == TAIL {
            tail.pop_front();
        }
        tail.push_back(line);
    })
    .map_err(|source| EnvironmentError::Spawn { command: shown.clone(), source })?;
    match exit {
        Exit::Exited(0) => Ok(()),
        Exit::Interrupted => Err(EnvironmentError::Interrupted(doing.to_owned())),
        exit => Err(EnvironmentError::Helper {
            doing: doing.to_owned(),
            command: shown,
            exit,
            tail: tail.into_iter().collect(),
        }),
    }
}

/// Whether a line of uv or pip is worth showing at once, such as "Downloading torch (506.1MiB)". What torchleak has
/// said itself is not, nor the long list of what was installed, nor an error, which is shown with its hint later.
fn is_news(line: &str) -> bool {
    let told =
        [" ", "Using ", "Creating ", "Activate ", "Looking ", "Installing ", "error:", "hint:", "ERROR:"];
    line.starts_with(" Downloaded") || !told.iter().any(|start| line.starts_with(start))
}

/// Removes a folder of torchleak's own if it is there; a symbolic link in its place is removed, not followed.
pub(super) fn remove_folder(path: &Path) -> Result<(), EnvironmentError> {
    let removed = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
    };
    removed.map_err(|source| EnvironmentError::Io { action: "remove", path: path.to_owned(), source })
}
