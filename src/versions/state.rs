//! What a bisection has found so far, on disk: one JSON file, replaced as a whole after each run.
//!
//! Only runs are kept. Answers and the next step follow from them, so no file can hold a step that its runs do not
//! support, and a bisection that was killed goes on as if it had not been.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use torchleak_protocol::Device;

use super::answer::{Run, Shown};
use super::{Candidate, Cell};
use crate::cache::write_whole;
use crate::case::Case;

const SCHEMA: u32 = 1;

/// Why what was found cannot be kept or taken up again.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("`{path}` is not the state of a bisection: {problem}")]
    Garbled { path: PathBuf, problem: String },
    #[error("`{path}` is the state of a bisection of {found}, and this one is of {wanted}")]
    Other { path: PathBuf, found: String, wanted: String },
    #[error("the case `{case}` has changed since the runs in `{path}`, so they say nothing about it")]
    ChangedCase { path: PathBuf, case: String },
    #[error("the runs in `{path}` are on {}, and this bisection is to run on {}", word(*.found), word(*.wanted))]
    OtherDevice { path: PathBuf, found: Device, wanted: Device },
    #[error("cannot {action} the state of the bisection `{path}`")]
    Io { action: &'static str, path: PathBuf, source: io::Error },
}

impl StateError {
    /// What to try.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Garbled { .. } => "remove the file, or choose another with --state",
            Self::Other { .. } => "choose another file with --state, or leave --resume out to begin anew",
            Self::ChangedCase { .. } => "leave --resume out to begin anew; the old state is set aside",
            Self::OtherDevice { .. } => "name the same --device, or leave --resume out to begin anew",
            Self::Io { .. } => "choose another file with --state, or free some space",
        }
    }

    /// Whether the command line is to blame and not the disk.
    pub fn is_usage(&self) -> bool {
        !matches!(self, Self::Io { .. })
    }
}

fn word(device: Device) -> &'static str {
    match device {
        Device::Cpu => "the CPU",
        Device::Cuda => "CUDA",
    }
}

/// What the runs are of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    pub case: String,
    /// The hash of the case and its program.
    pub case_hash: String,
    /// What the candidates are, such as `releases`.
    pub source: String,
    /// The name of the oldest candidate.
    pub oldest: String,
    /// The name of the newest candidate.
    pub newest: String,
}

impl Subject {
    pub fn new(case: &Case, source: &str, candidates: &[Candidate]) -> Self {
        let label = |candidate: Option<&Candidate>| candidate.map_or_else(String::new, |it| it.label.clone());
        Self {
            case: case.name().to_owned(),
            case_hash: case.content_hash(),
            source: source.to_owned(),
            oldest: label(candidates.first()),
            newest: label(candidates.last()),
        }
    }

    /// Where its state is kept if no file is named. The content of the case is not part of the name, so that a case that
    /// has changed is noticed.
    pub fn default_path(&self, runs: &Path) -> PathBuf {
        let hash = Sha256::digest(format!("{}\n{}\n{}", self.source, self.oldest, self.newest).as_bytes());
        let key: String = hash.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        runs.join(format!("bisect-{}-{key}.json", self.case))
    }

    fn described(&self) -> String {
        format!("`{}` over {} {} to {}", self.case, self.source, self.oldest, self.newest)
    }
}

/// The file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    schema: u32,
    torchleak: String,
    subject: Subject,
    /// The device of the first run, which is that of all.
    device: Option<Device>,
    /// The identities of the candidates, the oldest first.
    candidates: Vec<String>,
    finished: bool,
    runs: Vec<Run>,
}

/// The state of one bisection and its file.
#[derive(Debug)]
pub struct State {
    path: PathBuf,
    kept: Kept,
}

impl State {
    /// Begins a state in that file, or takes up the one that is there. The sentences are for the user.
    ///
    /// A file that is there is never lost: one that is not taken up is set aside, and one that is no state is refused.
    ///
    /// # Errors
    /// The file is no state, is of another case or device, or cannot be read or written.
    pub fn open(
        path: &Path,
        subject: Subject,
        candidates: &[Candidate],
        device: Option<Device>,
        resume: bool,
    ) -> Result<(Self, Vec<String>), StateError> {
        let identities = candidates.iter().map(|candidate| candidate.identity.clone()).collect();
        let fresh = Kept {
            schema: SCHEMA,
            torchleak: env!("CARGO_PKG_VERSION").to_owned(),
            subject,
            device,
            candidates: identities,
            finished: false,
            runs: Vec::new(),
        };
        let mut notes = Vec::new();
        let kept = match (read(path)?, resume) {
            (None, false) => fresh,
            (None, true) => {
                notes.push(format!("there is no state `{}` to resume, so it begins anew", path.display()));
                fresh
            }
            (Some(old), false) => {
                notes.extend(set_aside(path, &old)?);
                fresh
            }
            (Some(old), true) => taken_up(path, old, fresh, &mut notes)?,
        };
        let state = Self { path: path.to_owned(), kept };
        state.save()?;
        Ok((state, notes))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The device of all runs, if that is settled.
    pub fn device(&self) -> Option<Device> {
        self.kept.device
    }

    /// All runs that count.
    pub fn runs(&self) -> &[Run] {
        &self.kept.runs
    }

    /// The runs of one candidate.
    pub fn runs_of<'a>(&'a self, identity: &'a str, recheck: bool) -> impl Iterator<Item = &'a Shown> {
        let runs = self.kept.runs.iter();
        runs.filter(move |run| run.identity == identity && run.recheck == recheck).map(|run| &run.shown)
    }

    /// Keeps a run; it is on disk when this returns. Earlier runs of the same candidate in what was another environment
    /// then do not count any more, and the sentence says so.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn push(&mut self, mut run: Run) -> Result<Option<String>, StateError> {
        let mut note = None;
        if let Shown::Cell(cell) = &run.shown {
            self.kept.device.get_or_insert(cell.device);
            let mine = self.kept.runs.iter().filter(|old| old.identity == run.identity);
            let other = mine.filter_map(|old| old.shown.cell()).find(|old| facts(old) != facts(cell));
            if let Some(other) = other {
                note = Some(format!(
                    "the environment of {} has changed ({} then, {} now); its earlier runs are not used",
                    run.candidate,
                    environment(other),
                    environment(cell),
                ));
                self.kept.runs.retain(|old| old.identity != run.identity);
                // What was to confirm an earlier run is now the first.
                run.recheck = false;
            }
        }
        self.kept.runs.push(run);
        self.save()?;
        Ok(note)
    }

