//! Removes environments from the cache: only what torchleak made, and nothing that is in use.

use std::fs;
use std::io;

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::error::EnvironmentError;
use super::list::{Listed, list};
use super::lock::{Kind, Lock};
use super::managed::Place;
use super::progress::Progress;
use super::uv::{Uv, remove_folder, run_helper};
use super::view;
use crate::cache::Cache;

/// What to remove. Unfinished environments always go.
#[derive(Debug, Clone, Default, Args)]
#[command(group = clap::ArgGroup::new("what").args(["older_than", "keep", "all"]).multiple(true).required(true))]
pub struct PruneArgs {
    /// Remove those not used for this many days
    #[arg(long, value_name = "DAYS", conflicts_with = "all")]
    pub older_than: Option<u32>,
    /// Keep the N last used, and remove the others (with --older-than: those of the others that are old enough)
    #[arg(long, value_name = "N", conflicts_with = "all")]
    pub keep: Option<usize>,
    /// Remove all, and the downloads of the uv that torchleak installed
    #[arg(long)]
    pub all: bool,
    /// Only say what would be removed
    #[arg(long)]
    pub dry_run: bool,
}

/// What was done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Pruned {
    /// What was removed, or would be in a dry run.
    pub removed: Vec<Listed>,
    /// What should go and is in use.
    pub in_use: Vec<Listed>,
    /// The bytes that this frees.
    pub freed_bytes: u64,
}

/// Removes environments.
///
/// # Errors
/// Something cannot be read or removed; what was removed before stays so.
pub fn prune(cache: &Cache, args: &PruneArgs, progress: &dyn Progress) -> Result<Pruned, EnvironmentError> {
    let mut done = Pruned::default();
    if !args.dry_run {
        // What is left of a view shares the files of its environment, which would keep their room.
        view::sweep(cache);
    }
    for one in chosen(list(cache)?, args, Timestamp::now()) {
        let place = Place::new(cache, &one.key);
        let Some(lock) = Lock::try_take(&place.lock(), Kind::Exclusive)? else {
            done.in_use.push(one);
            continue;
        };
        if !args.dry_run {
            progress.begin(&format!("removing {}", one.key));
            remove(&place, lock)?;
        }
        done.freed_bytes += one.own_bytes;
        done.removed.push(one);
    }
    if args.all && !args.dry_run {
        clean_downloads(cache, progress)?;
    }
    progress.end();
    Ok(done)
}

fn chosen(listed: Vec<Listed>, args: &PruneArgs, now: Timestamp) -> Vec<Listed> {
    let (ready, unfinished): (Vec<_>, Vec<_>) = listed.into_iter().partition(|one| one.ready);
    let limit = |days: u32| {
        // Before the beginning of time nothing was used.
        now.checked_sub(SignedDuration::from_hours(i64::from(days) * 24)).unwrap_or(Timestamp::MIN)
    };
    let by_age = args.older_than.map(limit);
    let goes = |rank: usize, one: &Listed| {
        let old = by_age.map(|limit| one.last_used.is_none_or(|at| at <= limit));
        let spare = args.keep.map(|keep| rank >= keep);
        args.all || (old.or(spare).unwrap_or(false) && old.unwrap_or(true) && spare.unwrap_or(true))
    };
    // The list is by last use, so that the rank is what `keep` counts.
    let ready = ready.into_iter().enumerate().filter(|(rank, one)| goes(*rank, one)).map(|(_, one)| one);
    ready.chain(unfinished).collect()
}

/// Removes the marker first, so that what is left of a broken-off removal is not ready, and the lock file last.
pub(super) fn remove(place: &Place, lock: Lock) -> Result<(), EnvironmentError> {
    let gone = |path: std::path::PathBuf, result: io::Result<()>| match result {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(EnvironmentError::Io { action: "remove", path, source })
        }
        _ => Ok(()),
    };
    gone(place.marker(), fs::remove_file(place.marker()))?;
    remove_folder(&place.folder)?;
    gone(place.used(), fs::remove_file(place.used()))?;
    gone(place.lock(), lock.remove())
}

/// Environments share their files with uv's cache by hard links, so that removing them alone frees little.
fn clean_downloads(cache: &Cache, progress: &dyn Progress) -> Result<(), EnvironmentError> {
    tell_uv(cache, &["cache", "clean"], progress)
}

/// Removes the downloads of the uv that torchleak installed that can be had again. Environments are made of links to
/// them, so that removing an environment frees next to nothing as long as they are kept.
///
/// # Errors
/// uv failed.
pub fn forget_downloads(cache: &Cache, progress: &dyn Progress) -> Result<(), EnvironmentError> {
    tell_uv(cache, &["cache", "prune", "--ci"], progress)
}

fn tell_uv(cache: &Cache, words: &[&str], progress: &dyn Progress) -> Result<(), EnvironmentError> {
    // A link in its place leads to downloads that are not torchleak's to remove.
    let is_folder = fs::symlink_metadata(cache.uv_cache()).is_ok_and(|found| found.is_dir());
    let Some(uv) = Uv::find(cache).filter(|uv| uv.is_own(cache) && is_folder) else {
        return Ok(());
    };
    // uv knows how to do this beside another uv at work.
    progress.begin("removing downloads");
    let mut clean = uv.command(cache.root());
    clean.args(words).env("UV_CACHE_DIR", cache.uv_cache());
    run_helper("removing downloads", clean, progress)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(key: &str, days_ago: i64, ready: bool) -> Listed {
        Listed {
            key: key.to_owned(),
            path: key.into(),
            ready,
            torch: None,
            cuda: None,
            python: None,
            requirements: Vec::new(),
            bytes: 0,
            own_bytes: 0,
            last_used: Some(now().checked_sub(SignedDuration::from_hours(days_ago * 24)).unwrap()),
        }
    }

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    fn goes(args: &PruneArgs) -> Vec<String> {
        let all = vec![
            listed("new", 0, true),
            listed("half", 1, false),
            listed("week", 7, true),
            listed("old", 99, true),
        ];
        chosen(all, args, now()).into_iter().map(|one| one.key).collect()
    }

    #[test]
    fn what_goes_depends_on_age_count_and_whether_it_was_finished() {
        let nothing = PruneArgs::default();
        assert_eq!(goes(&nothing), ["half"]);
        assert_eq!(goes(&PruneArgs { all: true, ..nothing.clone() }), ["new", "week", "old", "half"]);
        assert_eq!(goes(&PruneArgs { older_than: Some(7), ..nothing.clone() }), ["week", "old", "half"]);
        assert_eq!(goes(&PruneArgs { keep: Some(1), ..nothing.clone() }), ["week", "old", "half"]);
        assert_eq!(
            goes(&PruneArgs { keep: Some(2), older_than: Some(1), ..nothing.clone() }),
            ["old", "half"]
        );
        assert_eq!(goes(&PruneArgs { keep: Some(0), ..nothing.clone() }), ["new", "week", "old", "half"]);
        assert_eq!(goes(&PruneArgs { older_than: Some(u32::MAX), ..nothing }), ["half"]);
    }
}
