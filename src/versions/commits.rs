//! Commits of a PyTorch checkout as candidates: the Python files of each, laid over one installed release.
//!
//! Only commits that change a Python file of the given paths are candidates, besides the older end. They are those of
//! the first-parent line from the older end to the newer one. A merge brings a whole branch at once to that line, as the
//! line's users saw it, and so what is good and bad along it changes in one direction, as a search needs it; commits of
//! the branches beside it never were anybody's PyTorch in that order.

use std::collections::BTreeSet;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::candidate::{Candidate, Source, Unavailable};
use super::commits_error::CommitsError;
use super::git::{Commit, Git, Tree};
use super::git_error::GitError;
use super::paths;
use crate::cache::Cache;
use crate::environment::{
    self, Environment, EnvironmentArgs, EnvironmentError, Overlay, Progress, Request, View, Views, overlaid,
};

/// Commits of a checkout.
#[derive(Debug)]
pub struct Commits {
    git: Git,
    paths: Vec<String>,
    request: Request,
    cache: Cache,
    /// The release. Holding it keeps it from being pruned between two candidates.
    base: Environment,
    views: Views,
    candidates: Vec<Candidate>,
    /// The files of each candidate.
    trees: Vec<Tree>,
    ends: (usize, usize),
    notes: Vec<String>,
}

impl Commits {
    /// The commits between two, which may be given in either order, over an installed release.
    ///
    /// # Errors
    /// The repository has no such commits or paths, neither is the other's ancestor, nothing changes between them, or
    /// there is no release.
    pub fn between(
        folder: &Path,
        a: &str,
        b: &str,
        given: &[String],
        base: &EnvironmentArgs,
        cache: &Cache,
        progress: &dyn Progress,
    ) -> Result<Self, CommitsError> {
        let paths = paths::checked(given)?;
        let git = Git::open(folder)?;
        let (hash_a, hash_b) = (git.resolve(a)?, git.resolve(b)?);
        let is_a_older = older(&git, (a, &hash_a), (b, &hash_b))?;
        let (old, new) = if is_a_older { ((a, hash_a), (b, hash_b)) } else { ((b, hash_b), (a, hash_a)) };
        let (commits, trees) = line(&git, (old.0, &old.1), (new.0, &new.1), &paths)?;
        let last = commits.len() - 1;
        if last == 0 {
            for path in &paths {
                explain_missing(&git, path, &new.1, &trees)?;
            }
            let (old, new) = (old.0.to_owned(), new.0.to_owned());
            return Err(CommitsError::NothingChanges { old, new, paths: paths.join(", ") });
        }
        let mut found = Self::new(git, paths, commits, trees, base, cache, progress)?;
        for path in &found.paths {
            explain_missing(&found.git, path, &new.1, &found.trees)?;
        }
        found.ends = if is_a_older { (0, last) } else { (last, 0) };
        if found.candidates[last].commit.as_deref() != Some(&new.1) {
            found.notes.push(format!(
                "{} does not touch the paths; {}, the last commit before it that does, stands for it",
                new.0, found.candidates[last].label
            ));
        }
        Ok(found)
    }

    /// One commit over an installed release.
    ///
    /// # Errors
    /// As [`Commits::between`].
    pub fn at(
        folder: &Path,
        revision: &str,
        given: &[String],
        base: &EnvironmentArgs,
        cache: &Cache,
        progress: &dyn Progress,
    ) -> Result<Self, CommitsError> {
        let paths = paths::checked(given)?;
        let git = Git::open(folder)?;
        let hash = git.resolve(revision)?;
        let tree = git.tree(&hash, &paths)?;
        let commit = git.describe(&hash)?;
        let found = Self::new(git, paths, vec![commit], vec![tree], base, cache, progress)?;
        for path in &found.paths {
            match explain_missing(&found.git, path, &hash, &found.trees) {
                // A file that upstream added later is taken away from the release too.
                Err(CommitsError::NoSuchPath { .. })
                    if has_package(&found.git, &hash, path)?
                        && environment::is_installed(&found.base, path)? => {}
                result => result?,
            }
        }
        Ok(found)
    }

