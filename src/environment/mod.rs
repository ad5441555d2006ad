//! Environments: a Python interpreter with one torch, found or made, never changed afterwards.
//!
//! Architecture invariant: nothing here knows of cases, workers or reports. What an environment is for is not its
//! concern, and a later stage gets an [`Environment`] and never looks into the cache itself.

mod check;
mod devices;
mod doctor;
mod error;
mod facts;
mod given;
mod interpreters;
mod links;
mod list;
mod lock;
mod managed;
mod overlay;
mod progress;
mod prune;
mod releases;
mod request;
mod room;
mod size;
mod torch_version;
mod torch_wheel;
mod uv;
mod view;
mod views;

use std::path::{Path, PathBuf};
use std::process::Command;

use pep440_rs::Version;

pub use doctor::{Check, Doctor, Status, doctor};
pub use error::EnvironmentError;
pub use facts::{Device, Facts};
pub use list::{Listed, list, table};
pub use lock::Lock;
pub use overlay::{Overlay, overlaid};
pub use progress::{OnStderr, Progress, Silent};
pub use prune::{PruneArgs, Pruned, forget_downloads, prune};
pub use releases::Releases;
pub use request::{DEFAULT_TORCH, EnvironmentArgs, Managed, Request};
pub use room::{check_room, has_room_for, remove_environment};
pub use torch_version::parse_torch;
pub use torch_wheel::TorchWheel;
pub use view::{PACKAGES, View, is_installed};
pub use views::{UsedView, Views};

use crate::cache::Cache;

/// Where an environment came from.
#[derive(Debug)]
pub enum Origin {
    /// The user named the interpreter; it is used as it is.
    Given,
    /// It is in torchleak's cache.
    Managed {
        /// The name of its folder.
        key: String,
        /// Keeps it from being pruned for as long as it is used.
        in_use: Lock,
        /// Whether it was not there before and this process made it.
        is_new: bool,
    },
    /// It is a private view of another environment, in which Python files of torch are those of a commit.
    Overlaid(Box<Overlay>),
}

/// An interpreter with a torch that was seen to work.
#[derive(Debug)]
pub struct Environment {
    /// The interpreter. It is not resolved: a virtual environment is known by the path it is called by.
    pub python: PathBuf,
    /// What is known of it.
    pub facts: Facts,
    /// The GPUs torch sees on this machine, now.
    pub devices: Vec<Device>,
    /// Where it came from.
    pub origin: Origin,
}

impl Environment {
    /// The name of its folder in the cache, if it is there.
    pub fn key(&self) -> Option<&str> {
        match &self.origin {
            Origin::Given | Origin::Overlaid(_) => None,
            Origin::Managed { key, .. } => Some(key),
        }
    }

    /// Whether it was not in the cache before it was asked for, and not made by another process either.
    pub fn is_new(&self) -> bool {
        matches!(self.origin, Origin::Managed { is_new: true, .. })
    }

    /// What was laid over its torch, if anything was.
    pub fn overlay(&self) -> Option<&Overlay> {
        match &self.origin {
            Origin::Overlaid(overlay) => Some(overlay),
            Origin::Given | Origin::Managed { .. } => None,
        }
    }

    /// A command that runs the interpreter, with nothing of the surroundings mixed into a managed environment. It
    /// writes nothing into any environment: the bytecode of a managed one was written when it was made.
    pub fn command(&self) -> Command {
        self.command_of(&self.python)
    }

    /// As [`Environment::command`], for another interpreter that is to see what this environment sees.
    fn command_of(&self, python: &Path) -> Command {
        let mut command = Command::new(python);
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        if self.is_managed() {
            command.env_remove("PYTHONPATH").env_remove("PYTHONHOME").env("PYTHONNOUSERSITE", "1");
        }
        command
    }

    fn is_managed(&self) -> bool {
        match &self.origin {
            Origin::Given => false,
            Origin::Managed { .. } => true,
            Origin::Overlaid(overlay) => overlay.base.is_managed(),
        }
    }
}

/// Finds the wanted environment, or makes it.
///
/// # Errors
/// Bad options, or an environment that cannot be found, made or checked.
pub fn resolve(
    args: &EnvironmentArgs,
    cache: &Cache,
    progress: &dyn Progress,
) -> Result<Environment, EnvironmentError> {
    resolve_request(&Request::new(args, |name| std::env::var_os(name))?, cache, progress)
}

/// As [`resolve`], for what was validated before.
///
/// # Errors
/// An environment that cannot be found, made or checked.
pub fn resolve_request(
    request: &Request,
    cache: &Cache,
    progress: &dyn Progress,
) -> Result<Environment, EnvironmentError> {
    let found = find(request, cache, progress);
    // On every way out, or a spinner would go on over the error.
    progress.end();
    found
}

fn find(request: &Request, cache: &Cache, progress: &dyn Progress) -> Result<Environment, EnvironmentError> {
    let (python, facts, origin) = match request {
        Request::Interpreter(path) => {
            let (python, facts) = given::find(path, cache, progress)?;
            if let Ok(torch) = facts.torch.parse() {
                check_age(&torch)?;
            }
            (python, facts, Origin::Given)
        }
        Request::Managed(wanted) => {
            // Before anything is downloaded.
            check_age(&wanted.torch)?;
            let managed::Found { place, marker, in_use, is_new } =
                managed::find_or_make(wanted, cache, progress)?;
            (place.python(), marker.facts, Origin::Managed { key: place.key, in_use, is_new })
        }
    };
    let devices = devices::find(&python, &facts, cache, progress)?;
    Ok(Environment { python, facts, devices, origin })
}

/// Refuses a torch without Dynamo, which workers import. Nightlies of the first one with it will do.
fn check_age(torch: &Version) -> Result<(), EnvironmentError> {
    let oldest = Version::new([2, 0]);
    if Version::new(torch.release().iter().copied()) >= oldest {
        return Ok(());
    }
    Err(EnvironmentError::OldTorch { torch: torch.to_string(), oldest })
}

/// The minor version of the Python 3 that an environment has or will have: the wanted one, else the machine's.
///
/// # Errors
/// The user asked to stop while interpreters were looked at.
pub fn python_minor(wanted: &Managed) -> Result<u32, EnvironmentError> {
    managed::python_minor(wanted)
}

/// Whether the environment of that name is in the cache and ready, so that it can be used without any index.
pub fn is_ready(key: &str, cache: &Cache) -> bool {
    managed::Place::new(cache, key).ready().is_some()
}

/// The `uv` on PATH, or else torchleak's own, which is installed if it is not there yet.
///
/// # Errors
/// There is none, and it cannot be installed.
pub fn find_or_install_uv(cache: &Cache, progress: &dyn Progress) -> Result<PathBuf, EnvironmentError> {
    let found = uv::Uv::find_or_install(cache, progress);
    progress.end();
    found.map(|uv| uv.program().to_owned())
}
