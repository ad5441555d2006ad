//! The bundle on disk: made aside, and put in its place when it is whole.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::BundleError;
use super::redact::Redactor;
use crate::interrupt;

/// A bundle that is being made. Dropped before it is published, it leaves nothing.
#[derive(Debug)]
pub struct Stage<'a> {
    aside: TempDir,
    /// Where it goes.
    to: PathBuf,
    redactor: &'a Redactor,
}

impl<'a> Stage<'a> {
    /// Begins a bundle at `output`, or at `name` with a number if that is taken.
    ///
    /// # Errors
    /// `output` is there already, or nothing can be written beside it.
    pub fn begin(output: Option<&Path>, name: &str, redactor: &'a Redactor) -> Result<Self, BundleError> {
        let is_free = |path: &Path| !path.exists() && !zip_of(path).exists();
        let to = match output {
            Some(path) if is_free(path) => path.to_owned(),
            Some(path) => return Err(BundleError::Exists { path: path.to_owned() }),
            None => (1..)
                .map(|number| {
                    PathBuf::from(if number == 1 { name.to_owned() } else { format!("{name}-{number}") })
                })
                .find(|path| is_free(path))
                .unwrap_or_else(|| PathBuf::from(name)),
        };
        let to = std::path::absolute(&to).unwrap_or(to);
        let parent = to.parent().unwrap_or(Path::new("/"));
        let failed = |source| BundleError::Write { path: to.clone(), source };
        fs::create_dir_all(parent).map_err(failed)?;
        // Beside its place, so that putting it there is one renaming.
        let aside =
            tempfile::Builder::new().prefix(".torchleak-report-").tempdir_in(parent).map_err(failed)?;
        let stage = Self { aside, to, redactor };
        fs::create_dir(stage.folder()).map_err(|source| stage.failed(source))?;
        Ok(stage)
    }

    /// The folder in the making.
    pub fn folder(&self) -> PathBuf {
        self.aside.path().join("bundle")
    }

    /// Writes a text, without what is private. Every text of a bundle comes this way.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn text(&self, name: &str, text: &str) -> Result<PathBuf, BundleError> {
        self.bytes(name, self.redactor.clean(text).as_bytes())
    }

    /// Writes what is no text.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn bytes(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, BundleError> {
        let path = self.folder().join(name);
        let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, bytes));
        written.map_err(|source| self.failed(source))?;
        Ok(path)
    }

    /// Packs the bundle and puts folder and archive in their place. Gives both paths.
    ///
    /// # Errors
    /// It cannot be written, or the user asked to stop before it was in its place.
    pub fn publish(self) -> Result<(PathBuf, PathBuf), BundleError> {
        let archive = self.aside.path().join("bundle.zip");
        let root = self
            .to
            .file_name()
            .map_or_else(|| "report".to_owned(), |name| name.to_string_lossy().into_owned());
        pack(&self.folder(), &root, &archive).map_err(|source| self.failed(source))?;
        if interrupt::requested() {
            return Err(BundleError::Interrupted);
        }
        let zip = zip_of(&self.to);
        fs::rename(archive, &zip).map_err(|source| self.failed(source))?;
        fs::rename(self.folder(), &self.to).map_err(|source| {
            // Half a bundle is none.
            let _ = fs::remove_file(&zip);
            self.failed(source)
        })?;
        Ok((self.to, zip))
    }

    fn failed(&self, source: io::Error) -> BundleError {
        BundleError::Write { path: self.to.clone(), source }
    }
}

/// The archive beside a folder. A version in its name has dots, so nothing of it is an extension.
fn zip_of(folder: &Path) -> PathBuf {
    let mut name = folder.as_os_str().to_owned();
    name.push(".zip");
    PathBuf::from(name)
}

/// Packs a folder, under the name that it will have.
fn pack(folder: &Path, root: &str, to: &Path) -> io::Result<()> {
    let mut archive = ZipWriter::new(File::create(to)?);
    let mut folders = vec![(folder.to_owned(), root.to_owned())];
    while let Some((folder, name)) = folders.pop() {
        let mut entries: Vec<_> = fs::read_dir(folder)?.collect::<io::Result<_>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let name = format!("{name}/{}", entry.file_name().to_string_lossy());
            if entry.file_type()?.is_dir() {
                folders.push((entry.path(), name));
            } else {
                archive.start_file(name, SimpleFileOptions::default().large_file(true))?;
                io::copy(&mut File::open(entry.path())?, &mut archive)?;
            }
        }
    }
    archive.finish()?;
    Ok(())
}
