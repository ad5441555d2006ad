//! A run folder read back: what was run, where, and what it came to.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;
use torchleak_protocol::{ArmEvent, Device};

use super::conclude::{conclude, explain};
use super::control::{ARMS, ControlArms, ControlResults};
use super::folder::{EVENTS, LOG};
use super::{ArmOutcome, CaseOutcome, LostFiles, Outcome, native};
use crate::case::{Case, CaseError, Resolved, Verdict};
use crate::environment::{Device as Gpu, Facts};
use crate::measure::Recording;
use crate::verdict::{Judgement, Native};
use crate::worker::Ending;

/// A run, as its folder tells of it.
#[derive(Debug)]
pub struct Kept {
    pub case: Case,
    pub resolved: Resolved,
    pub environment: KeptEnvironment,
    /// Its folder is not named, because what was read may be a copy.
    pub outcome: CaseOutcome,
    /// The positive control's arm that does not collect.
    pub control: Recording,
}

/// `environment.json`.
#[derive(Debug, Clone, Deserialize)]
pub struct KeptEnvironment {
    /// The version of torchleak.
    pub torchleak: String,
    pub python_executable: PathBuf,
    #[serde(flatten)]
    pub facts: Facts,
    pub devices: Vec<Gpu>,
    pub overlay: Option<KeptOverlay>,
    pub environment_variables: Vec<String>,
}

/// What was laid over torch.
#[derive(Debug, Clone, Deserialize)]
pub struct KeptOverlay {
    pub commit: String,
    pub paths: Vec<String>,
}

/// What is needed of `verdict.json`; the numbers follow from the events.
#[derive(Deserialize)]
struct VerdictFile {
    verdict: Option<Verdict>,
    reason: String,
    expected: Option<Verdict>,
    seconds: f64,
    /// Absent in the folders of an older torchleak.
    #[serde(default)]
    native: Option<Native>,
}

/// Why a run folder cannot be read back.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    #[error("there is no `{file}` in it")]
    Missing { file: &'static str },
    #[error("line {line} of its `{file}` cannot be read: {problem}")]
    Torn { file: &'static str, line: usize, problem: String },
    #[error(transparent)]
    Case(#[from] CaseError),
    #[error("no arm of it began, so it holds no measurement")]
    NothingRan,
    #[error("it has no verdict, because the run was broken off")]
    NoVerdict,
    #[error("its verdict is `{kept}`, and by the rules of this torchleak its events give `{now}`")]
    Contradiction { kept: Verdict, now: Verdict },
}

impl KeptError {
    /// What the user can try.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Missing { .. } => {
                "name a folder that `torchleak run` made, whole: it is the one that `kept in` names"
            }
            Self::Torn { .. } | Self::NothingRan | Self::NoVerdict => {
                "run the case again, and name the folder of that run"
            }
            Self::Case(_) => "name a folder as `torchleak run` left it",
            Self::Contradiction { .. } => {
                "the folder was changed, or is of another version of torchleak: run the case again"
            }
        }
    }
}

impl Kept {
    /// Reads a run folder back. `text` gives the content of the file of that name in it.
    ///
    /// # Errors
    /// A file is missing or torn, or the run came to no verdict.
    pub fn read(text: impl Fn(&str) -> Option<String>) -> Result<Self, KeptError> {
        let file = |name: &'static str| text(name).ok_or(KeptError::Missing { file: name });
        let case = Case::kept("case.yaml", &file("case.yaml")?, &text)?;
        let environment: KeptEnvironment = document("environment.json", &file("environment.json")?)?;
        let events = events(EVENTS, &file(EVENTS)?)?;
        let verdict: VerdictFile = document("verdict.json", &file("verdict.json")?)?;
        let device = device(&events).ok_or(KeptError::NothingRan)?;
        let resolved = case.resolved(device);
        let names = resolved.arms.iter().map(ToString::to_string).chain(["garbage".to_owned()]);
        let native = events.iter().any(|event| event.arm == native::ARM).then(|| native::ARM.to_owned());
        let arms: Vec<ArmOutcome> =
            names.chain(native).map(|name| arm(name, resolved.ranks, &events)).collect();
        let control = control("control.jsonl", &text)?;
        let outcome = outcome(&resolved, arms, &control, verdict)?;
        let [control, ..] = control.recordings;
        Ok(Self { case, resolved, environment, outcome, control })
    }
}

/// A message of a rank of an arm, or none where the arm begins anew.
#[derive(Debug)]
struct Event {
    arm: String,
    rank: usize,
    message: Option<ArmEvent>,
}

fn events(file: &'static str, text: &str) -> Result<Vec<Event>, KeptError> {
    text.lines()
        .zip(1..)
        .map(|(line, number)| {
            event(line).map_err(|error| KeptError::Torn { file, line: number, problem: error.to_string() })
        })
        .collect()
}

fn event(line: &str) -> serde_json::Result<Event> {
    let value: Value = serde_json::from_str(line)?;
    let message = (value["event"] != "restarted").then(|| ArmEvent::deserialize(&value)).transpose()?;
    Ok(Event {
        arm: String::deserialize(&value["arm"])?,
        rank: Option::deserialize(&value["rank"])?.unwrap_or_default(),
        message,
    })
}

fn document<T: for<'de> Deserialize<'de>>(file: &'static str, text: &str) -> Result<T, KeptError> {
    serde_json::from_str(text).map_err(|error| KeptError::Torn {
        file,
        line: error.line(),
        problem: error.to_string(),
    })
}

