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
    match free_bytes(cache.root()) {
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
