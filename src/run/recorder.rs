//! Keeps what the arms report, on disk first, and concludes each case when its last arm is over.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use pep440_rs::Version;
use torchleak_protocol::{ArmEvent, Device, HostEvent, Start};

use super::conclude::{conclude, explain};
use super::control::{ARMS, ControlArms, ControlResults};
use super::folder::{EVENTS, LOG, RunFolder, event_line, restart_line};
use super::lost::LostFiles;
use super::native;
use super::outcome::{ArmOutcome, CaseOutcome, Outcome};
use super::plan::{Plan, PlannedCase};
use super::ranks::RankOutcome;
use super::watch::Watcher;
use crate::case::{Resolved, Verdict};
use crate::cycles::{Diagnosis, Retained};
use crate::environment::Environment;
use crate::measure::Recording;
use crate::verdict::{Judgement, Native};
use crate::worker::{Ending, Job, Observer};

/// The observer of a session.
pub struct Recorder<'a> {
    device: Device,
    control: ControlArms,
    /// What the control's arms reported, as lines of `control.jsonl`.
    control_lines: String,
    cases: Vec<Tracked>,
    /// Which arm of which case, or of the control, a number names.
    owners: BTreeMap<u64, Owner>,
    /// When the last case was decided.
    last: Instant,
    watcher: &'a mut dyn Watcher,
}

#[derive(Clone, Copy)]
enum Owner {
    Control { arm: usize },
    Case { case: usize, arm: usize },
}

/// A case on its way to an outcome.
struct Tracked {
    resolved: Resolved,
    expected: Option<Verdict>,
    folder: Option<RunFolder>,
    /// What of the folder could not be written.
    lost: LostFiles,
    arms: Vec<ArmOutcome>,
    diagnosis: Option<Diagnosis>,
    retained: Option<Retained>,
    native: Option<Native>,
    outcome: Option<Outcome>,
    /// Since the case before was decided.
    took: Duration,
    ranks: Vec<RankOutcome>,
    /// Whether the watcher knows the outcome, and whether it was told it in the order of the cases.
    decided: bool,
    told: bool,
}

impl<'a> Recorder<'a> {
    /// Takes the plan apart into the jobs for the session and the books for what they report.
    pub fn new(plan: Plan, environment: &Environment, watcher: &'a mut dyn Watcher) -> (Vec<Job>, Self) {
        let mut jobs = Vec::new();
        let mut owners = BTreeMap::new();
        let mut cases = Vec::new();
        for (case, planned) in plan.cases.into_iter().enumerate() {
            let (tracked, case_jobs) = Tracked::new(planned, environment);
            for (arm, job) in case_jobs.into_iter().enumerate() {
                owners.insert(job.spec.arm, Owner::Case { case, arm });
                jobs.push(job);
            }
            cases.push(tracked);
        }
        if !jobs.is_empty() {
            for (arm, job) in plan.control.iter().enumerate() {
                owners.insert(job.spec.arm, Owner::Control { arm });
            }
            jobs.splice(0..0, plan.control);
        }
        watcher.planned(jobs.len());
        let mut recorder = Self {
            device: plan.device,
            control: ControlArms::default(),
            control_lines: String::new(),
            cases,
            owners,
            last: Instant::now(),
            watcher,
        };
        recorder.tell_what_is_known();
        (jobs, recorder)
    }

    /// The outcomes, once the session is over.
    pub fn outcomes(self) -> Vec<CaseOutcome> {
        self.cases.into_iter().map(|case| case.snapshot()).collect()
    }

    /// Concludes what is over, and tells outcomes: at once, and in the order of the cases.
    fn tell_what_is_known(&mut self) {
        let control = self.control.results(self.device);
        for case in &mut self.cases {
            if case.outcome.is_none() {
                case.conclude(control.as_ref(), &self.control_lines, self.last.elapsed());
            }
            if case.outcome.is_some() && !case.decided {
                case.decided = true;
                self.last = Instant::now();
                self.watcher.decided(&case.snapshot());
            }
        }
        for case in &mut self.cases {
            if case.outcome.is_none() {
                return;
            }
            if !case.told {
                case.told = true;
                self.watcher.concluded(&case.snapshot());
            }
        }
    }
}

impl Tracked {
    fn new(planned: PlannedCase, environment: &Environment) -> (Self, Vec<Job>) {
        let PlannedCase { resolved, arms, no_native } = planned;
        let expected = expected(&resolved, environment);
        let mut tracked = Self {
            resolved,
            expected,
            folder: None,
            lost: LostFiles::default(),
            arms: Vec::new(),
            diagnosis: None,
            retained: None,
            native: no_native.map(|reason| Native::unknown(format!("not run: {reason}"))),
            outcome: None,
            took: Duration::ZERO,
            ranks: Vec::new(),
            decided: false,
            told: false,
        };
        let mut jobs = Vec::new();
        match arms {
            Err(outcome) => tracked.outcome = Some(outcome),
            Ok((folder, arms)) => {
                tracked.folder = Some(folder);
                for arm in arms {
                    tracked.arms.push(ArmOutcome {
                        name: arm.name,
                        recording: Recording::default(),
                        peers: vec![Recording::default(); tracked.resolved.ranks as usize - 1],
                        ending: None,
                        start_note: None,
                    });
                    jobs.push(arm.job);
                }
            }
        }
        (tracked, jobs)
    }