    fn new(
        git: Git,
        paths: Vec<String>,
        commits: Vec<Commit>,
        trees: Vec<Tree>,
        base: &EnvironmentArgs,
        cache: &Cache,
        progress: &dyn Progress,
    ) -> Result<Self, CommitsError> {
        let request = Request::new(base, |name| std::env::var_os(name))?;
        let base = environment::resolve_request(&request, cache, progress)?;
        let release = identity_of(&base);
        let candidate = |(commit, tree): (Commit, &Tree)| Candidate {
            identity: format!("{release}+{}", hash_of(&paths, tree)),
            label: commit.short,
            commit: Some(commit.hash),
            note: Some(format!("{} {}", commit.date, commit.subject)),
        };
        let candidates = commits.into_iter().zip(&trees).map(candidate).collect();
        let cache = cache.clone();
        let views = Views::default();
        Ok(Self {
            git,
            paths,
            request,
            cache,
            base,
            views,
            candidates,
            trees,
            ends: (0, 0),
            notes: Vec::new(),
        })
    }

    /// Which candidates the two ends are, in the order in which they were given.
    pub fn ends(&self) -> (usize, usize) {
        self.ends
    }

    /// What a person should know of the ends.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The release that files are laid over.
    pub fn base(&self) -> &Environment {
        &self.base
    }

    fn lay_over(
        &self,
        candidate: &Candidate,
        tree: &Tree,
        progress: &dyn Progress,
    ) -> Result<Environment, Unavailable> {
        let commit = candidate.commit.clone().unwrap_or_default();
        let base = environment::resolve_request(&self.request, &self.cache, progress)?;
        let mut view = self.views.take(&base, &self.cache, progress)?;
        let ids: Vec<&str> = tree.values().map(String::as_str).collect();
        let contents = self.git.contents(&ids).map_err(unreadable)?;
        for (path, content) in tree.keys().zip(contents) {
            view.put(path, &content)?;
        }
        for path in self.gone(&view, &commit, tree, progress)? {
            view.remove(&path)?;
        }
        let changed = view.changed();
        Ok(overlaid(Overlay { commit, paths: self.paths.clone(), changed, base, view }, progress)?)
    }

    /// The files of the release that the commit does not have, although they are git's: a release has generated files
    /// too, which no commit has.
    fn gone(
        &self,
        view: &View,
        commit: &str,
        tree: &Tree,
        progress: &dyn Progress,
    ) -> Result<Vec<String>, Unavailable> {
        let (files, folders): (Vec<String>, Vec<String>) =
            self.paths.iter().cloned().partition(|path| paths::is_file(path));
        let mut gone: Vec<String> = files.into_iter().filter(|path| !tree.contains_key(path)).collect();
        let mut extra: BTreeSet<String> = folders.iter().flat_map(|path| view.python_files(path)).collect();
        extra.retain(|path| !tree.contains_key(path));
        if extra.is_empty() {
            return Ok(gone);
        }
        let mut known: BTreeSet<String> =
            self.git.removed_before(commit, &folders).map_err(unreadable)?.into_iter().collect();
        match &self.base.facts.torch_commit {
            Some(release) if self.git.has(release).map_err(unreadable)? => {
                known.extend(self.git.tree(release, &folders).map_err(unreadable)?.into_keys());
            }
            _ => progress.note(&format!(
                "the repository lacks the commit of torch {}, so files which that release added to the folders are \
                 kept (`git fetch --tags`)",
                self.base.facts.torch
            )),
        }
        gone.extend(extra.intersection(&known).cloned());
        Ok(gone)
    }
}

impl Source for Commits {
    fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    fn environment(
        &self,
        candidate: &Candidate,
        progress: &dyn Progress,
    ) -> Result<Environment, Unavailable> {
        let index = self.candidates.iter().position(|each| each.label == candidate.label);
        let tree = index.and_then(|index| self.trees.get(index));
        let tree = tree.ok_or_else(|| Unavailable::Broken(format!("{} is no candidate", candidate.label)))?;
        let made = self.lay_over(candidate, tree, progress);
        progress.end();
        made.map_err(|error| match error {
            // That is what this commit shows, and nothing is wrong with the environment.
            Unavailable::Environment(error @ EnvironmentError::DoesNotImport { .. }) => {
                Unavailable::Broken(error.to_string())
            }
            error => error,
        })
    }

