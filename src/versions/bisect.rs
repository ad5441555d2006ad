//! Runs a case on the candidates that the search asks for, until it is known between which two its answer changes.

use std::cmp::Ordering;

use torchleak_protocol::Device;

use super::answer::{Run, Shown, Told, tell};
use super::bisect_report::BisectReport;
use super::search::{Answer, Find, Seen, Step, next_step, tests_left};
use super::state::{State, StateError, Subject};
use super::{Candidate, CellWatcher, Source, Unavailable, run_cells, with_causes};
use crate::case::Case;
use crate::environment::{EnvironmentError, Progress};
use crate::interrupt;
use crate::run::{RunError, Settings, WantedDevice};
use crate::worker::WorkerError;

/// Why a bisection does not come to an end. A candidate that cannot be tested is no such reason.
#[derive(Debug, thiserror::Error)]
pub enum BisectError {
    #[error("there is no candidate `{label}`: there are {known}")]
    NoSuchEnd { label: String, known: String },
    #[error("the good and the bad end are both `{0}`")]
    SameEnds(String),
    #[error("--find {} contradicts the ends: the good one, {good}, is {} than the bad one, {bad}",
        find.word(), if *find == Find::Introduced { "newer" } else { "older" })]
    FindContradicts { find: Find, good: String, bad: String },
    #[error("interrupted; what was found is kept in `{0}`")]
    Interrupted(std::path::PathBuf),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Environment(EnvironmentError),
    #[error(transparent)]
    Run(RunError),
}

impl BisectError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoSuchEnd { .. } => Some("name one of these with --good and --bad".to_owned()),
            Self::SameEnds(_) => Some("name two different versions".to_owned()),
            Self::FindContradicts { .. } => {
                Some("leave --find out, or swap --good and --bad: a leak is introduced after the good end and fixed before it".to_owned())
            }
            Self::Interrupted(_) => Some("the same command with --resume, which goes on where it stopped".to_owned()),
            Self::State(error) => Some(error.hint().to_owned()),
            Self::Environment(error) => error.hint(),
            Self::Run(error) => error.hint(),
        }
    }
}

/// What is searched, and how.
#[derive(Debug, Clone)]
pub struct Bisection<'a> {
    pub case: &'a Case,
    /// The case as the user named it, for commands that run it again.
    pub case_argument: &'a str,
    /// The ends and all between them, the oldest first.
    pub candidates: &'a [Candidate],
    pub find: Find,
    /// Of how many runs two must agree; with 1 the first verdict counts.
    pub confirm: u8,
    pub settings: &'a Settings,
}

/// Is told of what goes on.
pub trait BisectWatcher {
    /// The environment of this candidate will be needed. Whoever wants to make room does it now.
    fn preparing(&mut self, _candidate: &Candidate) {}
    /// Hears how an environment is made.
    fn environment(&self) -> &dyn Progress;
    /// Watches one run of the case.
    fn run(&mut self) -> Box<dyn CellWatcher + '_>;
    /// A run is over.
    fn ran(&mut self, ran: &Ran<'_>);
    /// Something that the user should know.
    fn note(&mut self, note: &str);
}

/// One run that is over.
#[derive(Debug)]
pub struct Ran<'a> {
    /// Tests that are done, this one included.
    pub done: usize,
    /// How many there will be in all, if all that is left can be tested.
    pub about: usize,
    pub run: &'a Run,
}

/// The candidates from one end to the other and what is searched between them.
///
/// # Errors
/// The ends are not among the candidates, are the same, or are not where `find` says.
pub fn between<'a>(
    candidates: &'a [Candidate],
    good: &str,
    bad: &str,
    find: Option<Find>,
) -> Result<(&'a [Candidate], Find), BisectError> {
    let place = |label: &str| {
        candidates
            .iter()
            .position(|candidate| candidate.label == label)
            .ok_or_else(|| BisectError::NoSuchEnd { label: label.to_owned(), known: named(candidates) })
    };
    let (at_good, at_bad) = (place(good)?, place(bad)?);
    let find = direction(at_good.cmp(&at_bad), good, bad, find)?;
    Ok((&candidates[at_good.min(at_bad)..=at_good.max(at_bad)], find))
}

/// What the order of the good end to the bad one says is to be found.
///
/// # Errors
/// The ends are the same, or are not where `find` says.
pub fn direction(
    good_to_bad: Ordering,
    good: &str,
    bad: &str,
    find: Option<Find>,
) -> Result<Find, BisectError> {
    let found = match good_to_bad {
        Ordering::Equal => return Err(BisectError::SameEnds(good.to_owned())),
        Ordering::Less => Find::Introduced,
        Ordering::Greater => Find::Fixed,
    };
    match find.filter(|find| *find != found) {
        Some(find) => Err(BisectError::FindContradicts { find, good: good.to_owned(), bad: bad.to_owned() }),
        None => Ok(found),
    }
}

/// The names of all candidates, or of the first and last few where there are many.
fn named(candidates: &[Candidate]) -> String {
    let names: Vec<&str> = candidates.iter().map(|candidate| candidate.label.as_str()).collect();
    match names.len() {
        0 => "none".to_owned(),
        1..=12 => names.join(", "),
        count => format!("{} and so on to {}", names[..3].join(", "), names[count - 3..].join(", ")),
    }
}

