//! Room on the disk for one more environment.

use super::error::EnvironmentError;
use super::lock::{Kind, Lock};
use super::managed::{Place, ROOM, free_bytes};
use super::prune;
use crate::cache::Cache;

/// Checks that the disk can hold one more environment.
///
/// # Errors
/// It cannot, with the numbers.
pub fn check_room(cache: &Cache) -> Result<(), EnvironmentError> {
    holds_one_more(cache, free_bytes(cache.root()))
}

/// A disk that does not say how much is free is not taken for full.
fn holds_one_more(cache: &Cache, free: Option<u64>) -> Result<(), EnvironmentError> {
    match free {
        Some(free) if free < ROOM => {
            Err(EnvironmentError::NoRoom { folder: cache.environments(), free, needed: ROOM })
        }
        _ => Ok(()),
    }
}

/// Removes one environment of the cache, and says whether it did: one that somebody uses stays.
///
/// # Errors
/// It cannot be removed.
pub fn remove_environment(key: &str, cache: &Cache) -> Result<bool, EnvironmentError> {
    let place = Place::new(cache, key);
    let Some(lock) = Lock::try_take(&place.lock(), Kind::Exclusive)? else { return Ok(false) };
    prune::remove(&place, lock)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_disk_without_room_is_refused_with_the_numbers_and_what_to_do() {
        let cache = Cache::at(Path::new("/somewhere/cache"));
        let error = holds_one_more(&cache, Some(ROOM - 1)).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("/somewhere/cache/environments has 6.00 GB free"), "{text}");
        assert!(text.contains("takes up to 6.00 GB"), "{text}");
        assert!(error.hint().unwrap().contains("env prune") && !error.is_usage());
        assert!(holds_one_more(&cache, Some(ROOM)).is_ok() && holds_one_more(&cache, None).is_ok());
    }

    #[test]
    fn an_environment_in_use_stays_and_an_unused_one_goes_with_its_lock() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        let place = Place::new(&cache, "torch-2.13.0-py3.11-00000000");
        std::fs::create_dir_all(place.folder.join("bin")).unwrap();
        let neighbour = Place::new(&cache, "torch-2.12.0-py3.11-00000000");
        std::fs::create_dir_all(&neighbour.folder).unwrap();
        let in_use = Lock::try_take(&place.lock(), Kind::Shared).unwrap().unwrap();
        assert!(!remove_environment(&place.key, &cache).unwrap());
        assert!(place.folder.is_dir());
        drop(in_use);
        assert!(remove_environment(&place.key, &cache).unwrap());
        assert!(!place.folder.exists() && !place.lock().exists() && neighbour.folder.is_dir());
    }
}
