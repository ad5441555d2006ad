//! Environments in the cache: `<key>/` (a virtual environment), `<key>.lock`, and `<key>.used`.
//!
//! An environment is ready when its facts are in `<key>/torchleak.json`, which is written last and by a rename.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::check;
use super::error::EnvironmentError;
use super::facts::Facts;
use super::interpreters;
use super::lock::{Kind, Lock, Waiting};
use super::progress::Progress;
use super::request::Managed;
use super::uv::{Uv, remove_folder, run_helper};
use crate::cache::{Cache, write_whole};
use crate::process::without_password;

/// What a fresh CUDA build of torch needs, downloads included.
pub(super) const ROOM: u64 = 6_000_000_000;
/// The Python that uv is asked for where the machine has none.
const FALLBACK_MINOR: u32 = 12;

/// What is written beside the interpreter once all is well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Marker {
    pub(super) requirements: Vec<String>,
    pub(super) facts: Facts,
}

/// The places of one managed environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) key: String,
    pub(super) folder: PathBuf,
}

impl Place {
    pub(super) fn new(cache: &Cache, key: &str) -> Self {
        Self { key: key.to_owned(), folder: cache.environments().join(key) }
    }

    pub(super) fn python(&self) -> PathBuf {
        self.folder.join("bin/python")
    }

    pub(super) fn lock(&self) -> PathBuf {
        self.beside("lock")
    }

    pub(super) fn used(&self) -> PathBuf {
        self.beside("used")
    }

    pub(super) fn marker(&self) -> PathBuf {
        self.folder.join("torchleak.json")
    }

    fn beside(&self, ending: &str) -> PathBuf {
        // Not `with_extension`, which would cut `torch-2.13` at its dot.
        self.folder.with_file_name(format!("{}.{ending}", self.key))
    }

    /// The marker, if the environment is ready and its base interpreter is still there.
    pub(super) fn ready(&self) -> Option<Marker> {
        let text = fs::read_to_string(self.marker()).ok()?;
        let marker = serde_json::from_str(&text).ok()?;
        self.python().exists().then_some(marker)
    }

    /// Notes that it is used now. In a cache that is only readable there is no age to keep.
    fn touch(&self) {
        let touched = fs::File::options().create(true).append(true).open(self.used());
        if let Err(error) = touched.and_then(|file| file.set_modified(SystemTime::now())) {
            tracing::debug!("cannot note the use of {}: {error}", self.key);
        }
    }
}

/// The minor version of the Python that it has or will have.
pub(super) fn python_minor(wanted: &Managed) -> Result<u32, EnvironmentError> {
    Ok(match wanted.python_minor {
        Some(minor) => minor,
        None => interpreters::choose(None)?.and_then(|found| found.minor()).unwrap_or(FALLBACK_MINOR),
    })
}

/// An environment that is ready.
pub(super) struct Found {
    pub(super) place: Place,
    pub(super) marker: Marker,
    /// Keeps it from being pruned.
    pub(super) in_use: Lock,
    /// Whether it was made just now and by this process.
    pub(super) is_new: bool,
}

/// Finds the environment in the cache or makes it.
pub(super) fn find_or_make(
    wanted: &Managed,
    cache: &Cache,
    progress: &dyn Progress,
) -> Result<Found, EnvironmentError> {
    let minor = python_minor(wanted)?;
    let place = Place::new(cache, &wanted.key(minor));
    // A ready environment in a cache that is only readable is as good as any.
    if place.ready().is_none() {
        cache.prepare(&cache.environments())?;
    }
    let making = format!("making {}", place.key);
    let mut waiting = Waiting::new(&making);
    let mut is_new = false;
    loop {
        if let Some(in_use) = Lock::try_take(&place.lock(), Kind::Shared)?
            && let Some(marker) = place.ready()
        {
            place.touch();
            return Ok(Found { place, marker, in_use, is_new });
        }
        match Lock::try_take(&place.lock(), Kind::Exclusive)? {
            // Another may have finished between the two looks.
            Some(_lock) if place.ready().is_some() => {}
            Some(_lock) => {
                make(wanted, &place, minor, cache, progress)?;
                is_new = true;
            }
            None => waiting.pause(&place.lock(), progress)?,
        }
    }
}

/// Makes the environment. The caller holds the exclusive lock.
fn make(
    wanted: &Managed,
    place: &Place,
    minor: u32,
    cache: &Cache,
    progress: &dyn Progress,
) -> Result<(), EnvironmentError> {
    let uv = Uv::find_or_install(cache, progress)?;
    // What is there is half-made, or its interpreter is gone.
    remove_folder(&place.folder)?;
    warn_of_little_room(cache, progress);
    let made = fill(wanted, place, minor, &uv, progress);
    if made.is_err() {
        // Without a marker it is never used, and the next attempt removes it; so failing here changes nothing.
        let _ = remove_folder(&place.folder);
    }
    made
}

