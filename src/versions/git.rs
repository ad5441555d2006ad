//! Reads a repository with the `git` program: revisions, the line of commits between two, and files as of a commit.
//!
//! Only commands that read are used. No work tree and no index is looked at, so that a bare or a partial clone will do,
//! and a checkout in which somebody works stays as it is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::git_error::GitError;
use crate::process::{self, Exchanged, Exit};

/// A partial clone fetches what it lacks while it is read.
const DEADLINE: Duration = Duration::from_secs(600);

/// Variables by which git would take another repository than the one it is told of. A hook sets some of them.
const MISLEADING: [&str; 8] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_GLOB_PATHSPECS",
];

/// Files as of a commit: the path of each, and the id of its content.
pub type Tree = BTreeMap<String, String>;

/// One commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// The full hash.
    pub hash: String,
    /// As much of it as is unique in the repository.
    pub short: String,
    /// When it was committed, as 2025-05-27.
    pub date: String,
    /// The first line of its message.
    pub subject: String,
}

/// What a commit did to one file: its path and, unless it removed it, the new content's id.
pub type Change = (String, Option<String>);

/// A repository.
#[derive(Debug)]
pub struct Git {
    program: PathBuf,
    /// As it was named, for messages.
    named: PathBuf,
    /// The folder that git itself keeps.
    folder: PathBuf,
    pub is_shallow: bool,
}

impl Git {
    /// Finds the repository that a folder is in.
    ///
    /// # Errors
    /// There is no git, or no repository.
    pub fn open(named: &Path) -> Result<Self, GitError> {
        let program = which::which("git").map_err(|_| GitError::NoGit)?;
        let mut git = Self { program, named: named.to_owned(), folder: named.to_owned(), is_shallow: false };
        let not_here = |said: &[String]| GitError::NotARepository {
            folder: named.to_owned(),
            said: said.first().cloned().unwrap_or_else(|| "it is no folder".to_owned()),
        };
        if !named.is_dir() {
            return Err(not_here(&[]));
        }
        let mut command = git.command();
        command.current_dir(named).args(["rev-parse", "--absolute-git-dir", "--is-shallow-repository"]);
        let found = git.exchange(command, Vec::new())?;
        let text = String::from_utf8_lossy(&found.stdout);
        let mut lines = text.lines();
        match (found.exit, lines.next()) {
            (Exit::Exited(0), Some(folder)) => git.folder = PathBuf::from(folder),
            _ => return Err(not_here(&found.stderr)),
        }
        git.is_shallow = lines.next() == Some("true");
        Ok(git)
    }

    /// As it was named.
    pub fn named(&self) -> &Path {
        &self.named
    }

    /// The full hash of the commit that a revision names.
    ///
    /// # Errors
    /// It names none in this repository.
    pub fn resolve(&self, revision: &str) -> Result<String, GitError> {
        // A leading dash would be an option of git.
        if revision.is_empty() || revision.starts_with('-') || revision.contains(['\0', '\n']) {
            return Err(GitError::BadRevision(revision.to_owned()));
        }
        let wanted = format!("{revision}^{{commit}}");
        let found = self.run(&["rev-parse", "--verify", "--quiet", &wanted], Vec::new())?;
        if !found.exit.success() {
            return Err(GitError::UnknownRevision {
                revision: revision.to_owned(),
                folder: self.named.clone(),
                is_shallow: self.is_shallow,
            });
        }
        Ok(String::from_utf8_lossy(&found.stdout).trim().to_owned())
    }

    /// Whether a commit of this hash is here. A partial clone is not asked to fetch it.
    pub fn has(&self, hash: &str) -> Result<bool, GitError> {
        let mut command = self.at_root(&["cat-file", "-e", &format!("{hash}^{{commit}}")]);
        command.env("GIT_NO_LAZY_FETCH", "1");
        Ok(self.exchange(command, Vec::new())?.exit.success())
    }

    /// Whether one commit is another's ancestor, or the same.
    pub fn is_ancestor(&self, old: &str, new: &str) -> Result<bool, GitError> {
        let found = self.run(&["merge-base", "--is-ancestor", old, new], Vec::new())?;
        match found.exit {
            Exit::Exited(0) => Ok(true),
            Exit::Exited(1) => Ok(false),
            _ => Err(self.failed("merge-base", &found)),
        }
    }

