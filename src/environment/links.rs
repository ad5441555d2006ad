//! Fills a view with an environment's packages: copies of PyTorch's Python files, links to everything else.

use std::fs::{self, File, FileTimes};
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use super::error::EnvironmentError;
use super::view::{PACKAGES, failed, is_python};
use crate::interrupt;

/// No package is nested so deeply; a folder that links to itself is.
const MOST_FOLDERS: u32 = 40;

/// Fills a folder with the packages that another holds, but for those that it has already. Only PyTorch's become
/// folders of their own: nothing is put into the others, which are the environment's under a second name.
pub(super) fn fill(from: &Path, to: &Path) -> Result<(), EnvironmentError> {
    for entry in entries(from)? {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if fs::symlink_metadata(&target).is_ok() {
            continue;
        }
        if PACKAGES.iter().any(|name| entry.file_name() == *name) && path.is_dir() {
            fill_package(&path, &target, 0)?;
        } else {
            symlink(&path, &target).map_err(|source| failed("link", &path, source))?;
        }
    }
    Ok(())
}

fn fill_package(from: &Path, to: &Path, depth: u32) -> Result<(), EnvironmentError> {
    if depth >= MOST_FOLDERS {
        let source = io::Error::other("its folders are nested too deeply, or link to each other");
        return Err(failed("read", from, source));
    }
    fs::create_dir(to).map_err(|source| failed("make", to, source))?;
    for entry in entries(from)? {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            // Two thirds of torch's files are headers, in folders without Python: a link to the folder does.
            if entry.file_name() == "__pycache__" || holds_python(&path, depth + 1) {
                fill_package(&path, &target, depth + 1)?;
            } else {
                symlink(&path, &target).map_err(|source| failed("link", &path, source))?;
            }
        } else if is_python(&path) && path.is_file() {
            copy(&path, &target).map_err(|source| failed("copy", &path, source))?;
        } else {
            link(&path, &target).map_err(|source| failed("link", &path, source))?;
        }
    }
    Ok(())
}

fn entries(folder: &Path) -> Result<Vec<fs::DirEntry>, EnvironmentError> {
    if interrupt::requested() {
        return Err(EnvironmentError::Interrupted("making a view".to_owned()));
    }
    let found = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    found.map_err(|source| failed("read", folder, source))
}

fn holds_python(folder: &Path, depth: u32) -> bool {
    let mut paths = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    depth < MOST_FOLDERS
        && paths.any(|path| if path.is_dir() { holds_python(&path, depth + 1) } else { is_python(&path) })
}

/// Copies a source with its time, by which Python knows that its bytecode is not stale.
pub(super) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to)?;
    let modified = fs::metadata(from)?.modified()?;
    // A handle for reading is enough for its owner, also where the source may not be written.
    File::open(to)?.set_times(FileTimes::new().set_modified(modified))
}

/// Gives a file a second name. Where that is not possible, because it is on another disk or belongs to somebody else,
/// a symbolic link does.
pub(super) fn link(from: &Path, to: &Path) -> io::Result<()> {
    if from.is_symlink() {
        return symlink(from, to);
    }
    match fs::hard_link(from, to) {
        Err(error) if error.kind() != io::ErrorKind::StorageFull => symlink(from, to),
        result => result,
    }
}

/// What shows that a file was written, replaced, added or removed. It is not proof against one that restores its times.
pub(super) type Manifest = std::collections::BTreeMap<PathBuf, (u64, u64, i64, i64)>;

/// Everything below a folder.
pub(super) fn manifest(folder: &Path) -> io::Result<Manifest> {
    let mut found = Manifest::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let is = entry.metadata()?;
            if is.is_dir() {
                folders.push(entry.path());
                // Its times change with every file that is put there and restored.
                found.insert(entry.path(), (is.ino(), 0, 0, 0));
            } else {
                found.insert(entry.path(), (is.ino(), is.size(), is.mtime(), is.mtime_nsec()));
            }
        }
    }
    Ok(found)
}
