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
use super::size::{Names, size_of, size_of_all};
use super::uv::{Uv, remove_folder, run_helper};
use super::view;
use crate::cache::Cache;

/// What to remove. Unfinished environments always go, and so do the downloads that environments are made of, if any
/// environment does: as long as they are kept, removing environments frees next to nothing.
#[derive(Debug, Clone, Default, Args)]
#[command(group = clap::ArgGroup::new("what").args(["older_than", "keep", "all"]).multiple(true).required(true))]
pub struct PruneArgs {
    /// Remove those not used for this many days
    #[arg(long, value_name = "DAYS", conflicts_with = "all")]
    pub older_than: Option<u32>,
    /// Keep the N last used, and remove the others (with --older-than: those of the others that are old enough)
    #[arg(long, value_name = "N", conflicts_with = "all")]
    pub keep: Option<usize>,
    /// Remove all, and every download of the uv that torchleak installed
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
    /// The bytes of what was removed that something else shares, so that they are not free.
    pub shared_bytes: u64,
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
    let mut going = Vec::new();
    for one in chosen(list(cache)?, args, Timestamp::now()) {
        let place = Place::new(cache, &one.key);
        match Lock::try_take(&place.lock(), Kind::Exclusive)? {
            Some(lock) => {
                going.push((place, lock));
                done.removed.push(one);
            }
            None => done.in_use.push(one),
        }
    }
    let downloads = Uv::downloads(cache).filter(|_| args.all || !going.is_empty());
    let folders: Vec<_> = going.iter().map(|(place, _)| place.folder.clone()).chain(downloads).collect();
    let size = size_of_all(&folders, &Names::default());
    (done.freed_bytes, done.shared_bytes) = (size.own_bytes, size.bytes - size.own_bytes);
    if !args.dry_run && !folders.is_empty() {
        // uv may keep some of its downloads, so what is freed is what is gone.
        let before = size_of(cache.root()).own_bytes;
        for (place, lock) in going {
            progress.begin(&format!("removing {}", place.key));
            remove(&place, lock)?;
        }
        if args.all { clean_downloads(cache, progress) } else { forget_downloads(cache, progress) }?;
        done.freed_bytes = before.saturating_sub(size_of(cache.root()).own_bytes);
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
    let (Some(downloads), Some(uv)) = (Uv::downloads(cache), Uv::find(cache)) else {
        return Ok(());
    };
    // uv knows how to do this beside another uv at work.
    progress.begin("removing downloads");
    let mut clean = uv.command(cache.root());
    clean.args(words).env("UV_CACHE_DIR", downloads);
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
