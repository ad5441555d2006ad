//! torchleak's cache folder: where it is, what is in it, and whether it can be written.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use etcetera::BaseStrategy;

/// Where the cache is, on the command line.
#[derive(Debug, Clone, Default, Args)]
pub struct CacheArgs {
    /// Folder for environments and everything else torchleak keeps between runs
    /// [default: torchleak in the user's cache folder]
    #[arg(long, value_name = "FOLDER", env = "TORCHLEAK_CACHE_DIR", global = true, hide_env_values = true)]
    pub cache_dir: Option<PathBuf>,
}

/// Why the cache cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// No home folder, so there is no default place.
    #[error("there is no home folder, so the cache has no place")]
    NoHome,
    /// A folder of the cache cannot be made.
    #[error("cannot make the cache folder {}", path.display())]
    Create {
        /// The folder.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A folder of the cache cannot be written.
    #[error("cannot write to the cache folder {}", path.display())]
    Write {
        /// The folder.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

impl CacheError {
    /// What to try.
    pub fn hint(&self) -> String {
        "choose a folder you can write with --cache-dir or TORCHLEAK_CACHE_DIR".to_owned()
    }
}

/// torchleak's cache folder. Nothing is made before it is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// The cache that the command line or the machine's conventions name.
    ///
    /// # Errors
    /// [`CacheError::NoHome`] where no folder is given and the user has no home folder.
    pub fn open(args: &CacheArgs) -> Result<Self, CacheError> {
        match &args.cache_dir {
            Some(folder) if !folder.as_os_str().is_empty() => Ok(Self::at(folder)),
            _ => {
                let base = etcetera::choose_base_strategy().map_err(|_| CacheError::NoHome)?;
                Ok(Self::at(&base.cache_dir().join("torchleak")))
            }
        }
    }

    /// The cache in this folder, made absolute, because helpers run in folders of their own.
    pub fn at(root: &Path) -> Self {
        Self { root: std::path::absolute(root).unwrap_or_else(|_| root.to_owned()) }
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Managed environments, one folder each.
    pub fn environments(&self) -> PathBuf {
        self.root.join("environments")
    }

    /// Private views of environments, each there only while it is used.
    pub fn overlays(&self) -> PathBuf {
        self.root.join("overlays")
    }

    /// The `uv` that torchleak installed where the machine has none.
    pub fn uv(&self) -> PathBuf {
        self.root.join("uv")
    }

    /// The download cache of that `uv`.
    pub fn uv_cache(&self) -> PathBuf {
        self.root.join("uv-cache")
    }

    /// Unpacked worker sources.
    pub fn worker(&self) -> PathBuf {
        self.root.join("worker")
    }

    /// What cases showed on versions.
    pub fn cells(&self) -> PathBuf {
        self.root.join("cells")
    }

    /// Where the native control is built.
    pub fn control(&self) -> PathBuf {
        self.root.join("control")
    }

    /// What was found in interpreters that torchleak did not make.
    pub fn checked(&self) -> PathBuf {
        self.root.join("checked")
    }

    /// The commits of wheels that were looked into without installing them.
    pub fn commits(&self) -> PathBuf {
        self.root.join("commits")
    }

    /// Makes a folder of this cache and checks that a file can be written there.
    ///
    /// # Errors
    /// The folder cannot be made or written.
    pub fn prepare(&self, folder: &Path) -> Result<(), CacheError> {
        fs::create_dir_all(folder)
            .map_err(|source| CacheError::Create { path: folder.to_owned(), source })?;
        // Permission bits do not tell about read-only mounts, quotas or root; a write does.
        let probe =
            folder.join(format!(".write-check-{}-{:?}", std::process::id(), std::thread::current().id()));
        fs::write(&probe, b"")
            .and_then(|()| fs::remove_file(&probe))
            .map_err(|source| CacheError::Write { path: folder.to_owned(), source })
    }
}

/// Writes a file so that others see all of it or nothing: beside it first, then renamed.
///
/// # Errors
/// What the operating system said of the writing or the renaming.
pub fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let id = format!(".{name}.{}-{:?}", std::process::id(), std::thread::current().id());
    let beside = path.with_file_name(id);
    let written = fs::File::create(&beside).and_then(|mut file| {
        io::Write::write_all(&mut file, text.as_bytes())?;
        file.sync_all()
    });
    written.and_then(|()| fs::rename(&beside, path)).inspect_err(|_| {
        // What cannot be finished must not stay; failing at that too adds nothing for the reader.
        let _ = fs::remove_file(&beside);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_cache_folder_becomes_absolute() {
        assert!(Cache::at(Path::new("here")).root().is_absolute());
    }

    #[test]
    fn an_empty_cache_dir_is_the_default() {
        let args = CacheArgs { cache_dir: Some(PathBuf::new()) };
        assert!(Cache::open(&args).unwrap().root().ends_with("torchleak"));
    }

    #[test]
    fn a_cache_under_a_file_cannot_be_made_and_the_error_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let cache = Cache::at(&file.join("cache"));
        let error = cache.prepare(&cache.environments()).unwrap_err();
        assert!(error.to_string().contains("file/cache/environments"), "{error}");
    }

    #[test]
    fn a_file_is_written_whole_and_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("facts.json");
        write_whole(&path, "{}").unwrap();
        write_whole(&path, "{\"a\":1}").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"a\":1}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
