//! The commits of builds: which one a build is of, and whether two are of the same.

use std::fs;
use std::path::PathBuf;

use sha2::{Digest, Sha256};
use url::Url;

use crate::cache::{Cache, write_whole};
use crate::environment::Progress;
use crate::index::{Client, IndexError, commit_of, in_parallel, without_credentials};

/// The page that shows what lies between two commits of PyTorch.
pub fn compare_url(good: &str, bad: &str) -> String {
    format!("https://github.com/pytorch/pytorch/compare/{good}...{bad}")
}

/// What is known of a wheel before it is installed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) commit: Option<String>,
    /// Why it cannot be had, if it is listed and gone.
    pub(super) gone: Option<String>,
}

/// Reads the commits of wheels, those on servers by a few parts of each. What was read once is kept. A wheel whose
/// commit cannot be read is no failure: it may be installed all the same.
pub(super) fn read(
    client: &Client,
    wheels: Vec<Url>,
    cache: &Cache,
    progress: &dyn Progress,
) -> Result<Vec<Known>, IndexError> {
    let count = wheels.len();
    if let Err(error) = cache.prepare(&cache.commits()) {
        tracing::debug!("commits are not kept: {error}");
    }
    let (client, cache) = (client.clone(), cache.clone());
    progress.begin(&format!("reading the commits of {count} wheels"));
    in_parallel(
        wheels,
        move |wheel| read_one(&client, wheel, &cache),
        |done| {
            // A line for each would bury the others where there is no terminal.
            if done % 20 == 0 && done < count {
                progress.begin(&format!("reading the commits of {count} wheels, {done} done"));
            }
        },
    )
}

fn read_one(client: &Client, wheel: &Url, cache: &Cache) -> Known {
    let kept = place(wheel, cache);
    if let Some(commit) = kept.as_ref().and_then(|path| fs::read_to_string(path).ok()) {
        return Known { commit: Some(commit.trim().to_owned()), gone: None };
    }
    match commit_of(client, wheel) {
        Ok(commit) => {
            if let (Some(path), Some(commit)) = (kept, &commit)
                && let Err(error) = write_whole(&path, commit)
            {
                tracing::debug!("the commit of {} is not kept: {error}", without_credentials(wheel));
            }
            Known { commit, gone: None }
        }
        Err(error) if error.is_missing() => Known { commit: None, gone: Some(error.to_string()) },
        Err(error) => {
            tracing::debug!("no commit: {error}");
            Known::default()
        }
    }
}

/// Where the commit of a wheel is kept; nowhere for one on this machine, which is soon read and may change.
fn place(wheel: &Url, cache: &Cache) -> Option<PathBuf> {
    if wheel.scheme() == "file" {
        return None;
    }
    let name = Sha256::digest(without_credentials(wheel).as_str().as_bytes());
    let name: String = name.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    Some(cache.commits().join(name))
}
