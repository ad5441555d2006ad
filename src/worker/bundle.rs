//! The worker's files: embedded in the binary, unpacked to a folder that is keyed by their content.

use std::io;
use std::path::{Path, PathBuf};

use include_dir::{Dir, include_dir};
use sha2::{Digest, Sha256};

use super::WorkerError;

static PACKAGE: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/harness/worker/torchleak_worker");
static ENTRY: &str = include_str!("../../harness/worker/__main__.py");
static PROBE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/torchleak_probe.so"));

/// Unpacks the worker below `folder` and gives the path that an interpreter runs.
///
/// The same binary finds its files there the next time. A folder appears under its name only when
/// it is complete, so neither a killed torchleak nor a second one can leave or see half of it.
///
/// # Errors
/// [`WorkerError::Unpack`] when the folder cannot be written.
pub fn unpack(folder: &Path) -> Result<PathBuf, WorkerError> {
    let bundle = folder.join(content_key());
    if bundle.is_dir() {
        return Ok(bundle);
    }
    let unfinished = folder.join(format!(".{}-{}", content_key(), std::process::id()));
    write_files(&unfinished)
        .and_then(|()| match std::fs::rename(&unfinished, &bundle) {
            // Another torchleak was first, with the same content.
            Err(_) if bundle.is_dir() => std::fs::remove_dir_all(&unfinished),
            result => result,
        })
        .map_err(|source| WorkerError::Unpack { path: unfinished, source })?;
    Ok(bundle)
}

fn write_files(folder: &Path) -> io::Result<()> {
    let package = folder.join("torchleak_worker");
    std::fs::create_dir_all(&package)?;
    for (name, content) in modules() {
        std::fs::write(package.join(name), content)?;
    }
    std::fs::write(folder.join("__main__.py"), ENTRY)?;
    std::fs::write(folder.join("torchleak_probe.abi3.so"), PROBE)
}

/// The Python modules of the package by file name; caches of an interpreter that ran them where the
/// binary was built are not part of it.
fn modules() -> impl Iterator<Item = (&'static str, &'static [u8])> {
    PACKAGE.files().filter_map(|file| {
        let name = file.path().to_str()?;
        name.ends_with(".py").then(|| (name, file.contents()))
    })
}

/// Names the worker's files by what is in them.
pub fn content_key() -> String {
    let mut hash = Sha256::new();
    for (name, content) in modules() {
        hash.update(name);
        hash.update(content);
    }
    hash.update(ENTRY);
    hash.update(PROBE);
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}
