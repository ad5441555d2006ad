//! A private view of an environment: an interpreter of its own that sees the same packages, and whose Python files of
//! PyTorch can be replaced without the environment noticing.
//!
//! A view is a virtual environment below `<cache>/overlays/`. What is in it leads to the environment, so that it costs
//! little time and room, but for the Python files of PyTorch, which are copies in folders of the view's own: whoever
//! edits, replaces, adds or removes one there changes the view alone.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use super::Environment;
use super::check::{self, Layout};
use super::error::EnvironmentError;
use super::links::{Manifest, copy, fill, link, manifest};
use super::lock::{Kind, Lock};
use super::progress::Progress;
use super::uv::remove_folder;
use crate::cache::Cache;

/// The packages that a checkout of PyTorch holds as Python, by the name that they have both there and installed.
pub const PACKAGES: [&str; 3] = ["torch", "torchgen", "functorch"];

/// A view. Dropping it removes it.
#[derive(Debug)]
pub struct View {
    root: PathBuf,
    site: PathBuf,
    /// The folders of the environment that it was made of; the first that has a package counts.
    sources: Vec<PathBuf>,
    /// What it was like when it was made.
    made: Manifest,
    /// The files that are not as in the environment.
    changed: BTreeSet<String>,
    /// Held for as long as the view is there, so that what has none is known to be left over.
    lock: Option<Lock>,
}

impl View {
    /// Makes a view of the environment.
    ///
    /// # Errors
    /// The environment has its torch where no view can be made of it, or the cache cannot be written.
    pub fn make(
        base: &Environment,
        cache: &Cache,
        progress: &dyn Progress,
    ) -> Result<Self, EnvironmentError> {
        progress.begin("making a private view of the environment");
        let started = Instant::now();
        let made = Self::try_make(base, cache);
        tracing::debug!("the view was made in {:?}", started.elapsed());
        progress.end();
        made
    }

    fn try_make(base: &Environment, cache: &Cache) -> Result<Self, EnvironmentError> {
        let layout = check::layout(base, &base.python)?;
        let site = site_of(&layout, base)?;
        cache.prepare(&cache.overlays())?;
        sweep(cache);
        let (root, lock) = new_place(&cache.overlays())?;
        // From here on, dropping it cleans up.
        let mut view = Self {
            site: root.clone(),
            root,
            sources: Vec::new(),
            made: Manifest::new(),
            changed: BTreeSet::new(),
            lock: Some(lock),
        };
        view.write_interpreter(base, &layout)?;
        // Only the interpreter knows where it looks for packages: distributions differ.
        view.site = check::layout(base, &view.python())?.purelib;
        if !view.site.starts_with(&view.root) {
            let problem = format!("a copy of it looks for packages in {}", view.site.display());
            return Err(EnvironmentError::NoView { python: base.python.clone(), problem });
        }
        fs::create_dir_all(&view.site).map_err(|source| failed("make", &view.site, source))?;
        // Those of a virtual environment that takes its torch from elsewhere come first, as they do for Python.
        if layout.is_virtual() && layout.purelib != site {
            view.sources.push(layout.purelib);
        }
        view.sources.push(site);
        for source in &view.sources {
            fill(source, &view.site)?;
        }
        view.made = manifest(&view.site).map_err(|source| failed("read", &view.site, source))?;
        Ok(view)
    }

    /// Its interpreter.
    pub fn python(&self) -> PathBuf {
        self.root.join("bin/python")
    }

    /// The folder that holds its packages.
    pub fn site(&self) -> &Path {
        &self.site
    }

    /// A place in it for a file of torchleak's.
    pub(super) fn note(&self) -> PathBuf {
        self.root.join("torchleak.json")
    }

    fn write_interpreter(&self, base: &Environment, layout: &Layout) -> Result<(), EnvironmentError> {
        let bin = self.root.join("bin");
        fs::create_dir(&bin).map_err(|source| failed("make", &bin, source))?;
        let names = ["python".to_owned(), "python3".to_owned(), format!("python3.{}", layout.minor)];
        for (number, name) in names.iter().enumerate() {
            let target: &Path = if number == 0 { &layout.base_executable } else { Path::new("python") };
            symlink(target, bin.join(name)).map_err(|source| failed("make", &bin.join(name), source))?;
        }
        // As in every virtual environment, so that both names lead to one folder.
        let lib64 = self.root.join("lib64");
        symlink("lib", &lib64).map_err(|source| failed("make", &lib64, source))?;
        let config = self.root.join("pyvenv.cfg");
        fs::write(&config, pyvenv(layout, &base.facts.python))
            .map_err(|source| failed("write", &config, source))
    }

