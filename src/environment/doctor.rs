//! What is on this machine, what is missing, and the command that mends it.

use std::fmt::Write;
use std::process::Command;
use std::time::Duration;

use comfy_table::{Cell, Color, Table, presets};
use serde::Serialize;

use super::error::EnvironmentError;
use super::interpreters;
use super::list;
use super::managed::free_bytes;
use super::request::DEFAULT_PYTHON_MINORS;
use super::size::size_of;
use super::uv::Uv;
use crate::bytes::human;
use crate::cache::Cache;
use crate::machine::{self, Memory};
use crate::process;

const QUICK: Duration = Duration::from_secs(20);
/// One CUDA environment with its downloads.
const ENOUGH_DISK: u64 = 10_000_000_000;
/// torch, a small model, and the three arms of a case.
const ENOUGH_MEMORY: u64 = 4 << 30;

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Nothing to do.
    Ok,
    /// It works, with less.
    Warn,
    /// Something needs it and it is not here.
    Missing,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What it is.
    pub name: &'static str,
    /// How it came out.
    pub status: Status,
    /// What was found.
    pub value: String,
    /// What to type or do about it.
    pub mend: Option<String>,
}

/// All checks of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Doctor {
    /// The checks, in the order they are shown.
    pub checks: Vec<Check>,
}

impl Doctor {
    /// Whether nothing is missing.
    pub fn is_well(&self) -> bool {
        self.checks.iter().all(|check| check.status != Status::Missing)
    }

    /// Columns for people.
    pub fn human(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        for check in &self.checks {
            let (word, color) = match check.status {
                Status::Ok => ("ok", Color::Green),
                Status::Warn => ("warn", Color::Yellow),
                Status::Missing => ("missing", Color::Red),
            };
            table.add_row([Cell::new(check.name), Cell::new(word).fg(color), Cell::new(&check.value)]);
        }
        let mut text = String::new();
        for line in table.to_string().lines() {
            let _ = writeln!(text, "{}", line.trim_end());
        }
        for check in &self.checks {
            if let Some(mend) = &check.mend {
                let _ = write!(text, "\n{}: {mend}", check.name);
            }
        }
        text.trim_end().to_owned()
    }
}

/// Looks at the machine. It installs, makes and changes nothing.
///
/// # Errors
/// Only an interrupt, or a cache that is there and cannot be read.
pub fn doctor(cache: &Cache) -> Result<Doctor, EnvironmentError> {
    let mut checks = pythons()?;
    checks.extend([uv(cache), gpus(), disk(cache), memory(), cores()]);
    checks.extend(cache_checks(cache)?);
    Ok(Doctor { checks })
}

fn check(name: &'static str, status: Status, value: impl Into<String>, mend: Option<&str>) -> Check {
    Check { name, status, value: value.into(), mend: mend.map(str::to_owned) }
}

fn pythons() -> Result<Vec<Check>, EnvironmentError> {
    let found = interpreters::all()?;
    let mut value = String::new();
    for one in &found {
        let threads = if one.free_threaded { " (free-threaded)" } else { "" };
        let _ = writeln!(value, "{}{threads}  {}", one.python, one.executable.display());
    }
    let usual = |minor| DEFAULT_PYTHON_MINORS.contains(&minor);
    let interpreters = if found.iter().any(|one| !one.free_threaded && one.minor().is_some_and(usual)) {
        check("python", Status::Ok, value.trim_end(), None)
    } else {
        let value = if value.is_empty() { "none of 3.10 or newer" } else { value.trim_end() };
        let mend = "uv python install 3.12 (torchleak's own environments use 3.10 to 3.13)";
        check("python", Status::Missing, value, Some(mend))
    };
    Ok(vec![interpreters])
}

fn uv(cache: &Cache) -> Check {
    if let Some(uv) = Uv::find(cache) {
        let place = uv.program().display();
        return match uv.version() {
            Some(version) => check("uv", Status::Ok, format!("{version}  {place}"), None),
            None => check(
                "uv",
                Status::Missing,
                format!("{place} does not run"),
                Some("pip install --force-reinstall uv"),
            ),
        };
    }
    // A venv can be made only where ensurepip is; Debian puts both into a package of their own.
    let python = interpreters::choose(None).ok().flatten();
    let can = python.as_ref().is_some_and(|python| {
        let mut command = Command::new(&python.executable);
        command.args(["-c", "import venv, ensurepip"]).current_dir("/");
        process::capture(command, QUICK).is_ok_and(|done| done.exit.success())
    });
    if can {
        check("uv", Status::Ok, "not on PATH; torchleak will install it into its cache", None)
    } else {
        let mend = "pip install uv, or apt install python3-venv";
        check("uv", Status::Missing, "not on PATH, and no python3 with venv to install it", Some(mend))
    }
}

