//! One summary of all processes.

use torchleak_protocol::{Boundary, Finding, WatchMode};

use super::judge::{RankVerdict, judge};
use super::numbers::RankNumbers;
use super::options::WatchOptions;
use super::process::Process;
use super::script::ScriptExit;
use super::tail::Unwatched;
use crate::bytes::human;
use crate::cycles::{Diagnosis, Explanation, Retained};
use crate::verdict::Verdict;

/// How far the growth of ranks may be apart that do the same.
const APART: f64 = 0.1;

/// What was seen of a script.
#[derive(Debug)]
pub struct Summary {
    pub verdict: Verdict,
    /// One sentence.
    pub reason: String,
    /// The processes that made steps, in the order of their ranks.
    pub ranks: Vec<RankSummary>,
    /// What all of them found, alike findings once, most bytes first.
    pub cycles: Vec<FoundCycle>,
    /// The diagnosis of the first rank that has one, for the files.
    pub diagnosis: Option<Diagnosis>,
    /// What holds tensors that no collect freed, where the verdict says that there are such.
    pub retained: Option<Retained>,
    /// What a person should know besides.
    pub remarks: Vec<String>,
}

/// One process that made steps.
#[derive(Debug)]
pub struct RankSummary {
    pub name: String,
    pub pid: u32,
    pub rank: u32,
    pub worker: Option<u32>,
    pub numbers: RankNumbers,
    pub verdict: RankVerdict,
}

/// A finding with its words and the ranks that have it.
#[derive(Debug)]
pub struct FoundCycle {
    /// Steps that left what the finding counts.
    pub over_steps: u32,
    pub finding: Finding,
    pub explanation: Explanation,
    pub ranks: Vec<u32>,
}

impl Summary {
    pub fn of(
        options: &WatchOptions,
        processes: &[Process],
        unwatched: Vec<Unwatched>,
        exit: ScriptExit,
    ) -> Self {
        let tolerance = options.tolerance as f64;
        let stepped: Vec<&Process> = processes
            .iter()
            .filter(|process| process.began.is_some() && !process.samples.is_empty())
            .filter(|process| !is_launcher(process, options, processes))
            .collect();
        let ranks: Vec<RankSummary> =
            stepped.iter().filter_map(|process| RankSummary::of(process, options, tolerance)).collect();
        let diagnoses: Vec<(u32, Diagnosis)> = stepped
            .iter()
            .filter_map(|process| Some((process.began.as_ref()?.rank, diagnosis(process)?)))
            .collect();
        let (verdict, reason) = match merged(&options.boundary, &ranks, processes, &unwatched) {
            (Verdict::Fixed, reason) => match unseen(&stepped, exit) {
                Some(what) => (Verdict::Inconclusive, format!("{what}; of what was seen, {reason}")),
                None => (Verdict::Fixed, reason),
            },
            other => other,
        };
        let uncollectable = verdict == Verdict::Uncollectable;
        Self {
            verdict,
            reason,
            cycles: shared(&diagnoses),
            retained: stepped.iter().filter(|_| uncollectable).find_map(|process| held(process)),
            remarks: remarks(options, &ranks, processes, &unwatched, exit),
            diagnosis: diagnoses.into_iter().next().map(|(_, diagnosis)| diagnosis),
            ranks,
        }
    }

    /// The largest growth of any rank, in bytes per step, with the name of the rank and what says it.
    pub fn growth(&self) -> Option<(f64, &str, &'static str)> {
        let known = self.ranks.iter().filter_map(|rank| {
            let (bytes, what) = rank.numbers.most_growth()?;
            Some((bytes, rank.name.as_str(), what))
        });
        known.max_by(|one, other| one.0.total_cmp(&other.0))
    }
}

