//! What is in the cache.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::PathBuf;

use comfy_table::{Table, presets};
use jiff::Timestamp;
use serde::Serialize;

use super::error::EnvironmentError;
use super::managed::{Marker, Place};
use super::size::{Names, size_of_all};
use super::uv::Uv;
use crate::bytes::human;
use crate::cache::Cache;

/// One environment in the cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// The name of its folder.
    pub key: String,
    /// Its folder.
    pub path: PathBuf,
    /// Whether it can be used; if not, making it was broken off.
    pub ready: bool,
    /// Its torch.
    pub torch: Option<String>,
    /// The CUDA release of its torch.
    pub cuda: Option<String>,
    /// Its full Python version.
    pub python: Option<String>,
    /// What it was asked to hold.
    pub requirements: Vec<String>,
    /// The bytes of everything in it.
    pub bytes: u64,
    /// The bytes that pruning it frees; other environments and the cache of a uv on PATH may share the rest.
    pub own_bytes: u64,
    /// When it was last used or, if it never was, made.
    pub last_used: Option<Timestamp>,
}

/// The environments in the cache, the last used first. What torchleak did not make is not among them.
///
/// # Errors
/// The folder of environments cannot be read.
pub fn list(cache: &Cache) -> Result<Vec<Listed>, EnvironmentError> {
    let places = places(cache)?;
    // They go when an environment is pruned, so what only they share is freed.
    let downloads = Names::of(Uv::downloads(cache).as_deref().filter(|_| !places.is_empty()));
    let mut all: Vec<Listed> = places.iter().map(|place| describe(place, &downloads)).collect();
    all.sort_by(|a, b| b.last_used.cmp(&a.last_used).then_with(|| a.key.cmp(&b.key)));
    Ok(all)
}

/// A table for people.
pub fn table(listed: &[Listed], cache: &Cache) -> String {
    if listed.is_empty() {
        return format!("no environments in {}", cache.environments().display());
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "KEY",
        "TORCH",
        "PYTHON",
        "SIZE",
        "FREED IF REMOVED",
        "LAST USED",
    ]);
    for one in listed {
        table.add_row([
            one.key.clone(),
            one.torch.clone().unwrap_or_else(|| "unfinished".to_owned()),
            one.python.clone().unwrap_or_default(),
            human(one.bytes as f64),
            human(one.own_bytes as f64),
            one.last_used.map_or_else(|| "never".to_owned(), |at| ago(Timestamp::now(), at)),
        ]);
    }
    let mut text = String::new();
    for line in table.to_string().lines() {
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text.trim_end().to_owned()
}

/// The places of torchleak's own environments, ready or not.
pub(super) fn places(cache: &Cache) -> Result<Vec<Place>, EnvironmentError> {
    let folder = cache.environments();
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(EnvironmentError::Io { action: "read", path: folder, source }),
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        // A link's type is not that of what it leads to, so links are never followed.
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let Ok(key) = entry.file_name().into_string() else { continue };
        let place = Place::new(cache, &key);
        // The marker is what torchleak writes last, the lock file what it writes first.
        if key.starts_with("torch-") && (place.lock().is_file() || marker(&place).is_some()) {
            found.push(place);
        }
    }
    Ok(found)
}

fn marker(place: &Place) -> Option<Marker> {
    serde_json::from_str(&fs::read_to_string(place.marker()).ok()?).ok()
}

fn describe(place: &Place, downloads: &Names) -> Listed {
    let ready = place.ready();
    let size = size_of_all(std::slice::from_ref(&place.folder), downloads);
    let stamp = |path: PathBuf| fs::metadata(path).and_then(|found| found.modified()).ok();
    let last_used = stamp(place.used()).or_else(|| stamp(place.marker()));
    let facts = ready.as_ref().map(|marker| &marker.facts);
    Listed {
        key: place.key.clone(),
        path: place.folder.clone(),
        torch: facts.map(|facts| facts.torch.clone()),
        cuda: facts.and_then(|facts| facts.cuda.clone()),
        python: facts.map(|facts| facts.python.clone()),
        requirements: ready.as_ref().map(|marker| marker.requirements.clone()).unwrap_or_default(),
        ready: ready.is_some(),
        bytes: size.bytes,
        own_bytes: size.own_bytes,
        last_used: last_used.and_then(|at| Timestamp::try_from(at).ok()),
    }
}

fn ago(now: Timestamp, at: Timestamp) -> String {
    let seconds = now.duration_since(at).as_secs().max(0);
    let count =
        |number: i64, unit: &str| format!("{number} {unit}{} ago", if number == 1 { "" } else { "s" });
    match seconds {
        0..60 => "just now".to_owned(),
        60..3600 => count(seconds / 60, "minute"),
        3600..86400 => count(seconds / 3600, "hour"),
        _ => count(seconds / 86400, "day"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_told_in_its_largest_whole_unit() {
        let now = Timestamp::from_second(1_000_000_000).unwrap();
        let before = |seconds: i64| ago(now, Timestamp::from_second(1_000_000_000 - seconds).unwrap());
        assert_eq!(before(-5), "just now");
        assert_eq!(before(61), "1 minute ago");
        assert_eq!(before(7200), "2 hours ago");
        assert_eq!(before(86_400 * 40), "40 days ago");
    }

    #[test]
    fn a_cache_that_was_never_used_lists_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(&folder.path().join("none"));
        assert_eq!(list(&cache).unwrap(), []);
        assert!(table(&[], &cache).starts_with("no environments in "));
    }
}
