//! What a bisection found, with everything that speaks for and against it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use serde::Serialize;

use super::answer::Shown;
use super::bisect::Bisection;
use super::search::{Answer, Change, Conclusion, Find};
use super::state::State;
use super::{Candidate, Cell, Source, compare_url};
use crate::case::Verdict;
use crate::process::shown;
use crate::run::WantedDevice;

/// How many candidates a sentence names before it only counts them.
const NAMED: usize = 5;

/// The result of a bisection.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BisectReport {
    pub case: String,
    pub find: Find,
    /// The last candidate before the change.
    pub last_before: Option<String>,
    /// The first candidate after the change.
    pub first_after: Option<String>,
    /// Everything that was tested, in the order of history.
    pub tested: Vec<Tested>,
    /// How many candidates were not tested, because one change explains the others. What they would show is not known.
    pub untested: usize,
    /// What could not be told, with the reason.
    pub skipped: Vec<Skipped>,
    /// Whether `last_before` and `first_after` are neighbours and showed the same when they were run again.
    pub conclusive: bool,
    pub reason: String,
    /// What else a reader should know.
    pub notes: Vec<String>,
    /// Commands that show the two sides again.
    pub replay: Vec<String>,
    /// Where the commits between the two sides can be read.
    pub compare: Option<String>,
    /// The file that keeps all runs.
    pub state: PathBuf,
}

/// What one candidate showed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tested {
    pub candidate: String,
    pub answer: Answer,
    pub verdict: Option<Verdict>,
    pub reason: String,
    /// Bytes per step of the uncollected arm.
    #[serde(rename = "growth_bytes_per_step")]
    pub growth: Option<i64>,
    /// How often it was run, also to confirm it.
    pub runs: usize,
    /// Seconds for all its runs.
    pub seconds: f64,
    /// Whether all its runs are from before an interruption.
    pub cached: bool,
    pub torch: Option<String>,
    /// The commit of PyTorch.
    pub commit: Option<String>,
    pub python: Option<String>,
    pub device: Option<torchleak_protocol::Device>,
    pub run_dir: Option<PathBuf>,
}

/// What could not be told.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Skipped {
    pub candidate: String,
    pub reason: String,
}

impl BisectReport {
    pub(super) fn new(
        bisection: &Bisection<'_>,
        source: &dyn Source,
        state: &State,
        conclusion: &Conclusion,
        mut notes: Vec<String>,
    ) -> Self {
        let candidates = bisection.candidates;
        let tested: Vec<Tested> =
            candidates.iter().filter_map(|candidate| tested(bisection, candidate, state)).collect();
        let skipped = tested.iter().filter(|one| one.answer == Answer::Unknown);
        let skipped: Vec<Skipped> = skipped
            .map(|one| Skipped { candidate: one.candidate.clone(), reason: one.reason.clone() })
            .collect();
        let sides = match conclusion {
            Conclusion::Change(change) => Some((&candidates[change.before], &candidates[change.after])),
            _ => None,
        };
        notes.extend(changes_of_kind(&tested));
        notes.extend(several_pythons(&tested));
        Self {
            case: bisection.case.name().to_owned(),
            find: bisection.find,
            last_before: sides.map(|(before, _)| before.label.clone()),
            first_after: sides.map(|(_, after)| after.label.clone()),
            conclusive: matches!(conclusion, Conclusion::Change(change) if change.is_conclusive()),
            reason: reason(bisection, conclusion, &tested),
            replay: sides.map_or_else(Vec::new, |(before, after)| {
                [before, after].map(|side| replay(bisection, source, side)).to_vec()
            }),
            compare: sides.and_then(|(before, after)| compare(&tested, before, after)),
            untested: candidates.len() - tested.len(),
            tested,
            skipped,
            notes,
            state: state.path().to_owned(),
        }
    }

    /// Whether there was an environment for any candidate.
    pub fn had_an_environment(&self) -> bool {
        self.tested.iter().any(|one| one.torch.is_some())
    }

    fn on_side(&self, label: Option<&String>) -> Option<&Tested> {
        self.tested.iter().find(|one| Some(&one.candidate) == label)
    }

    /// The two sides of the change.
    pub fn sides(&self) -> Option<(&Tested, &Tested)> {
        self.on_side(self.last_before.as_ref()).zip(self.on_side(self.first_after.as_ref()))
    }
}

fn tested(bisection: &Bisection<'_>, candidate: &Candidate, state: &State) -> Option<Tested> {
    let (answer, reason) = bisection.told(candidate, state, false)?;
    let runs: Vec<&Shown> = state.runs_of(&candidate.identity, false).collect();
    let again: Vec<&Shown> = state.runs_of(&candidate.identity, true).collect();
    let all = || runs.iter().chain(&again).filter_map(|shown| shown.cell());
    // The run that the answer and the reason are of.
    let telling = runs.iter().rev().find(|shown| shown.answer() == answer).or(runs.last());
    let cell: Option<&Cell> = telling.and_then(|shown| shown.cell());
    Some(Tested {
        candidate: candidate.label.clone(),
        answer,
        verdict: cell.and_then(|cell| cell.verdict),
        reason,
        growth: cell.and_then(|cell| cell.growth),
        runs: all().count(),
        seconds: all().map(|cell| cell.seconds).sum(),
        cached: all().count() > 0 && all().all(|cell| cell.cached),
        torch: cell.map(|cell| cell.torch.clone()),
        commit: candidate.commit.clone().or_else(|| cell.and_then(|cell| cell.torch_commit.clone())),
        python: cell.map(|cell| cell.python.clone()),
        device: cell.map(|cell| cell.device),
        run_dir: cell.and_then(|cell| cell.run_dir.clone()),
    })
}