/// What was not seen of a script that did not leak as far as it was seen.
fn unseen(stepped: &[&Process], exit: ScriptExit) -> Option<String> {
    let began = || stepped.iter().filter_map(|process| Some((process, process.began.as_ref()?)));
    if let Some((process, _)) =
        began().find(|(process, _)| exit == ScriptExit::Exited(0) && !process.is_whole())
    {
        let last = process.samples.last().map_or(0, |sample| sample.step);
        return Some(format!("watching {} ended at step {last}, before the script did", process.name()));
    }
    let world = began().map(|(_, began)| began.world_size).max()?;
    let missing: Vec<String> = (0..world)
        .filter(|rank| !began().any(|(_, began)| began.rank == *rank && began.worker.is_none()))
        .map(|rank| rank.to_string())
        .collect();
    (!missing.is_empty()).then(|| format!("of {world} ranks no step was seen of: {}", missing.join(", ")))
}

/// Whether a process only started others: measured by time, a launcher that imports torch makes steps too.
fn is_launcher(process: &Process, options: &WatchOptions, processes: &[Process]) -> bool {
    let pid = process.facts.as_ref().map(|facts| facts.pid);
    matches!(options.boundary, Boundary::Time { .. })
        && processes.iter().any(|other| other.facts.as_ref().map(|facts| facts.parent) == pid)
}

impl RankSummary {
    fn of(process: &Process, options: &WatchOptions, tolerance: f64) -> Option<Self> {
        let began = process.began.as_ref()?;
        let numbers = RankNumbers::of(process, options.warmup.max(1), tolerance);
        Some(Self {
            name: process.name(),
            pid: began.pid,
            rank: began.rank,
            worker: began.worker,
            verdict: judge(options.mode, &numbers, process.control.as_ref(), tolerance),
            numbers,
        })
    }

    fn leaks(&self) -> bool {
        matches!(self.verdict.verdict, Verdict::Reproduced | Verdict::Uncollectable)
    }
}

/// The verdict on the script: that of the first rank to leak, else the one that all ranks share.
fn merged(
    boundary: &Boundary,
    ranks: &[RankSummary],
    processes: &[Process],
    unwatched: &[Unwatched],
) -> (Verdict, String) {
    let Some(first) = ranks.first() else {
        return (Verdict::Inconclusive, nothing_seen(boundary, processes, unwatched));
    };
    if let [only] = ranks {
        return (only.verdict.verdict, only.verdict.reason.clone());
    }
    let leaking: Vec<&RankSummary> = ranks.iter().filter(|rank| rank.leaks()).collect();
    let earliest = |rank: &&&RankSummary| (rank.numbers.onset.unwrap_or(u32::MAX), rank.rank);
    if let Some(leak) = leaking.iter().min_by_key(earliest) {
        let others = match leaking.len() {
            1 => "it alone".to_owned(),
            all if all == ranks.len() => format!("like all {all} ranks"),
            some => format!("like {some} of {} ranks", ranks.len()),
        };
        let onset =
            leak.numbers.onset.map_or_else(String::new, |step| format!(", first seen at step {step}"));
        return (
            leak.verdict.verdict,
            format!("{} leaks, {others}{onset}: {}", leak.name, leak.verdict.reason),
        );
    }
    let differs = ranks.iter().find(|rank| rank.verdict.verdict != Verdict::Fixed);
    match differs {
        None => (Verdict::Fixed, format!("on all {} ranks {}", ranks.len(), first.verdict.reason)),
        Some(rank) => (rank.verdict.verdict, format!("{}: {}", rank.name, rank.verdict.reason)),
    }
}

fn nothing_seen(boundary: &Boundary, processes: &[Process], unwatched: &[Unwatched]) -> String {
    if !processes.is_empty() {
        return format!("torch was imported, but {}", no_step(boundary));
    }
    if !unwatched.is_empty() {
        return "no interpreter that can be watched imported torch".to_owned();
    }
    "no watched interpreter imported torch, so the script ran as if unwatched".to_owned()
}