impl Bisection<'_> {
    /// Whose state it is. `source` says what the candidates are.
    pub fn subject(&self, source: &str) -> Subject {
        Subject::new(self.case, source, self.candidates)
    }

    /// The device that the user asked for, if it is one in particular.
    pub fn device(&self) -> Option<Device> {
        match self.settings.device {
            WantedDevice::Auto => None,
            WantedDevice::Cpu => Some(Device::Cpu),
            WantedDevice::Cuda => Some(Device::Cuda),
        }
    }

    /// Searches from where the state stands to a conclusion. Each run is on disk before the next one begins.
    ///
    /// # Errors
    /// The user asked to stop, or something fails that has nothing to do with a candidate, such as the disk.
    pub fn search(
        &self,
        source: &dyn Source,
        state: &mut State,
        watcher: &mut dyn BisectWatcher,
    ) -> Result<BisectReport, BisectError> {
        let mut notes = Vec::new();
        let conclusion = loop {
            if interrupt::requested() {
                return Err(BisectError::Interrupted(state.path().to_owned()));
            }
            let seen: Vec<Seen> = self.candidates.iter().map(|one| self.seen(one, state)).collect();
            let (index, recheck) = match next_step(self.find, &seen) {
                Step::Test(index) => (index, false),
                Step::Recheck(index) => (index, true),
                Step::Done(conclusion) => break conclusion,
            };
            let candidate = &self.candidates[index];
            let shown = self.attempt(candidate, source, state, watcher)?;
            let run = Run {
                candidate: candidate.label.clone(),
                identity: candidate.identity.clone(),
                recheck,
                shown,
            };
            if let Some(note) = state.push(run.clone())? {
                watcher.note(&note);
                notes.push(note);
            }
            let seen: Vec<Seen> = self.candidates.iter().map(|one| self.seen(one, state)).collect();
            let done = seen
                .iter()
                .map(|seen| usize::from(seen.first.is_some()) + usize::from(seen.again.is_some()))
                .sum();
            watcher.ran(&Ran { done, about: done + tests_left(self.find, &seen), run: &run });
        };
        state.finish()?;
        Ok(BisectReport::new(self, source, state, &conclusion, notes))
    }

    /// What is known of a candidate. Candidates with one identity share what was found.
    fn seen(&self, candidate: &Candidate, state: &State) -> Seen {
        let answer = |recheck| self.told(candidate, state, recheck).map(|(answer, _)| answer);
        let first = answer(false);
        Seen { first, again: first.and_then(|_| answer(true)) }
    }

    /// The answer of a candidate with the reason, once its runs tell.
    pub(super) fn told(
        &self,
        candidate: &Candidate,
        state: &State,
        recheck: bool,
    ) -> Option<(Answer, String)> {
        let runs: Vec<&Shown> = state.runs_of(&candidate.identity, recheck).collect();
        match tell(&runs, self.confirm) {
            Told::RunAgain => None,
            Told::Is(answer, reason) => Some((answer, reason)),
        }
    }

    /// Runs the case on a candidate once.
    fn attempt(
        &self,
        candidate: &Candidate,
        source: &dyn Source,
        state: &State,
        watcher: &mut dyn BisectWatcher,
    ) -> Result<Shown, BisectError> {
        let interrupted = || BisectError::Interrupted(state.path().to_owned());
        let passing = |reason: String| Ok(Shown::Unavailable { reason, lasting: false });
        watcher.preparing(candidate);
        let environment = match source.environment(candidate, watcher.environment()) {
            Ok(environment) => environment,
            Err(error) if error.is_interrupted() || interrupt::requested() => return Err(interrupted()),
            Err(Unavailable::Environment(error)) if error.is_usage() => {
                return Err(BisectError::Environment(error));
            }
            Err(Unavailable::Environment(error)) => return passing(with_causes(&error)),
            Err(Unavailable::Broken(reason)) => return Ok(Shown::Unavailable { reason, lasting: true }),
        };
        // All candidates run on the device of the first, or their answers could not be compared.
        let device = match state.device() {
            Some(Device::Cpu) => WantedDevice::Cpu,
            Some(Device::Cuda) => WantedDevice::Cuda,
            None => self.settings.device,
        };
        let settings = Settings { device, ..self.settings.clone() };
        let ran = settings.on(&environment).and_then(|options| {
            let cases = std::slice::from_ref(self.case);
            run_cells(cases, &candidate.label, &environment, &options, &mut *watcher.run())
        });
        match ran {
            Ok(mut cells) => cells.pop().map(|cell| Shown::Cell(Box::new(cell))).ok_or_else(interrupted),
            Err(_) if interrupt::requested() => Err(interrupted()),
            Err(error @ RunError::NoDevice { .. })
            | Err(error @ RunError::Worker(WorkerError::Start { .. } | WorkerError::Died { .. })) => {
                passing(with_causes(&error))
            }
            Err(error) => Err(BisectError::Run(error)),
        }
    }
}