    /// What a commit says of itself.
    pub fn describe(&self, hash: &str) -> Result<Commit, GitError> {
        let mut found = self.commits(&["--no-walk", hash])?;
        found.pop().ok_or_else(|| self.garbled("rev-list"))
    }

    /// The commits on the first-parent line from `old`, which is not among them, to `new`, the oldest first; with
    /// paths, those that touch one of them.
    pub fn line(&self, old: &str, new: &str, paths: &[String]) -> Result<Vec<Commit>, GitError> {
        let range = format!("{old}..{new}");
        let mut words = vec!["--first-parent", "--reverse", &range, "--"];
        words.extend(paths.iter().map(String::as_str));
        self.commits(&words)
    }

    /// The first parent of the oldest commit on that line: `old` itself, if it is on it.
    pub fn start_of_line(&self, old: &str, new: &str) -> Result<Option<String>, GitError> {
        let range = format!("{old}..{new}");
        let text = self.text(&["rev-list", "--first-parent", "--parents", "--reverse", &range])?;
        Ok(text.lines().next().and_then(|line| line.split(' ').nth(1)).map(str::to_owned))
    }

    /// Whether any commit up to this one touched the path.
    pub fn ever_touched(&self, hash: &str, path: &str) -> Result<bool, GitError> {
        Ok(!self.text(&["rev-list", "-1", hash, "--", path])?.trim().is_empty())
    }

    fn commits(&self, words: &[&str]) -> Result<Vec<Commit>, GitError> {
        let mut all = vec!["rev-list", "--date=short", "--format=%H%x00%h%x00%cd%x00%s"];
        all.extend(words);
        let text = self.text(&all)?;
        // Before each comes a line `commit <hash>`, which newer versions of git can leave out.
        let lines = text.lines().filter(|line| line.contains('\0'));
        let parsed = lines.map(|line| {
            let mut fields = line.splitn(4, '\0').map(str::to_owned);
            Some(Commit {
                hash: fields.next()?,
                short: fields.next()?,
                date: fields.next()?,
                subject: fields.next()?,
            })
        });
        parsed.collect::<Option<_>>().ok_or_else(|| self.garbled("rev-list"))
    }

    /// The Python files below the paths as of a commit.
    pub fn tree(&self, hash: &str, paths: &[String]) -> Result<Tree, GitError> {
        let mut words = vec!["ls-tree", "-r", "-z", "--full-tree", hash, "--"];
        words.extend(paths.iter().map(String::as_str));
        let text = self.text(&words)?;
        // `100644 blob <id>\t<path>`; what is no regular file is not taken.
        let entries = text.split_terminator('\0').filter_map(|entry| {
            let (meta, path) = entry.split_once('\t')?;
            let mut meta = meta.split(' ');
            let is_file = meta.next()?.starts_with("100");
            let id = meta.nth(1)?;
            (is_file && is_python(path)).then(|| (path.to_owned(), id.to_owned()))
        });
        Ok(entries.collect())
    }

    /// What each commit changed in the Python files below the paths, compared with the one before it in the list, and
    /// the first with `start`.
    pub fn changes(
        &self,
        start: &str,
        commits: &[Commit],
        paths: &[String],
    ) -> Result<Vec<Vec<Change>>, GitError> {
        let mut input = String::new();
        let mut before = start;
        for commit in commits {
            // git takes what follows a commit for its parents, and compares with them.
            input += &format!("{} {before}\n", commit.hash);
            before = &commit.hash;
        }
        let mut words = vec!["diff-tree", "--stdin", "-r", "-z", "--raw", "--no-renames", "--"];
        words.extend(paths.iter().map(String::as_str));
        let found = self.run(&words, input.into_bytes())?;
        if !found.exit.success() {
            return Err(self.failed("diff-tree", &found));
        }
        let text = String::from_utf8_lossy(&found.stdout);
        self.parse_changes(&text, commits).ok_or_else(|| self.garbled("diff-tree"))
    }

    /// `<commit>\0` and then, for each file, `:<mode> <mode> <id> <id> <letter>\0<path>\0`. A commit that changed
    /// nothing is left out.
    fn parse_changes(&self, text: &str, commits: &[Commit]) -> Option<Vec<Vec<Change>>> {
        let mut all: BTreeMap<&str, Vec<Change>> = BTreeMap::new();
        let mut words = text.split_terminator('\0');
        let mut current = None;
        while let Some(word) = words.next() {
            let Some(meta) = word.strip_prefix(':') else {
                current = Some(word.split_whitespace().next()?);
                continue;
            };
            let path = words.next()?;
            let mut meta = meta.split(' ').skip(1);
            let is_file = meta.next()?.starts_with("100");
            let id = meta.nth(1)?;
            if is_python(path) {
                all.entry(current?).or_default().push((path.to_owned(), is_file.then(|| id.to_owned())));
            }
        }
        Some(commits.iter().map(|commit| all.remove(commit.hash.as_str()).unwrap_or_default()).collect())
    }

