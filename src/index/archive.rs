//! What a wheel of torch says of itself before it is installed: its commit, and a hash of what it holds.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::Path;

use sha2::{Digest, Sha256};
use url::Url;
use zip::ZipArchive;

use super::client::Client;
use super::error::IndexError;
use super::ranges::RemoteFile;

/// Where the build of torch writes its commit.
const VERSION_FILE: &str = "torch/version.py";
/// Of a file in a wheel no more is read: torch's RECORD, the larger of the two, has 1.2 MiB.
const LARGEST: u64 = 32 << 20;

/// Why a wheel cannot be looked into.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("it is no whole zip archive: {0}")]
    Zip(#[from] zip::result::ZipError),
    #[error("it has no .dist-info/RECORD, so it is no wheel")]
    NoRecord,
}

/// What a wheel holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// The commit of PyTorch, where the build knew it.
    pub commit: Option<String>,
    /// A hash of the wheel's own list of hashes: equal for equal files, whatever the archive is called.
    pub hash: String,
}

/// Looks into a wheel on this machine.
///
/// # Errors
/// It cannot be read, or it is no wheel.
pub fn of_file(path: &Path) -> Result<Contents, ArchiveError> {
    let mut archive = ZipArchive::new(BufReader::new(File::open(path)?))?;
    let record = archive.file_names().filter_map(Result::ok).find(|name| is_record(name));
    let record = record.ok_or(ArchiveError::NoRecord)?.into_owned();
    let mut text = Vec::new();
    archive.by_name(&record)?.take(LARGEST).read_to_end(&mut text)?;
    let hash = Sha256::digest(&text).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    Ok(Contents { commit: commit(&mut archive)?, hash })
}

/// Reads the commit of a wheel on a server by asking for a few parts of it, about 1.6 MiB. None where the server gives
/// only whole files, or the wheel says nothing.
pub(super) fn commit_of_url(client: &Client, url: &Url) -> Result<Option<String>, IndexError> {
    let Some(file) = RemoteFile::open(client, url)? else { return Ok(None) };
    // A wheel that cannot be looked into may still be one that can be installed.
    Ok(ZipArchive::new(file)
        .map_err(ArchiveError::from)
        .and_then(|mut archive| commit(&mut archive))
        .unwrap_or(None))
}

fn is_record(name: &str) -> bool {
    name.strip_suffix(".dist-info/RECORD").is_some_and(|folder| !folder.contains('/'))
}

fn commit<R: Read + Seek>(archive: &mut ZipArchive<R>) -> Result<Option<String>, ArchiveError> {
    let Some(at) = archive.index_for_name(VERSION_FILE) else { return Ok(None) };
    let mut text = Vec::new();
    archive.by_index(at)?.take(LARGEST).read_to_end(&mut text)?;
    Ok(commit_in(&String::from_utf8_lossy(&text)))
}

/// The commit in the text of `torch/version.py`. A build outside a checkout writes `Unknown`.
fn commit_in(text: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once('=')?;
        let value = value.trim().trim_matches(['\'', '"']);
        let is_commit = value.len() >= 7 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
        (name.split(':').next()?.trim() == "git_version" && is_commit).then(|| value.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;

    fn wheel(folder: &Path, files: &[(&str, &str)]) -> std::path::PathBuf {
        let path = folder.join("torch-1.0-py3-none-any.whl");
        let mut archive = ZipWriter::new(File::create(&path).unwrap());
        for (name, text) in files {
            archive.start_file(*name, SimpleFileOptions::default()).unwrap();
            archive.write_all(text.as_bytes()).unwrap();
        }
        archive.finish().unwrap();
        path
    }

    #[test]
    fn a_wheel_has_a_commit_and_a_hash_of_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let record = ("torch-1.0.dist-info/RECORD", "torch/version.py,sha256=ab,10\n");
        let version = ("torch/version.py", "__version__ = '1.0'\ngit_version = 'cf30153c4c'\n");
        let first = of_file(&wheel(folder.path(), &[version, record])).unwrap();
        assert_eq!(first.commit.as_deref(), Some("cf30153c4c"));
        assert_eq!(of_file(&wheel(folder.path(), &[record, version])).unwrap().hash, first.hash);
        let other = ("torch-1.0.dist-info/RECORD", "torch/version.py,sha256=cd,10\n");
        assert_ne!(of_file(&wheel(folder.path(), &[version, other])).unwrap().hash, first.hash);
        assert_eq!(of_file(&wheel(folder.path(), &[record])).unwrap().commit, None);
    }

    #[test]
    fn what_is_no_wheel_is_an_error_that_says_what_it_lacks() {
        let folder = tempfile::tempdir().unwrap();
        let path = wheel(folder.path(), &[("torch/version.py", ""), ("a/b.dist-info/RECORD", "")]);
        assert!(matches!(of_file(&path), Err(ArchiveError::NoRecord)));
        std::fs::write(&path, "<html>not found</html>").unwrap();
        assert!(matches!(of_file(&path), Err(ArchiveError::Zip(_))));
        assert!(matches!(of_file(Path::new("/nonexistent.whl")), Err(ArchiveError::Io(_))));
    }

    #[test]
    fn only_a_hash_is_a_commit() {
        assert_eq!(commit_in("git_version: str = \"0123456789abcdef\"").as_deref(), Some("0123456789abcdef"));
        assert_eq!(commit_in("git_version = 'Unknown'"), None);
        assert_eq!(commit_in("git_version = None"), None);
        assert_eq!(commit_in("old_git_version = '0123456789abcdef'"), None);
    }
}
