//! The worker's files: embedded in the binary, unpacked to a folder that is keyed by their content.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use include_dir::{Dir, include_dir};
use sha2::{Digest, Sha256};

use super::WorkerError;

static PACKAGE: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/harness/worker/torchleak_worker");
/// What `torchleak watch` puts on PYTHONPATH; nothing else is in its folder.
static STARTUP: &str = include_str!("../../harness/worker/watch/sitecustomize.py");
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

/// The folder that makes every interpreter that finds it on PYTHONPATH a watched one.
pub fn startup_folder(bundle: &Path) -> PathBuf {
    bundle.join("watch")
}

fn write_files(folder: &Path) -> io::Result<()> {
    let package = folder.join("torchleak_worker");
    for (name, content) in modules() {
        let path = package.join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(&package))?;
        std::fs::write(path, content)?;
    }
    let startup = startup_folder(folder);
    std::fs::create_dir_all(&startup)?;
    std::fs::write(startup.join("sitecustomize.py"), STARTUP)?;
    std::fs::write(folder.join("__main__.py"), ENTRY)?;
    std::fs::write(folder.join("torchleak_probe.abi3.so"), PROBE)
}

/// The Python modules of the package by path; caches of an interpreter that ran them where the binary
/// was built are not part of it.
fn modules() -> Vec<(&'static Path, &'static [u8])> {
    let mut found = Vec::new();
    let mut folders = vec![&PACKAGE];
    while let Some(folder) = folders.pop() {
        folders.extend(folder.dirs());
        let sources = folder.files().filter(|file| file.path().extension().is_some_and(|end| end == "py"));
        found.extend(sources.map(|file| (file.path(), file.contents())));
    }
    found
}

/// Names the worker's files by what is in them.
pub fn content_key() -> String {
    let mut hash = Sha256::new();
    for (name, content) in modules() {
        hash.update(name.as_os_str().as_bytes());
        hash.update(content);
    }
    hash.update(STARTUP);
    hash.update(ENTRY);
    hash.update(PROBE);
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}