    /// The paths below these that a commit up to this one removed.
    pub fn removed_before(&self, hash: &str, paths: &[String]) -> Result<Vec<String>, GitError> {
        let mut words = vec!["log", "--first-parent", "-m", "--no-renames", "--diff-filter=D"];
        words.extend(["--name-only", "-z", "--format=", hash, "--"]);
        words.extend(paths.iter().map(String::as_str));
        let text = self.text(&words)?;
        Ok(text.split(['\0', '\n']).filter(|path| !path.is_empty()).map(str::to_owned).collect())
    }

    /// The contents of files, in the order of their ids.
    pub fn contents(&self, ids: &[&str]) -> Result<Vec<Vec<u8>>, GitError> {
        let input = ids.iter().flat_map(|id| [id, "\n"]).collect::<String>();
        let found = self.run(&["cat-file", "--batch"], input.into_bytes())?;
        if !found.exit.success() {
            return Err(self.failed("cat-file", &found));
        }
        let mut rest = found.stdout.as_slice();
        let mut contents = Vec::with_capacity(ids.len());
        for _ in ids {
            let (content, after) = next_content(rest).ok_or_else(|| self.failed("cat-file", &found))?;
            contents.push(content.to_owned());
            rest = after;
        }
        Ok(contents)
    }

    fn text(&self, words: &[&str]) -> Result<String, GitError> {
        let found = self.run(words, Vec::new())?;
        if !found.exit.success() {
            return Err(self.failed(words[0], &found));
        }
        Ok(String::from_utf8_lossy(&found.stdout).into_owned())
    }

    fn run(&self, words: &[&str], input: Vec<u8>) -> Result<Exchanged, GitError> {
        self.exchange(self.at_root(words), input)
    }

    /// In git's own folder paths are those from the root, whatever folder of the checkout was named.
    fn at_root(&self, words: &[&str]) -> Command {
        let mut command = self.command();
        command.current_dir(&self.folder).arg("--git-dir").arg(&self.folder).args(words);
        command
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        for variable in MISLEADING {
            command.env_remove(variable);
        }
        // Names of files are no patterns, and nobody is there to answer a question.
        command.env("GIT_LITERAL_PATHSPECS", "1").env("GIT_TERMINAL_PROMPT", "0");
        command.env("GIT_OPTIONAL_LOCKS", "0").env("LC_ALL", "C");
        // Settings of the user that change what `log` prints.
        command.args(["-c", "log.showSignature=false", "-c", "log.follow=false", "-c", "color.ui=false"]);
        command
    }

    fn exchange(&self, command: Command, input: Vec<u8>) -> Result<Exchanged, GitError> {
        match process::exchange(command, input, DEADLINE) {
            Ok(found) if found.exit == Exit::Interrupted => Err(GitError::Interrupted),
            Ok(found) => Ok(found),
            Err(source) => Err(GitError::Spawn { program: self.program.clone(), source }),
        }
    }

    fn failed(&self, what: &str, found: &Exchanged) -> GitError {
        let tail = &found.stderr[found.stderr.len().saturating_sub(6)..];
        GitError::Failed {
            command: format!("git {what}"),
            folder: self.named.clone(),
            exit: found.exit,
            said: tail.join("\n"),
        }
    }

    fn garbled(&self, what: &str) -> GitError {
        GitError::Failed {
            command: format!("git {what}"),
            folder: self.named.clone(),
            exit: Exit::Exited(0),
            said: "it printed what torchleak cannot read".to_owned(),
        }
    }
}

fn is_python(path: &str) -> bool {
    path.ends_with(".py")
}

/// Takes `<id> blob <size>\n<content>\n` apart.
fn next_content(from: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = from.iter().position(|byte| *byte == b'\n')?;
    let header = std::str::from_utf8(&from[..end]).ok()?;
    let size: usize = header.split(' ').nth(2)?.parse().ok()?;
    let rest = &from[end + 1..];
    (rest.len() > size).then(|| (&rest[..size], &rest[size + 1..]))
}