    /// The files that were put there or taken away, and so are not as in the environment.
    pub fn changed(&self) -> Vec<String> {
        self.changed.iter().cloned().collect()
    }

    /// Puts a file there, if the environment's is not the same.
    ///
    /// # Errors
    /// It cannot be written, or its folder is not the view's own.
    pub fn put(&mut self, path: &str, content: &[u8]) -> Result<(), EnvironmentError> {
        let file = self.site.join(path);
        if fs::read(&file).is_ok_and(|there| there == content) {
            return Ok(());
        }
        self.changed.insert(path.to_owned());
        let folder = file.parent().unwrap_or(&self.site);
        self.check_own(folder)?;
        fs::create_dir_all(folder).map_err(|source| failed("make", folder, source))?;
        self.forget(&file)?;
        // It must not be there: what is there may be the environment's own file, under a second name.
        let written = File::create_new(&file).and_then(|mut file| io::Write::write_all(&mut file, content));
        written.map_err(|source| failed("write", &file, source))
    }

    /// Takes a file away, and says whether it was there.
    ///
    /// # Errors
    /// It cannot be removed, or its folder is not the view's own.
    pub fn remove(&mut self, path: &str) -> Result<bool, EnvironmentError> {
        let file = self.site.join(path);
        if fs::symlink_metadata(&file).is_err() {
            return Ok(false);
        }
        self.changed.insert(path.to_owned());
        self.forget(&file)?;
        Ok(true)
    }

    /// Makes it as it was when it was made, and says whether it is: a program that ran in it may have changed more than
    /// was changed here, and such a view is not to be used again.
    pub(super) fn restore(&mut self) -> Result<bool, EnvironmentError> {
        let mut restored = BTreeSet::new();
        for path in std::mem::take(&mut self.changed) {
            let file = self.site.join(&path);
            self.forget(&file)?;
            restored.extend([file.clone()].into_iter().chain(bytecode(&file)));
            let package = path.split('/').next().unwrap_or_default();
            let Some(source) = self.sources.iter().find(|source| source.join(package).exists()) else {
                continue;
            };
            let original = source.join(&path);
            if original.is_file() {
                copy(&original, &file).map_err(|source| failed("copy", &original, source))?;
            }
            for original in bytecode(&original).into_iter().filter(|path| path.is_file()) {
                let Ok(name) = original.strip_prefix(source) else { continue };
                let target = self.site.join(name);
                restored.insert(target.clone());
                link(&original, &target).map_err(|source| failed("link", &original, source))?;
            }
        }
        let mut now = manifest(&self.site).map_err(|source| failed("read", &self.site, source))?;
        for path in restored {
            // These are as they were and have other numbers.
            match now.get(&path) {
                Some(is) => self.made.insert(path, *is),
                None => self.made.remove(&path),
            };
        }
        now.retain(|path, is| self.made.get(path) != Some(is));
        Ok(now.is_empty() && self.made.keys().all(|path| fs::symlink_metadata(path).is_ok()))
    }

    /// Removes a file and its bytecode, which Python may take for that of the next file of this name.
    fn forget(&self, file: &Path) -> Result<(), EnvironmentError> {
        for path in bytecode(file).into_iter().chain([file.to_owned()]) {
            self.check_own(path.parent().unwrap_or(&self.site))?;
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed("remove", &path, error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Fails if a folder, or what is there of the way to it, is one of the environment's, under a second name.
    fn check_own(&self, folder: &Path) -> Result<(), EnvironmentError> {
        let there = folder.ancestors().find(|folder| folder.exists()).unwrap_or(&self.site);
        let real = |path: &Path| fs::canonicalize(path).map_err(|source| failed("find", path, source));
        if real(there)?.starts_with(real(&self.site)?) {
            return Ok(());
        }
        let source = io::Error::other("the release has no Python there, so it is not the view's own");
        Err(failed("write", folder, source))
    }

    /// The Python files below a folder, by their paths as in a checkout.
    pub fn python_files(&self, folder: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut folders = vec![self.site.join(folder)];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    folders.push(path);
                } else if is_python(&path)
                    && let Some(name) = path.strip_prefix(&self.site).ok().and_then(Path::to_str)
                {
                    found.push(name.to_owned());
                }
            }
        }
        found.sort();
        found
    }
}