/// Where the run trained.
fn device(events: &[Event]) -> Option<Device> {
    events.iter().find_map(|event| match &event.message {
        Some(ArmEvent::Began(facts)) if facts.device_name == "cpu" => Some(Device::Cpu),
        Some(ArmEvent::Began(_)) => Some(Device::Cuda),
        _ => None,
    })
}

/// An arm, from its last start on. How it ended is known only where each of its ranks could still say so.
fn arm(name: String, ranks: u32, events: &[Event]) -> ArmOutcome {
    let mut recordings = vec![Recording::default(); ranks as usize];
    let (mut ended, mut failure) = (0, None);
    for event in events.iter().filter(|event| event.arm == name) {
        match (&event.message, recordings.get_mut(event.rank)) {
            (None, _) => {
                recordings.fill(Recording::default());
                (ended, failure) = (0, None);
            }
            (Some(message), Some(recording)) => recording.push(message),
            // A rank that the case does not have says nothing of it.
            (Some(_), None) => continue,
        }
        match &event.message {
            Some(ArmEvent::Ended { .. }) => ended += 1,
            Some(ArmEvent::Failed(told)) => failure = Some(told.clone()),
            _ => {}
        }
    }
    let done = (ended == ranks).then_some(Ending::Done);
    let ending = failure.map(Ending::Failed).or(done);
    let mut recordings = recordings.into_iter();
    ArmOutcome {
        name,
        recording: recordings.next().unwrap_or_default(),
        peers: recordings.collect(),
        ending,
        start_note: None,
    }
}

fn control(file: &'static str, text: &impl Fn(&str) -> Option<String>) -> Result<ControlArms, KeptError> {
    let events = events(file, &text(file).ok_or(KeptError::Missing { file })?)?;
    let mut control = ControlArms::default();
    for (index, (name, _)) in ARMS.iter().enumerate() {
        let arm = arm((*name).to_owned(), 1, &events);
        control.recordings[index] = arm.recording;
        control.endings[index] = arm.ending;
    }
    Ok(control)
}

/// Judges the events once more, so that what is told of them is what they say. An arm that could not say
/// how it ended leaves nothing to judge, and then the verdict is that of the file.
fn outcome(
    resolved: &Resolved,
    arms: Vec<ArmOutcome>,
    control: &ControlArms,
    file: VerdictFile,
) -> Result<CaseOutcome, KeptError> {
    let kept = file.verdict.ok_or(KeptError::NoVerdict)?;
    let control = control.results(resolved.device).unwrap_or_else(ControlResults::missing);
    let (concluded, judged) = conclude(resolved, &arms, &control, LOG);
    let judgement = match concluded {
        Outcome::Judged(judgement) if judgement.verdict != kept => {
            return Err(KeptError::Contradiction { kept, now: judgement.verdict });
        }
        Outcome::Judged(judgement) => judgement,
        Outcome::Skipped { .. } | Outcome::Interrupted => {
            Judgement { verdict: kept, reason: file.reason, numbers: None }
        }
    };
    let outcome = Outcome::Judged(judgement);
    let native = native::conclude(resolved, &arms, LOG).filter(|native| native.agrees.is_some());
    let explained = explain(&arms, resolved.layers(), &outcome, judged);
    Ok(CaseOutcome {
        name: resolved.name.clone(),
        device: resolved.device,
        steps: resolved.steps,
        warmup: resolved.warmup,
        prediction: resolved.prediction.clone(),
        expected: file.expected,
        diagnosis: explained.diagnosis,
        retained: explained.retained,
        ranks: explained.ranks,
        native: native.or(file.native),
        arms,
        outcome,
        seconds: file.seconds,
        folder: None,
        lost: LostFiles::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDED: &str = r#"{"arm":"uncollected","event":"ended","steps":6}"#;

    #[test]
    fn what_an_arm_said_before_it_began_anew_does_not_count() {
        let restarted = r#"{"arm":"uncollected","event":"restarted"}"#;
        let ending = |lines: &[&str]| {
            arm("uncollected".to_owned(), 1, &events("e", &lines.join("\n")).unwrap()).ending
        };
        assert_eq!(ending(&[ENDED]), Some(Ending::Done));
        assert_eq!(ending(&[ENDED, restarted]), None);
        assert_eq!(ending(&[restarted, ENDED]), Some(Ending::Done));
    }

    #[test]
    fn an_arm_of_two_ranks_is_over_when_both_are() {
        let first = r#"{"arm":"uncollected","rank":0,"event":"ended","steps":6}"#;
        let second = first.replace(r#""rank":0"#, r#""rank":1"#);
        let read = |text: &str| arm("uncollected".to_owned(), 2, &events("e", text).unwrap());
        assert_eq!(read(first).ending, None);
        assert_eq!(read(&format!("{first}\n{second}")).ending, Some(Ending::Done));
        assert_eq!(read(first).peers.len(), 1);
    }

    #[test]
    fn a_line_that_cannot_be_read_is_named() {
        let error = events("events.jsonl", &format!("{ENDED}\n{{\"arm\":\"unc")).unwrap_err();
        assert!(matches!(error, KeptError::Torn { file: "events.jsonl", line: 2, .. }), "{error}");
        assert!(events("events.jsonl", r#"{"arm":"uncollected","event":"danced"}"#).is_err());
    }
}