    /// Notes that nothing is left to do.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(&mut self) -> Result<(), StateError> {
        self.kept.finished = true;
        self.save()
    }

    fn save(&self) -> Result<(), StateError> {
        let failed = |source| StateError::Io { action: "write", path: self.path.clone(), source };
        if let Some(folder) = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        let text = serde_json::to_string_pretty(&self.kept).map_err(|error| failed(error.into()))?;
        write_whole(&self.path, &(text + "\n")).map_err(failed)
    }
}

fn read(path: &Path) -> Result<Option<Kept>, StateError> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(StateError::Io { action: "read", path: path.to_owned(), source }),
    };
    let garbled = |problem: String| StateError::Garbled { path: path.to_owned(), problem };
    let kept: Kept = serde_json::from_slice(&text).map_err(|error| garbled(error.to_string()))?;
    if kept.schema != SCHEMA {
        return Err(garbled(format!("it has schema {}, and this torchleak knows {SCHEMA}", kept.schema)));
    }
    Ok(Some(kept))
}

/// Moves an old state out of the way of a new one; says so if it is worth going on with.
fn set_aside(path: &Path, old: &Kept) -> Result<Option<String>, StateError> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".old");
    let aside = PathBuf::from(aside);
    let failed = |source| StateError::Io { action: "set aside", path: path.to_owned(), source };
    std::fs::rename(path, &aside).map_err(failed)?;
    let worth = !old.finished && !old.runs.is_empty();
    Ok(worth.then(|| {
        format!(
            "an unfinished bisection with {} is set aside as `{}`; to go on with it, move it back and use --resume",
            runs(old.runs.len()),
            aside.display(),
        )
    }))
}

/// The old state with what still holds of it.
fn taken_up(path: &Path, mut old: Kept, fresh: Kept, notes: &mut Vec<String>) -> Result<Kept, StateError> {
    let path = || path.to_owned();
    let same = |other: &Subject| Subject { case_hash: other.case_hash.clone(), ..fresh.subject.clone() };
    if old.subject != same(&old.subject) {
        let (found, wanted) = (old.subject.described(), fresh.subject.described());
        return Err(StateError::Other { path: path(), found, wanted });
    }
    if old.subject.case_hash != fresh.subject.case_hash {
        return Err(StateError::ChangedCase { path: path(), case: fresh.subject.case });
    }
    if let (Some(found), Some(wanted)) = (old.device, fresh.device)
        && found != wanted
    {
        return Err(StateError::OtherDevice { path: path(), found, wanted });
    }
    if old.torchleak != fresh.torchleak {
        notes.push(format!("the runs that are kept are by torchleak {}", old.torchleak));
    }
    if old.candidates != fresh.candidates {
        notes.push("the list of candidates has changed since".to_owned());
    }
    let there: BTreeSet<&String> = fresh.candidates.iter().collect();
    let (still, gone): (Vec<Run>, Vec<Run>) =
        old.runs.into_iter().partition(|run| there.contains(&run.identity));
    if !gone.is_empty() {
        let labels: BTreeSet<&str> = gone.iter().map(|run| run.candidate.as_str()).collect();
        let labels: Vec<&str> = labels.into_iter().collect();
        notes.push(format!(
            "{} of {} are not used: it is another environment now, or no candidate",
            runs(gone.len()),
            labels.join(", ")
        ));
    }
    // What failed for want of a network or of room may work now; nothing was run there.
    old.runs = still
        .into_iter()
        .filter(|run| !matches!(run.shown, Shown::Unavailable { lasting: false, .. }))
        .collect();
    for run in &mut old.runs {
        if let Shown::Cell(cell) = &mut run.shown {
            cell.cached = true;
        }
    }
    notes.push(format!("resuming with {}", runs(old.runs.len())));
    Ok(Kept { device: old.device.or(fresh.device), runs: old.runs, ..fresh })
}

/// What makes two runs of one candidate comparable.
fn facts(cell: &Cell) -> (&str, Option<&str>, &str, Device) {
    (&cell.torch, cell.torch_commit.as_deref(), &cell.python, cell.device)
}

fn environment(cell: &Cell) -> String {
    let commit = cell.torch_commit.as_deref().map_or(String::new(), |commit| format!(" ({:.10})", commit));
    format!("torch {}{commit} with Python {} on {}", cell.torch, cell.python, word(cell.device))
}

fn runs(count: usize) -> String {
    if count == 1 { "1 run".to_owned() } else { format!("{count} runs") }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