fn fill(
    wanted: &Managed,
    place: &Place,
    minor: u32,
    uv: &Uv,
    progress: &dyn Progress,
) -> Result<(), EnvironmentError> {
    let environments = place.folder.parent().unwrap_or(&place.folder);
    progress.begin(&format!("making {}", place.key));
    let base = interpreters::choose(Some(minor))?;
    let mut venv = uv.command(environments);
    venv.args(["venv", "--no-project", "--python"]);
    match &base {
        Some(base) => venv.arg(&base.executable),
        // uv can download an interpreter, where its settings and the network let it.
        None => venv.arg(format!("3.{minor}")),
    };
    venv.arg(&place.folder);
    run_helper("making the environment", venv, progress).map_err(|error| match error {
        EnvironmentError::Helper { tail, .. } if base.is_none() => {
            EnvironmentError::NoPythonVersion { wanted: format!("3.{minor}"), tail }
        }
        error => error,
    })?;

    let shown: Vec<String> = wanted.requirements().iter().map(|one| without_password(one)).collect();
    progress.begin(&format!("installing {} into {}", shown.join(", "), place.key));
    let mut install = uv.command(environments);
    install.args(["pip", "install", "--python"]).arg(place.python());
    wanted.add_indexes(&mut install);
    install.arg("--").args(wanted.requirements());
    run_helper("installing torch", install, progress)?;

    progress.begin(&format!("checking {} (the first import of torch takes a while)", place.key));
    let facts = check::facts(&place.python())?;
    if !is_as_wanted(&wanted.torch, &facts.torch) {
        return Err(EnvironmentError::WrongTorch { wanted: wanted.torch.to_string(), found: facts.torch });
    }
    check::write_bytecode(&place.python())?;
    let marker = Marker { requirements: shown, facts };
    let io = |source| EnvironmentError::Io { action: "write", path: place.marker(), source };
    let text = serde_json::to_string_pretty(&marker).map_err(|error| io(error.into()))?;
    write_whole(&place.marker(), &text).map_err(io)
}

/// Whether the installed torch is the wanted one; `2.13.0+cu130` is torch 2.13.0.
fn is_as_wanted(wanted: &pep440_rs::Version, found: &str) -> bool {
    found.parse::<pep440_rs::Version>().is_ok_and(|found| {
        if wanted.local().is_empty() { found.without_local() == *wanted } else { found == *wanted }
    })
}

/// Little room may do: files that uv has cached are linked, not copied, and CPU builds are small. So this only warns.
fn warn_of_little_room(cache: &Cache, progress: &dyn Progress) {
    if let Some(free) = free_bytes(cache.root()).filter(|free| *free < ROOM) {
        progress.note(&format!(
            "warning: {} free at {}; a CUDA build of torch needs up to {}",
            indicatif::DecimalBytes(free),
            cache.root().display(),
            indicatif::DecimalBytes(ROOM)
        ));
    }
}

/// What a user may still write to the disk that holds this path, or would hold it.
pub(super) fn free_bytes(path: &Path) -> Option<u64> {
    let there = path.ancestors().find(|folder| folder.exists())?;
    let disk = rustix::fs::statvfs(there).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_for_cuda_is_still_the_release() {
        let wanted = |text: &str| text.parse().unwrap();
        assert!(is_as_wanted(&wanted("2.13.0"), "2.13.0+cu130"));
        assert!(is_as_wanted(&wanted("2.13.0+cpu"), "2.13.0+cpu"));
        assert!(!is_as_wanted(&wanted("2.13.0+cpu"), "2.13.0+cu130"));
        assert!(!is_as_wanted(&wanted("2.13.0"), "2.13.1"));
        assert!(is_as_wanted(&wanted("2.9.0.dev20250801"), "2.9.0.dev20250801+cu128"));
        assert!(!is_as_wanted(&wanted("2.13.0"), "garbage"));
    }

    #[test]
    fn a_folder_without_a_whole_marker_is_not_ready() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::new(&Cache::at(folder.path()), "torch-2.13.0-py3.11-00000000");
        fs::create_dir_all(place.folder.join("bin")).unwrap();
        fs::write(place.python(), "").unwrap();
        assert!(place.ready().is_none());
        fs::write(place.marker(), "{\"requirements\": [").unwrap();
        assert!(place.ready().is_none());
        assert!(place.lock().ends_with("environments/torch-2.13.0-py3.11-00000000.lock"));
    }

    #[test]
    fn the_room_of_a_folder_that_is_not_there_yet_is_that_of_its_disk() {
        assert!(free_bytes(Path::new("/nonexistent/a/b")).is_some_and(|free| free > 0));
    }
}
