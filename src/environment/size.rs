//! What folders take on the disk, where files have several names.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The size of what is in folders: each file once, however many names it has, and links not followed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// Everything in them.
    pub bytes: u64,
    /// What nothing else shares by a hard link, and so what removing them frees.
    pub own_bytes: u64,
}

/// How many names a folder has for each of its files that have several.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeMap<(u64, u64), Shared>);

/// A file that has several names.
#[derive(Debug, Default, Clone, Copy)]
struct Shared {
    seen: u64,
    names: u64,
    bytes: u64,
}

impl Names {
    /// The names in a folder; none where there is no folder.
    pub(super) fn of(folder: Option<&Path>) -> Self {
        let mut names = Self::default();
        folder.map(|folder| names.add(folder));
        names
    }

    /// Counts the names in a folder, and gives the bytes of the files that have no other.
    fn add(&mut self, folder: &Path) -> u64 {
        let mut single = 0;
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                // What vanishes while it is looked at has no size. This does not follow links.
                let Ok(found) = entry.metadata() else { continue };
                let bytes = found.blocks() * 512;
                if !found.is_dir() && found.nlink() > 1 {
                    let shared = self.0.entry((found.dev(), found.ino())).or_default();
                    *shared = Shared { seen: shared.seen + 1, names: found.nlink(), bytes };
                    continue;
                }
                if found.is_dir() {
                    folders.push(entry.path());
                }
                single += bytes;
            }
        }
        single
    }
}

/// The size of one folder.
pub(super) fn size_of(folder: &Path) -> Size {
    size_of_all(&[folder.to_owned()], &Names::default())
}

/// The size of several folders together. A file is their own also where its other names are all among those that go
/// with them.
pub(super) fn size_of_all(folders: &[PathBuf], with: &Names) -> Size {
    let mut names = Names::default();
    let single: u64 = folders.iter().map(|folder| names.add(folder)).sum();
    let mut size = Size { bytes: single, own_bytes: single };
    for (file, shared) in names.0 {
        let others = with.0.get(&file).map_or(0, |other| other.seen);
        size.bytes += shared.bytes;
        size.own_bytes += if shared.seen + others >= shared.names { shared.bytes } else { 0 };
    }
    size
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB_64: usize = 1 << 16;

    #[test]
    fn a_file_is_free_only_when_its_last_name_goes() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other, outside] = ["one", "other", "outside"].map(|name| {
            let path = folder.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        });
        let at = |folder: &Path, name: &str| folder.join(name);
        fs::write(at(&one, "shared"), vec![1; KIB_64]).unwrap();
        fs::hard_link(at(&one, "shared"), at(&other, "shared")).unwrap();
        fs::write(at(&one, "elsewhere"), vec![1; KIB_64]).unwrap();
        fs::hard_link(at(&one, "elsewhere"), at(&outside, "elsewhere")).unwrap();
        let kib = |size: Size| (size.bytes >> 16, size.own_bytes >> 16);
        assert_eq!(kib(size_of(&one)), (2, 0));
        assert_eq!(kib(size_of_all(std::slice::from_ref(&one), &Names::of(Some(&other)))), (2, 1));
        assert_eq!(kib(size_of_all(&[one, other], &Names::of(None))), (2, 1));
        assert_eq!(kib(size_of(folder.path())), (2, 2));
    }
}