    fn replay(&self, candidate: &Candidate) -> Vec<String> {
        let mut options = release_options(&self.request);
        options.extend(["--git".to_owned(), self.git.named().display().to_string()]);
        options.extend(["--commit".to_owned(), candidate.commit.clone().unwrap_or_default()]);
        options.extend(["--paths".to_owned(), self.paths.join(",")]);
        options
    }
}

/// Whether the first is the older one.
fn older(git: &Git, a: (&str, &str), b: (&str, &str)) -> Result<bool, GitError> {
    if git.is_ancestor(a.1, b.1)? {
        return Ok(true);
    }
    if git.is_ancestor(b.1, a.1)? {
        return Ok(false);
    }
    Err(GitError::Unrelated {
        a: a.0.to_owned(),
        b: b.0.to_owned(),
        folder: git.named().to_owned(),
        is_shallow: git.is_shallow,
    })
}

/// The older end, and the commits up to the newer one that change a Python file of the paths, each with its files.
fn line(
    git: &Git,
    old: (&str, &str),
    new: (&str, &str),
    paths: &[String],
) -> Result<(Vec<Commit>, Vec<Tree>), GitError> {
    if let Some(before) = git.start_of_line(old.1, new.1)?.filter(|before| before != old.1) {
        let (old, new) = (old.0.to_owned(), new.0.to_owned());
        return Err(GitError::OffTheLine { old, new, before });
    }
    let touching = git.line(old.1, new.1, paths)?;
    let changes = git.changes(old.1, &touching, paths)?;
    let mut tree = git.tree(old.1, paths)?;
    let (mut commits, mut trees) = (vec![git.describe(old.1)?], vec![tree.clone()]);
    for (commit, changes) in touching.into_iter().zip(changes) {
        for (path, id) in changes {
            match id {
                Some(id) => tree.insert(path, id),
                None => tree.remove(&path),
            };
        }
        // Without a change to Python it is the same candidate as the one before.
        if trees.last() != Some(&tree) {
            commits.push(commit);
            trees.push(tree.clone());
        }
    }
    Ok((commits, trees))
}

/// Fails if no candidate has a Python file of the path, and nothing tells why.
fn explain_missing(git: &Git, path: &str, newest: &str, trees: &[Tree]) -> Result<(), CommitsError> {
    if trees.iter().any(|tree| tree.keys().any(|file| paths::covers(path, file))) {
        return Ok(());
    }
    let (path, commit) = (path.to_owned(), newest[..newest.len().min(12)].to_owned());
    if !git.ever_touched(newest, &path)? {
        return Err(CommitsError::NoSuchPath { path, commit });
    }
    // A file that was removed earlier is taken away from the release, and that is what the commit is like.
    if paths::is_file(&path) { Ok(()) } else { Err(CommitsError::NoPython { path, commit }) }
}

/// Whether the commit has the package that a path is in. Without it the repository is not PyTorch's, or its root is
/// elsewhere, and taking the files away from the release would say nothing of the commit.
pub(super) fn has_package(git: &Git, hash: &str, path: &str) -> Result<bool, CommitsError> {
    let package = path.split('/').next().unwrap_or(path).to_owned();
    Ok(!git.tree(hash, &[package])?.is_empty())
}

fn unreadable(error: GitError) -> Unavailable {
    match error {
        GitError::Interrupted => EnvironmentError::Interrupted("reading the repository".to_owned()).into(),
        error => Unavailable::Broken(error.to_string()),
    }
}

/// Names the release: equal names are the same PyTorch.
fn identity_of(base: &Environment) -> String {
    let facts = &base.facts;
    base.key().map_or_else(
        || {
            let told = format!("{}\n{:?}\n{:?}", base.python.display(), facts.torch_commit, facts.python);
            format!("torch-{}-{}", facts.torch, short_hash(told.as_bytes()))
        },
        str::to_owned,
    )
}

/// Names the files, by what is in them: a commit that restores an earlier state has the earlier name.
fn hash_of(paths: &[String], tree: &Tree) -> String {
    let mut told = paths.join("\0");
    for (path, id) in tree {
        told += &format!("\n{path}\0{id}");
    }
    short_hash(told.as_bytes())
}

fn short_hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// The options that name the release on the command line.
fn release_options(request: &Request) -> Vec<String> {
    match request {
        Request::Interpreter(path) => vec!["--python".to_owned(), path.display().to_string()],
        Request::Managed(wanted) => wanted.options(),
    }
}