/// Where Python may keep the bytecode of a source.
fn bytecode(file: &Path) -> Vec<PathBuf> {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut found = vec![file.with_extension("pyc")];
    let folder = file.with_file_name("__pycache__");
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        // `checkpoint.cpython-311.pyc`, also with `.opt-1`; the stem of a module has no dot.
        if name.split_once('.').is_some_and(|(of, rest)| of == stem && rest.ends_with("pyc")) {
            found.push(entry.path());
        }
    }
    found
}

impl Drop for View {
    fn drop(&mut self) {
        if let Some(lock) = self.lock.take() {
            remove_place(&self.root, lock);
        }
    }
}

/// Whether a file of a checkout is installed in the environment.
///
/// # Errors
/// The environment does not answer, or its torch is no installed one.
pub fn is_installed(base: &Environment, path: &str) -> Result<bool, EnvironmentError> {
    Ok(site_of(&check::layout(base, &base.python)?, base)?.join(path).exists())
}

/// The folder that holds the environment's torch, which must be one for installed packages: over a checkout that was
/// built in place nothing is laid, as its owner can check out the commit.
fn site_of(layout: &Layout, base: &Environment) -> Result<PathBuf, EnvironmentError> {
    let site = layout.site.clone().ok_or_else(|| EnvironmentError::NoTorch(base.python.clone()))?;
    if layout.is_installed {
        return Ok(site);
    }
    let problem = format!("it is in {}, which is no folder for installed packages", site.display());
    Err(EnvironmentError::NoView { python: base.python.clone(), problem })
}

/// Removes what torchleaks that were killed have left. What cannot be removed is tried again the next time.
pub(super) fn sweep(cache: &Cache) {
    for entry in fs::read_dir(cache.overlays()).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let name = name.strip_suffix(".lock").unwrap_or(&name);
        // A probe that checks whether the folder can be written is nobody's view.
        if name.starts_with('.') {
            continue;
        }
        if let Ok(Some(lock)) = Lock::try_take(&lock_of(&cache.overlays(), name), Kind::Exclusive) {
            remove_place(&cache.overlays().join(name), lock);
        }
    }
}

/// Removes the folder first, so that what is left of a broken-off removal still has a lock file that nobody holds.
fn remove_place(root: &Path, lock: Lock) {
    let started = Instant::now();
    let removed = remove_folder(root);
    tracing::debug!("the view was removed in {:?}", started.elapsed());
    if let Err(error) = removed {
        tracing::warn!("a view is left over: {error}");
    } else if let Err(error) = lock.remove() {
        tracing::debug!("the lock of {} is left over: {error}", root.display());
    }
}

fn lock_of(overlays: &Path, name: &str) -> PathBuf {
    overlays.join(format!("{name}.lock"))
}

/// A new folder and its lock. Processes of different machines may have equal numbers, so the lock decides.
fn new_place(overlays: &Path) -> Result<(PathBuf, Lock), EnvironmentError> {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    loop {
        let name = format!("{}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        let Some(lock) = Lock::try_take(&lock_of(overlays, &name), Kind::Exclusive)? else { continue };
        let root = overlays.join(name);
        // What a killed process of the same number left there.
        remove_folder(&root)?;
        fs::create_dir(&root).map_err(|source| failed("make", &root, source))?;
        // As the interpreter will tell it, which takes `..` out.
        let root = fs::canonicalize(&root).map_err(|source| failed("find", &root, source))?;
        return Ok((root, lock));
    }
}

/// The configuration of the view's interpreter: that of the environment or, for an interpreter that is no virtual
/// environment, one that also looks into its packages, as most of them stay there.
fn pyvenv(layout: &Layout, version: &str) -> String {
    let own = layout.is_virtual().then(|| fs::read_to_string(layout.prefix.join("pyvenv.cfg")).ok());
    own.flatten().unwrap_or_else(|| {
        let home = layout.base_executable.parent().unwrap_or(Path::new("/")).display();
        format!("home = {home}\nversion = {version}\ninclude-system-site-packages = true\n")
    })
}

pub(super) fn is_python(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "py")
}

pub(super) fn failed(action: &'static str, path: &Path, source: io::Error) -> EnvironmentError {
    EnvironmentError::Io { action, path: path.to_owned(), source }
}
