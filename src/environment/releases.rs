//! Which releases of torch there are for an interpreter: uv is asked, because uv installs them, so that its indexes,
//! proxies and credentials, and its own idea of what fits this machine, hold here too.

use std::path::PathBuf;
use std::time::Duration;

use pep440_rs::Version;

use super::error::EnvironmentError;
use super::interpreters;
use super::progress::Progress;
use super::request::Managed;
use super::uv::Uv;
use crate::cache::Cache;
use crate::process::{self, Exit};

const DEADLINE: Duration = Duration::from_secs(120);

/// Releases of torch, the newest first, each found when it is asked for: uv names the newest below a bound.
#[derive(Debug)]
pub struct Releases<'a> {
    uv: Uv,
    template: &'a Managed,
    python_minor: u32,
    cache: &'a Cache,
    /// The one that uv runs in. It need not be of the version that is asked for.
    interpreter: Option<PathBuf>,
    below: Option<Version>,
    is_over: bool,
}

impl<'a> Releases<'a> {
    /// Begins at the newest release of the indexes that `template` names.
    ///
    /// # Errors
    /// There is no uv, and it cannot be installed; or the user asked to stop.
    pub fn newest_first(
        template: &'a Managed,
        python_minor: u32,
        cache: &'a Cache,
        progress: &dyn Progress,
    ) -> Result<Self, EnvironmentError> {
        let uv = Uv::find_or_install(cache, progress)?;
        let interpreter = interpreters::choose(None)?.map(|found| found.executable);
        Ok(Self { uv, template, python_minor, cache, interpreter, below: None, is_over: false })
    }

    /// As if everything from this version on had been seen.
    pub fn below(mut self, version: Version) -> Self {
        self.below = Some(version);
        self
    }

    fn ask(&self) -> Result<Option<Version>, EnvironmentError> {
        let mut command = self.uv.command(self.cache.root());
        command.args(["pip", "compile", "--no-deps", "--no-header", "--no-annotate", "--quiet"]);
        command.args(["--python-version", &format!("3.{}", self.python_minor)]);
        // Nothing is built here, so any interpreter will do; uv would search for the very one and fetch it, which takes
        // seconds for each question.
        command.arg("--no-python-downloads");
        if let Some(interpreter) = &self.interpreter {
            command.arg("--python").arg(interpreter);
        }
        self.template.add_indexes(&mut command);
        command.arg("-");
        let requirement = match &self.below {
            Some(version) => format!("torch<{version}\n"),
            None => "torch\n".to_owned(),
        };
        let shown = process::shown(&command);
        let said = process::exchange(command, requirement.into_bytes(), DEADLINE)
            .map_err(|source| EnvironmentError::Spawn { command: shown.clone(), source })?;
        if said.exit == Exit::Interrupted {
            return Err(EnvironmentError::Interrupted("asking for releases of torch".to_owned()));
        }
        let answer = String::from_utf8_lossy(&said.stdout).into_owned();
        let found = answer.lines().find_map(|line| line.trim().strip_prefix("torch=="));
        if let Some(version) = found.and_then(|version| version.split([' ', ';']).next()?.parse().ok()) {
            return Ok(Some(version));
        }
        let failure = EnvironmentError::Helper {
            doing: "asking for releases of torch".to_owned(),
            command: shown,
            exit: said.exit,
            tail: said.stderr.iter().map(|line| process::without_password(line)).collect(),
        };
        // Below the oldest release that fits uv finds no solution; any other failure is one.
        if self.below.is_some() && failure.is_nothing_that_fits() { Ok(None) } else { Err(failure) }
    }
}

impl Iterator for Releases<'_> {
    type Item = Result<Version, EnvironmentError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        match self.ask() {
            Ok(Some(version)) => {
                // A pre-release counts as below its release, but uv offers none unless asked for by name.
                self.below = Some(version.clone());
                Some(Ok(version))
            }
            Ok(None) => {
                self.is_over = true;
                None
            }
            Err(error) => {
                self.is_over = true;
                Some(Err(error))
            }
        }
    }
}