    fn folder_path(&self) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.path().to_owned())
    }

    /// Opens an arm's book, and a new one if it runs again.
    fn start(&mut self, arm: usize, reason: Option<&str>) {
        let outcome = &mut self.arms[arm];
        outcome.start_note = reason.map(str::to_owned);
        if outcome.recordings().all(|recording| recording.facts.is_none()) {
            // Nothing was recorded of an earlier run.
            return;
        }
        outcome.recording = Recording::default();
        outcome.peers.fill(Recording::default());
        if let Some(folder) = &mut self.folder
            && let Err(error) = folder.record_restart(&outcome.name)
        {
            // Without the note the events read as if the arm had not begun anew.
            self.lost.note(folder.path().join(EVENTS), &error);
        }
    }

    /// Sets the outcome if every arm is over. Without a result of the control a case waits, unless
    /// it was interrupted.
    fn conclude(&mut self, control: Option<&ControlResults>, control_lines: &str, took: Duration) {
        if self.arms.iter().any(|arm| arm.ending.is_none()) {
            return;
        }
        let missing = ControlResults::missing();
        let interrupted = self.arms.iter().any(|arm| arm.ending == Some(Ending::Interrupted));
        let control = match control {
            Some(control) => control,
            None if interrupted => &missing,
            None => return,
        };
        let log = self.folder_path().unwrap_or_default().join(LOG).display().to_string();
        let (outcome, judged) = conclude(&self.resolved, &self.arms, control, &log);
        self.native = self.native.take().or_else(|| native::conclude(&self.resolved, &self.arms, &log));
        self.explain(&outcome, judged);
        self.outcome = Some(outcome);
        self.took = took;
        if let Some(folder) = &self.folder {
            // The verdict is told whatever is lost.
            self.lost.extend(&folder.conclude(&self.snapshot(), control_lines));
        }
    }

    /// Explains what stays.
    fn explain(&mut self, outcome: &Outcome, judged: Vec<Judgement>) {
        let explained = explain(&self.arms, self.resolved.layers(), outcome, judged);
        (self.diagnosis, self.retained, self.ranks) =
            (explained.diagnosis, explained.retained, explained.ranks);
    }

    fn snapshot(&self) -> CaseOutcome {
        CaseOutcome {
            name: self.resolved.name.clone(),
            device: self.resolved.device,
            steps: self.resolved.steps,
            warmup: self.resolved.warmup,
            prediction: self.resolved.prediction.clone(),
            expected: self.expected,
            arms: self.arms.clone(),
            diagnosis: self.diagnosis.clone(),
            retained: self.retained.clone(),
            native: self.native.clone(),
            outcome: self.outcome.clone().unwrap_or(Outcome::Interrupted),
            seconds: self.took.as_secs_f64(),
            ranks: self.ranks.clone(),
            folder: self.folder_path(),
            lost: self.lost.clone(),
        }
    }
}

/// What the case expects in this environment; a version that is no PEP 440 version matches nothing.
fn expected(resolved: &Resolved, environment: &Environment) -> Option<Verdict> {
    let torch: Version = environment.facts.torch.parse().ok()?;
    let python: Version = environment.facts.python.parse().ok()?;
    resolved.expected(&torch, &python)
}

impl Observer for Recorder<'_> {
    fn started(&mut self, arm: u64, _start: Start, reason: Option<&str>) {
        match self.owners.get(&arm) {
            Some(Owner::Control { arm }) => {
                if self.control.recordings[*arm].facts.is_some() {
                    self.control_lines.push_str(&restart_line(ARMS[*arm].0));
                }
                self.control.recordings[*arm] = Recording::default();
                self.control.endings[*arm] = None;
            }
            Some(Owner::Case { case, arm }) => {
                self.cases[*case].start(*arm, reason);
            }
            None => {}
        }
    }

    fn event(&mut self, arm: u64, rank: u32, event: &ArmEvent) -> Result<(), String> {
        match self.owners.get(&arm) {
            Some(Owner::Control { arm }) => {
                let line = event_line(ARMS[*arm].0, None, event).map_err(|error| error.to_string())?;
                self.control_lines.push_str(&line);
                self.control.recordings[*arm].push(event);
            }
            Some(Owner::Case { case, arm }) => {
                let case = &mut self.cases[*case];
                let arm = &mut case.arms[*arm];
                if let Some(folder) = &mut case.folder {
                    let told = (case.resolved.ranks > 1).then_some(rank);
                    folder
                        .record(&arm.name, told, event)
                        .map_err(|error| format!("{}: {error}", folder.path().join(EVENTS).display()))?;
                }
                if let Some(recording) = arm.recording_mut(rank as usize) {
                    recording.push(event);
                }
                if rank == 0 {
                    // Ranks go in step, so one of them shows the progress of all.
                    self.watcher.event(&case.resolved.name, &arm.name, case.resolved.steps, event);
                }
            }
            None => {}
        }
        Ok(())
    }

    fn ended(&mut self, arm: u64, ending: Ending) {
        match self.owners.get(&arm) {
            Some(Owner::Control { arm }) => self.control.endings[*arm] = Some(ending),
            Some(Owner::Case { case, arm }) => {
                let case = &mut self.cases[*case];
                let arm = &mut case.arms[*arm];
                arm.ending = Some(ending);
                self.watcher.arm_ended(&case.resolved.name, arm);
            }
            None => {}
        }
        self.tell_what_is_known();
    }

    fn host(&mut self, event: &HostEvent) {
        self.watcher.host(event);
    }
}