/// One sentence that says what was found, or why nothing was.
fn reason(bisection: &Bisection<'_>, conclusion: &Conclusion, tested: &[Tested]) -> String {
    let candidates = bisection.candidates;
    let label = |index: usize| candidates[index].label.as_str();
    let find = bisection.find;
    let (oldest, newest) = (0, candidates.len().saturating_sub(1));
    match conclusion {
        Conclusion::TooFew => "there are no two candidates to search between".to_owned(),
        Conclusion::EndUnknown(end) => {
            let which = if *end == oldest { "older" } else { "newer" };
            let why =
                tested.iter().find(|one| one.candidate == label(*end)).map_or("", |one| one.reason.as_str());
            format!("{}, the {which} end, cannot be told, so choose another end: {why}", label(*end))
        }
        Conclusion::EndsAlike(answer) => format!(
            "both ends, {} and {}, are {}: nothing to find, or the history is not monotone between them, \
             which `torchleak matrix` shows",
            label(oldest),
            label(newest),
            answer.word()
        ),
        Conclusion::EndsSwapped => format!(
            "{} is {} and {} is {}, the opposite of what was said: swap --good and --bad (with --resume, nothing is run \
             again)",
            label(oldest),
            find.after().word(),
            label(newest),
            find.before().word()
        ),
        Conclusion::Change(change) => change_sentence(find, change, label),
    }
}

fn change_sentence<'a>(find: Find, change: &Change, label: impl Fn(usize) -> &'a str) -> String {
    let (before, after) = (label(change.before), label(change.after));
    let (was, is) = (find.before().word(), find.after().word());
    let named = |all: &[usize]| {
        let names: Vec<&str> = all.iter().take(NAMED).map(|index| label(*index)).collect();
        match all.len().saturating_sub(NAMED) {
            0 => names.join(", "),
            more => format!("{} and {more} more", names.join(", ")),
        }
    };
    let mut text = if let Some((side, again)) = change.differed {
        let first = if side == change.before { was } else { is };
        format!(
            "{} was {first} and, when it was run again, {}: its runs differ, so let --confirm 3 decide; the change seems \
             to lie between {before} and {after}",
            label(side),
            again.word()
        )
    } else if change.untold.is_empty() {
        format!(
            "one change lies between {before}, which is {was}, and {after}, the next one, which is {is}; both showed the \
             same when they were run again"
        )
    } else {
        format!(
            "one change lies between {before}, which is {was}, and {after}, which is {is}; of those between them none \
             could be told: {}",
            named(&change.untold)
        )
    };
    if !change.contradicting.is_empty() {
        text.push_str(&format!(
            "; this is one change of several, because on its sides the opposite was seen: {}",
            named(&change.contradicting)
        ));
    }
    text
}

/// Leaks that change their kind, which is no repair and no new leak.
fn changes_of_kind(tested: &[Tested]) -> Vec<String> {
    let bad: Vec<&Tested> = tested.iter().filter(|one| one.answer == Answer::Bad).collect();
    let pairs =
        bad.windows(2).filter_map(|pair| Some((pair[0], pair[0].verdict?, pair[1], pair[1].verdict?)));
    pairs
        .filter(|(_, was, _, is)| was != is)
        .map(|(one, was, other, is)| {
            format!(
                "the leak changes its kind between {} ({was}) and {} ({is}); both count as bad",
                one.candidate, other.candidate
            )
        })
        .collect()
}

/// What a collector does depends on the Python, so verdicts of several are compared aloud.
fn several_pythons(tested: &[Tested]) -> Option<String> {
    let pythons: BTreeSet<&str> = tested.iter().filter_map(|one| one.python.as_deref()).collect();
    let pythons: Vec<&str> = pythons.into_iter().collect();
    (pythons.len() > 1).then(|| {
        format!(
            "the candidates ran on different Pythons ({}), which may matter more than torch",
            pythons.join(", ")
        )
    })
}

/// The command that runs the case on a candidate, as a person would type it.
fn replay(bisection: &Bisection<'_>, source: &dyn Source, candidate: &Candidate) -> String {
    let mut command = Command::new("torchleak");
    command.args(["run", bisection.case_argument]).args(source.replay(candidate));
    match bisection.settings.device {
        WantedDevice::Auto => {}
        WantedDevice::Cpu => {
            command.args(["--device", "cpu"]);
        }
        WantedDevice::Cuda => {
            command.args(["--device", "cuda"]);
        }
    }
    shown(&command)
}

fn compare(tested: &[Tested], before: &Candidate, after: &Candidate) -> Option<String> {
    let commit = |side: &Candidate| tested.iter().find(|one| one.candidate == side.label)?.commit.as_deref();
    let (one, other) = (commit(before)?, commit(after)?);
    (one != other).then(|| compare_url(one, other))
}
