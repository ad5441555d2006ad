//! A repository of PyTorch's files whose commits leak or do not, and the environment over which they are laid.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

use torchleak::cache::{Cache, CacheArgs};
use torchleak::case::Verdict;
use torchleak::environment::{Environment, EnvironmentArgs, Silent, resolve};

use crate::support::{Context, Finished};

pub const FILE: &str = "torch/utils/checkpoint.py";
/// How the release hands the closure to the frame, in every release since 2.6.
pub const STOCK: &str = "\n        recompute_fn,\n";
pub const LEAK: &str = "\n        torch._disable_dynamo(recompute_fn),\n";

/// The environment of the tests, and where its packages are.
pub struct Base {
    pub environment: Environment,
    pub site: PathBuf,
}

impl Base {
    pub fn new() -> Self {
        let cache = Cache::open(&CacheArgs::default()).unwrap();
        let environment = resolve(&EnvironmentArgs::default(), &cache, &Silent).unwrap();
        let script = "import importlib.util as u; print(u.find_spec('torch').origin)";
        let output = environment.command().args(["-c", script]).current_dir("/").output().unwrap();
        let origin = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
        let site = origin.ancestors().nth(2).unwrap().to_owned();
        Self { environment, site }
    }

    /// The environment by its interpreter, so that a test can have a cache of its own.
    pub fn args(&self) -> EnvironmentArgs {
        EnvironmentArgs { python: Some(self.environment.python.clone()), ..Default::default() }
    }

    pub fn checkpoint(&self) -> String {
        fs::read_to_string(self.site.join(FILE)).unwrap()
    }

    /// Everything by which a file would show that it was written or replaced.
    pub fn manifest(&self) -> BTreeMap<PathBuf, (u64, u64, i64, i64, u32)> {
        let mut found = BTreeMap::new();
        let mut folders = vec![self.site.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let is = fs::symlink_metadata(&path).unwrap();
                if is.is_dir() {
                    folders.push(path.clone());
                }
                found.insert(path, (is.ino(), is.size(), is.mtime(), is.mtime_nsec(), is.mode()));
            }
        }
        assert!(found.len() > 5000);
        found
    }

    /// The contents of torch's Python files.
    pub fn sources(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let torch = self.site.join("torch");
        let is_source = |path: &PathBuf| {
            path.starts_with(&torch) && path.extension().is_some_and(|ending| ending == "py")
        };
        self.manifest()
            .into_keys()
            .filter(is_source)
            .map(|path| (path.clone(), fs::read(path).unwrap()))
            .collect()
    }
}

/// A repository in a test's folder.
pub struct Repository(pub PathBuf);

impl Repository {
    pub fn new(context: &Context) -> Self {
        let repository = Self(context.path().join("pytorch"));
        fs::create_dir_all(repository.0.join("torch/utils")).unwrap();
        repository.git(&["init", "-q", "-b", "main"]);
        repository
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new("git");
        command.current_dir(&self.0).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        command.args(["-c", "user.name=Tester", "-c", "user.email=tester@example.org"]);
        command
    }

    pub fn git(&self, words: &[&str]) -> String {
        let done = Finished::of(self.command().args(words).output().unwrap());
        assert_eq!(done.code, 0, "{words:?}: {}", done.stderr);
        done.stdout.trim().to_owned()
    }

    /// Commits a text as a file, and gives the hash.
    pub fn commit(&self, subject: &str, path: &str, text: &str) -> String {
        fs::write(self.0.join(path), text).unwrap();
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "-m", subject]);
        self.git(&["rev-parse", "HEAD"])
    }
}

/// The history of the tests: what each commit makes of the installed file, and what that shows.
pub fn history(repository: &Repository, stock: &str) -> Vec<(String, Option<Verdict>)> {
    assert_eq!(
        stock.matches(STOCK).count(),
        1,
        "the installed checkpoint.py is not made as the tests know it"
    );
    let leak = stock.replace(STOCK, LEAK);
    let file = |subject: &str, text: &str| repository.commit(subject, FILE, text);
    let mut all = vec![(file("As it was released", stock), Some(Verdict::Fixed))];
    all.push((file("Add a comment", &format!("{stock}# A comment.\n")), Some(Verdict::Fixed)));
    repository.commit("Change something else", "README.md", "Something else.\n");
    all.push((file("Disable Dynamo in the recomputation", &leak), Some(Verdict::Reproduced)));
    all.push((file("Break it", &format!("{leak}from torch.utils import what_is_not_there\n")), None));
    all.push((file("Mend that", &format!("{leak}# A comment.\n")), Some(Verdict::Reproduced)));
    all.push((file("Repair the leak", stock), Some(Verdict::Fixed)));
    repository.commit("Change something else again", "README.md", "Something else again.\n");
    all
}
