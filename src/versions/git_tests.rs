//! The reading of repositories, on small ones that the tests make with the real git.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::commits::{Commits, has_package};
use super::commits_error::CommitsError;
use super::git::{Git, Tree};
use super::git_error::GitError;
use crate::cache::Cache;
use crate::environment::{EnvironmentArgs, Silent};

struct Repository {
    folder: tempfile::TempDir,
}

impl Repository {
    fn new() -> Self {
        let repository = Self { folder: tempfile::tempdir().unwrap() };
        repository.git(&["init", "-q", "-b", "main"]);
        repository
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn git(&self, words: &[&str]) -> String {
        let mut command = Command::new("git");
        command
            .current_dir(self.path())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1");
        command.args(["-c", "user.name=Tester", "-c", "user.email=tester@example.org"]).args(words);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Commits files; None removes one. Gives the hash.
    fn commit(&self, subject: &str, files: &[(&str, Option<&str>)]) -> String {
        for (path, text) in files {
            let path = self.path().join(path);
            match text {
                Some(text) => {
                    fs::create_dir_all(path.parent().unwrap()).unwrap();
                    fs::write(path, text).unwrap();
                }
                None => fs::remove_file(path).unwrap(),
            }
        }
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", subject]);
        self.head()
    }

    fn head(&self) -> String {
        self.git(&["rev-parse", "HEAD"])
    }

    /// Asks for commits over an environment that is not there, so that only what git says can be an error.
    fn between(&self, a: &str, b: &str, paths: &[&str]) -> CommitsError {
        between(self.path(), a, b, paths)
    }
}

fn between(folder: &Path, a: &str, b: &str, paths: &[&str]) -> CommitsError {
    let none = EnvironmentArgs { python: Some("/nonexistent/python".into()), ..Default::default() };
    let cache = Cache::at(Path::new("/nonexistent/cache"));
    Commits::between(folder, a, b, &owned(paths), &none, &cache, &Silent).unwrap_err()
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

/// A history with a merge, additions, removals, and commits beside the paths.
fn history() -> (Repository, String) {
    let repository = Repository::new();
    let old = repository.commit(
        "Begin",
        &[("torch/utils/a.py", Some("1\n")), ("torch/utils/b.py", Some("1\n")), ("setup.py", Some("1\n"))],
    );
    repository.git(&["checkout", "-q", "-b", "side"]);
    repository.commit("On the side", &[("torch/utils/a.py", Some("2\n"))]);
    repository.commit("On the side again", &[("torch/utils/new file.py", Some("3\n"))]);
    repository.git(&["checkout", "-q", "main"]);
    repository.commit("Beside the paths", &[("setup.py", Some("2\n")), ("torch/c.py", Some("1\n"))]);
    repository.git(&["merge", "-q", "--no-ff", "-m", "Merge the side", "side"]);
    repository.commit("No Python", &[("torch/utils/notes.md", Some("1\n"))]);
    repository.commit("Remove", &[("torch/utils/b.py", None)]);
    repository.commit("Beside again", &[("torch/c.py", Some("2\n"))]);
    (repository, old)
}

#[test]
fn a_merge_is_one_step_of_the_line_and_commits_beside_the_paths_are_none() {
    let (repository, old) = history();
    let git = Git::open(repository.path()).unwrap();
    let line = git.line(&old, &repository.head(), &owned(&["torch/utils"])).unwrap();
    let subjects: Vec<_> = line.iter().map(|commit| commit.subject.as_str()).collect();
    assert_eq!(subjects, ["Merge the side", "No Python", "Remove"]);
    assert!(line.iter().all(|commit| commit.hash.starts_with(&commit.short) && commit.date.len() == 10));
}

#[test]
fn what_the_commits_changed_adds_up_to_the_files_that_each_has() {
    let (repository, old) = history();
    let git = Git::open(repository.path()).unwrap();
    let paths = owned(&["torch/utils"]);
    let line = git.line(&old, &repository.head(), &paths).unwrap();
    let mut tree: Tree = git.tree(&old, &paths).unwrap();
    for (commit, changes) in line.iter().zip(git.changes(&old, &line, &paths).unwrap()) {
        for (path, id) in changes {
            match id {
                Some(id) => tree.insert(path, id),
                None => tree.remove(&path),
            };
        }
        assert_eq!(tree, git.tree(&commit.hash, &paths).unwrap(), "{}", commit.subject);
    }
    assert_eq!(tree.keys().collect::<Vec<_>>(), ["torch/utils/a.py", "torch/utils/new file.py"]);
    assert_eq!(git.removed_before(&repository.head(), &paths).unwrap(), ["torch/utils/b.py"]);
}

#[test]
fn contents_are_kept_to_the_byte() {
    let repository = Repository::new();
    let texts = ["", "no end of line", "\r\n\n\u{e9}\n", "blob 3\nabc\n"];
    let names: Vec<String> = (0..texts.len()).map(|number| format!("torch/{number}.py")).collect();
    let files: Vec<_> = names.iter().map(String::as_str).zip(texts.map(Some)).collect();
    let head = repository.commit("Odd files", &files);
    let git = Git::open(repository.path()).unwrap();
    let tree = git.tree(&head, &owned(&["torch"])).unwrap();
    let ids: Vec<&str> = tree.values().map(String::as_str).collect();
    assert_eq!(git.contents(&ids).unwrap(), texts.map(str::as_bytes));
    assert!(git.contents(&["0123456789012345678901234567890123456789"]).is_err());
}

#[test]
fn a_subfolder_and_a_bare_clone_are_read_as_the_checkout_is() {
    let (repository, old) = history();
    let other = tempfile::tempdir().unwrap();
    let bare = other.path().join("bare");
    repository.git(&["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
    let places = [repository.path().to_owned(), repository.path().join("torch/utils"), bare];
    let paths = owned(&["torch/utils"]);
    let read = |place: &PathBuf| {
        let git = Git::open(place).unwrap();
        (git.line(&old, "main", &paths).unwrap(), git.tree("main", &paths).unwrap())
    };
    let found: Vec<_> = places.iter().map(read).collect();
    assert_eq!((found[0].0.len(), found[0].1.len()), (3, 2));
    assert!(found[0] == found[1] && found[1] == found[2]);
}

#[test]
fn nothing_in_the_repository_is_changed_by_reading_it() {
    let (repository, old) = history();
    fs::write(repository.path().join("torch/utils/a.py"), "work in progress\n").unwrap();
    let index = || fs::metadata(repository.path().join(".git/index")).unwrap().modified().unwrap();
    let before = index();
    let git = Git::open(repository.path()).unwrap();
    let line = git.line(&old, "main", &owned(&["torch"])).unwrap();
    git.changes(&old, &line, &owned(&["torch"])).unwrap();
    assert_eq!(index(), before);
    assert_eq!(repository.git(&["status", "--short"]), "M torch/utils/a.py");
}

#[test]
fn a_folder_without_a_repository_is_told_and_so_is_a_missing_one() {
    let folder = tempfile::tempdir().unwrap();
    for place in [folder.path().to_owned(), folder.path().join("none")] {
        let error = between(&place, "a", "b", &["torch"]);
        assert!(matches!(error, CommitsError::Git(GitError::NotARepository { .. })), "{error}");
        assert!(error.is_usage() && error.hint().is_some());
    }
}

#[test]
fn revisions_that_are_none_are_told_and_never_reach_git_as_options() {
    let (repository, old) = history();
    let unknown = repository.between(&old, "no-such-tag", &["torch"]);
    assert!(matches!(unknown, CommitsError::Git(GitError::UnknownRevision { .. })), "{unknown}");
    assert!(unknown.hint().unwrap().contains("git fetch"));
    for bad in ["--all", "-1", ""] {
        let error = repository.between(bad, &old, &["torch"]);
        assert!(matches!(error, CommitsError::Git(GitError::BadRevision(_))), "{error}");
    }
    let range = repository.between(&old, "HEAD~1..HEAD", &["torch"]);
    assert!(matches!(range, CommitsError::Git(GitError::UnknownRevision { .. })), "{range}");
}

#[test]
fn a_shallow_clone_is_named_as_the_cause() {
    let (repository, old) = history();
    let other = tempfile::tempdir().unwrap();
    let shallow = other.path().join("shallow");
    let url = format!("file://{}", repository.path().display());
    repository.git(&["clone", "-q", "--depth", "1", &url, shallow.to_str().unwrap()]);
    let error = between(&shallow, &old, "HEAD", &["torch"]);
    assert!(error.hint().unwrap().contains("--unshallow"), "{error}");
}

#[test]
fn ends_that_are_not_on_one_line_are_refused() {
    let (repository, old) = history();
    repository.git(&["checkout", "-q", "-b", "release", &old]);
    repository.commit("On a branch", &[("torch/utils/a.py", Some("9\n"))]);
    let error = repository.between("release", "main", &["torch"]);
    assert!(matches!(error, CommitsError::Git(GitError::Unrelated { .. })), "{error}");
    assert!(error.hint().unwrap().contains("git merge-base release main"));
    // Both directions are looked at, and a merged branch is no part of the line.
    for (a, b) in [("side", "main"), ("main", "side")] {
        let error = repository.between(a, b, &["torch"]);
        let CommitsError::Git(GitError::OffTheLine { before, .. }) = &error else { panic!("{error}") };
        assert_eq!(*before, repository.git(&["rev-parse", "main~5"]));
    }
}

#[test]
fn paths_without_python_or_that_never_existed_are_told_apart() {
    let (repository, old) = history();
    repository.commit("Compiled", &[("torch/csrc/a.cpp", Some("1\n")), ("torch/utils/a.py", Some("7\n"))]);
    let error = repository.between(&old, "main", &["torch/csrc", "torch/nothing"]);
    assert!(matches!(error, CommitsError::NoPython { .. }), "{error}");
    let error = repository.between(&old, "main", &["torch/nothing"]);
    assert!(matches!(error, CommitsError::NoSuchPath { .. }), "{error}");
    let error = repository.between("main~1", "main~1", &["torch/utils"]);
    assert!(matches!(error, CommitsError::NothingChanges { .. }), "{error}");
    let error = repository.between("main~1", "main", &["torch/csrc"]);
    assert!(matches!(error, CommitsError::NoPython { .. }), "{error}");
    // With nothing to say against the repository, the missing environment is what is told.
    let error = repository.between(&old, "main", &["torch/utils"]);
    assert!(matches!(error, CommitsError::Environment(_)), "{error}");
}

#[test]
fn a_repository_without_the_package_is_not_taken_for_a_release_without_its_files() {
    let repository = Repository::new();
    repository.commit("Not PyTorch", &[("README", Some("1\n")), ("src/torch/a.py", Some("1\n"))]);
    let git = Git::open(repository.path()).unwrap();
    let hash = git.resolve("HEAD").unwrap();
    for path in ["torch", "torch/utils/checkpoint.py"] {
        assert!(!has_package(&git, &hash, path).unwrap(), "{path}");
    }
    repository.commit("PyTorch", &[("torch/a.py", Some("1\n"))]);
    assert!(has_package(&git, &git.resolve("HEAD").unwrap(), "torch/utils/checkpoint.py").unwrap());
}
