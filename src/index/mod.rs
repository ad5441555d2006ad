//! Package indexes and wheels: what there is, and what a wheel holds, without installing anything.
//!
//! Architecture invariant: nothing here knows of environments or versions to test. A password in a URL is used for
//! requests and is in no error and in no text that this room gives.

mod address;
mod archive;
mod client;
mod error;
mod page;
mod parallel;
mod ranges;
mod wheel;

pub use address::{IndexUrl, without_credentials};
pub use archive::{ArchiveError, Contents, of_file};
pub use client::Client;
pub use error::IndexError;
pub use page::{File, files};
pub use parallel::in_parallel;
pub use wheel::{Machine, WheelName, satisfies};

use url::Url;

/// The commit of the torch in a wheel on a server or in a folder, without downloading it. None where it cannot be told.
///
/// # Errors
/// The wheel cannot be had; [`IndexError::is_missing`] says whether it is gone.
pub fn commit_of(client: &Client, wheel: &Url) -> Result<Option<String>, IndexError> {
    let Ok(path) = wheel.to_file_path() else { return archive::commit_of_url(client, wheel) };
    match of_file(&path) {
        Ok(contents) => Ok(contents.commit),
        Err(ArchiveError::Io(source)) => Err(IndexError::File { url: path.display().to_string(), source }),
        // What cannot be looked into may still be something that can be installed.
        Err(_) => Ok(None),
    }
}