fn gpus() -> Check {
    let mut command = Command::new("nvidia-smi");
    command.args(["--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]);
    match process::capture(command, QUICK) {
        Err(_) => check("gpu", Status::Ok, "none found (no nvidia-smi); cases run on the CPU", None),
        Ok(done) if done.exit.success() && !done.stdout.is_empty() => {
            check("gpu", Status::Ok, done.stdout.join("\n"), None)
        }
        Ok(done) => {
            let said = done.stdout.iter().chain(&done.stderr).next().cloned().unwrap_or_default();
            let value = format!("nvidia-smi ended with {}: {said}", done.exit);
            check("gpu", Status::Warn, value, Some("check the driver with nvidia-smi"))
        }
    }
}

fn disk(cache: &Cache) -> Check {
    let Some(free) = free_bytes(cache.root()) else {
        return check("disk", Status::Warn, format!("unknown at {}", cache.root().display()), None);
    };
    let value = format!("{} free at {}", human(free as f64), cache.root().display());
    if free >= ENOUGH_DISK {
        return check("disk", Status::Ok, value, None);
    }
    let mend = "torchleak env prune --keep 1 and, where uv is on PATH, uv cache prune --ci; or --cache-dir on another disk \
                (a CUDA build of torch needs about 6 GB)";
    check("disk", Status::Warn, value, Some(mend))
}

fn memory() -> Check {
    let Some(Memory { total, available }) = machine::memory() else {
        return check("memory", Status::Warn, "unknown", None);
    };
    let value = format!("{} available of {}", human(available as f64), human(total as f64));
    if available >= ENOUGH_MEMORY {
        check("memory", Status::Ok, value, None)
    } else {
        check("memory", Status::Warn, value, Some("end other programs; small cases need about 2 GiB"))
    }
}

fn cores() -> Check {
    match std::thread::available_parallelism() {
        Ok(count) => check("cores", Status::Ok, count.to_string(), None),
        Err(error) => check("cores", Status::Warn, error.to_string(), None),
    }
}

fn cache_checks(cache: &Cache) -> Result<Vec<Check>, EnvironmentError> {
    let root = cache.root().display();
    let there = cache.root().is_dir();
    let writable = if there {
        match cache.prepare(cache.root()) {
            Ok(()) => check(
                "cache",
                Status::Ok,
                format!("{root}  {}", human(size_of(cache.root()).bytes as f64)),
                None,
            ),
            Err(error) => check("cache", Status::Missing, error.to_string(), Some(&error.hint())),
        }
    } else {
        check("cache", Status::Ok, format!("{root}  not made yet"), None)
    };
    let listed = list::list(cache)?;
    let mut value = String::new();
    for one in &listed {
        let what = if one.ready { "" } else { "  unfinished" };
        let _ = writeln!(value, "{}{what}", one.key);
    }
    let environments = if listed.is_empty() {
        check("environments", Status::Ok, "none; the first run makes one", None)
    } else {
        check("environments", Status::Ok, value.trim_end(), None)
    };
    Ok(vec![writable, environments])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doctor_looks_at_everything_and_makes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(&folder.path().join("none"));
        let doctor = doctor(&cache).unwrap();
        let names: Vec<_> = doctor.checks.iter().map(|check| check.name).collect();
        assert_eq!(names, ["python", "uv", "gpu", "disk", "memory", "cores", "cache", "environments"]);
        assert!(!cache.root().exists());
        assert!(doctor.human().contains("not made yet"));
    }

    #[test]
    fn what_is_missing_comes_with_the_command_that_mends_it() {
        let doctor =
            Doctor { checks: vec![check("uv", Status::Missing, "not on PATH", Some("pip install uv"))] };
        assert!(!doctor.is_well());
        assert!(doctor.human().ends_with("uv: pip install uv"), "{}", doctor.human());
    }
}