/// Why there was no step, by what was to end one.
fn no_step(boundary: &Boundary) -> String {
    match boundary {
        Boundary::Optimizer { index: 0 } => {
            "no step of an optimizer was seen; --step names what else ends a step".to_owned()
        }
        Boundary::Optimizer { index } => format!("no optimizer {index} made a step, counted from 0"),
        Boundary::Every { steps } => format!("the first optimizer did not make {steps} steps"),
        Boundary::Call { module, function } => format!("`{module}:{function}` was never called"),
        Boundary::Time { seconds } => format!("it was over before the first {seconds} s were"),
    }
}

/// The findings of all ranks, alike ones once.
fn shared(diagnoses: &[(u32, Diagnosis)]) -> Vec<FoundCycle> {
    let mut found: Vec<FoundCycle> = Vec::new();
    for (rank, diagnosis) in diagnoses {
        for (finding, explanation) in diagnosis.findings() {
            match found.iter_mut().find(|known| known.finding.signature == finding.signature) {
                Some(known) if known.ranks.contains(rank) => {}
                Some(known) => known.ranks.push(*rank),
                None => found.push(FoundCycle {
                    over_steps: diagnosis.over_steps,
                    finding: finding.clone(),
                    explanation: explanation.clone(),
                    ranks: vec![*rank],
                }),
            }
        }
    }
    found.sort_by_key(|cycle| std::cmp::Reverse(cycle.finding.exclusive_bytes));
    found
}

/// The cycles of the look at garbage that shows most.
fn diagnosis(process: &Process) -> Option<Diagnosis> {
    let look = process.diagnosed.as_ref()?;
    let report = look.cycles.as_ref().filter(|report| report.tensors > 0)?;
    Some(Diagnosis::of(report, look.step, look.over_steps, None))
}

fn held(process: &Process) -> Option<Retained> {
    process.retained.as_ref()?.retained.as_ref().map(Retained::of)
}

fn remarks(
    options: &WatchOptions,
    ranks: &[RankSummary],
    processes: &[Process],
    unwatched: &[Unwatched],
    exit: ScriptExit,
) -> Vec<String> {
    let mut remarks = Vec::new();
    if exit != ScriptExit::Exited(0) {
        remarks.push(format!("{}; what was measured until then is reported", exit.sentence()));
    }
    for process in processes {
        if let Some(failure) = &process.failure {
            remarks.push(format!("{} was ended by {}", process.name(), failure.message));
        }
        if process.stopped {
            remarks.push(format!("{} was stopped after the steps that were asked for", process.name()));
        }
        let name = process.began.as_ref().map_or_else(String::new, |_| format!("{}: ", process.name()));
        remarks.extend(process.notes.iter().map(|note| format!("{name}{note}")));
    }
    remarks.extend(unequal(ranks, options.tolerance as f64));
    if let Some(first) = unwatched.first() {
        let more =
            if unwatched.len() > 1 { format!(" and {} more", unwatched.len() - 1) } else { String::new() };
        remarks.push(format!(
            "process {} (Python {}){more} ran unwatched: {}",
            first.pid, first.python, first.reason
        ));
    }
    if options.mode != WatchMode::Observe {
        let seconds: f64 = ranks.iter().map(|rank| rank.numbers.collecting_seconds).fold(0.0, f64::max);
        let steps = ranks.iter().map(|rank| rank.numbers.steps).max().unwrap_or(0);
        if steps > 0 {
            remarks.push(format!("collections and looks at garbage took {seconds:.2} s of {steps} steps"));
        }
    }
    remarks
}

/// Says so if ranks do not grow alike.
fn unequal(ranks: &[RankSummary], tolerance: f64) -> Option<String> {
    let mut growths: Vec<(f64, &str)> =
        ranks.iter().filter_map(|rank| Some((rank.numbers.growth?, rank.name.as_str()))).collect();
    growths.sort_by(|one, other| one.0.total_cmp(&other.0));
    let ((least, slow), (most, fast)) = (growths.first()?, growths.last()?);
    let is_apart = most - least > (APART * most.abs()).max(tolerance);
    is_apart.then(|| {
        format!(
            "ranks differ: growth per step goes from {} on {slow} to {} on {fast}",
            human(*least),
            human(*most)
        )
    })
}
