//! Versions of torch as people write them.

use std::iter::repeat_n;
use std::str::FromStr;

use pep440_rs::{Version, VersionParseError};

/// Reads a version of torch. 2.13 is 2.13.0, so that it has the same name and the same environment.
///
/// # Errors
/// The text is no version.
pub fn parse_torch(text: &str) -> Result<Version, VersionParseError> {
    let version = Version::from_str(text.trim())?;
    let missing = 3_usize.saturating_sub(version.release().len());
    let release: Vec<u64> = version.release().iter().copied().chain(repeat_n(0, missing)).collect();
    Ok(version.with_release(release))
}
