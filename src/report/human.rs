//! The table and the verdict of one case, for a person.

use std::collections::BTreeSet;
use std::fmt::Write;

use comfy_table::{Attribute, Cell, CellAlignment, Color, Table, presets};
use torchleak_protocol::Finding;

use crate::bytes::human;
use crate::case::{HeldBy, Verdict};
use crate::cycles::Diagnosis;
use crate::measure::Recording;
use crate::run::{CaseOutcome, Outcome, RankOutcome};
use crate::verdict::Numbers;

/// One case: a line per step, then the verdict with its numbers and the reason, and so many of the
/// findings that explain it.
pub fn case_text(outcome: &CaseOutcome, findings: usize, colour: bool) -> String {
    let mut text = format!("{}\n", outcome.name);
    if let Some(table) = steps_table(outcome) {
        text.push_str(&table);
    }
    let _ = writeln!(text, "{}", verdict_line(outcome, colour));
    if let Some(numbers) = outcome.numbers() {
        let _ = writeln!(text, "  {}", numbers_line(outcome, numbers));
    }
    for (rank, RankOutcome { judgement, .. }) in outcome.ranks.iter().enumerate() {
        let measured = judgement.numbers.as_ref().map(|numbers| format!(", {}", measured(numbers)));
        let _ = writeln!(text, "  rank {rank}: {}{}", judgement.verdict, measured.unwrap_or_default());
    }
    let _ = writeln!(text, "  {}", indented(outcome.reason()));
    if let Some(diagnosis) = &outcome.diagnosis {
        text.push_str(&findings_text(outcome, diagnosis, findings));
    }
    if let Some(retained) = &outcome.retained {
        for sentence in retained.sentences.iter().take(findings) {
            let _ = writeln!(text, "  why: {sentence}");
        }
    }
    if let Some(native) = &outcome.native {
        let _ = writeln!(text, "  native control: {}", indented(&native.reason));
    }
    for arm in &outcome.arms {
        if let Some(note) = &arm.start_note {
            let _ = writeln!(text, "  the {} arm was spawned instead of forked: {note}", arm.name);
        }
    }
    if let Some(folder) = &outcome.folder {
        let part = if outcome.lost.is_empty() { "" } else { "in part " };
        let _ = writeln!(text, "  kept {part}in {}", folder.display());
    }
    text
}

/// What a finding is to a verdict: cycles that keep no memory are in the garbage of what is fixed, too.
pub(super) fn finding_word(verdict: Option<Verdict>) -> &'static str {
    if verdict == Some(Verdict::Fixed) { "in garbage" } else { "why" }
}

/// So many findings of the case, and of each rank, equal ones once.
fn findings_text(outcome: &CaseOutcome, diagnosis: &Diagnosis, most: usize) -> String {
    let mut text = String::new();
    let mut told = BTreeSet::new();
    let of_ranks = outcome.ranks.iter().filter_map(|rank| rank.diagnosis.as_ref());
    let shown = std::iter::once(diagnosis).chain(of_ranks).flat_map(|each| each.findings().take(most));
    for (finding, explanation) in shown.filter(|(finding, _)| told.insert(&finding.signature)) {
        let (word, ranks) = (finding_word(outcome.verdict()), which_ranks(outcome, finding));
        let _ = writeln!(text, "  {word}{ranks}: {}", explanation.sentence);
        if let Some(repair) = &explanation.repair {
            let _ = writeln!(text, "  repair: {repair}");
        }
    }
    let all = diagnosis.report.findings.len() + diagnosis.report.findings_left_out as usize;
    if most > 0 && all > most {
        let _ = writeln!(text, "  {} more findings (--findings {all}, or cycles.html)", all - most);
    }
    text
}

/// The ranks that have a finding, where not all of them do.
fn which_ranks(outcome: &CaseOutcome, finding: &Finding) -> String {
    let has = |rank: &RankOutcome| {
        let mut findings = rank.diagnosis.iter().flat_map(Diagnosis::findings);
        findings.any(|(other, _)| other.signature == finding.signature)
    };
    let ranks = outcome.ranks.iter().enumerate().filter(|(_, rank)| has(rank));
    let found: Vec<String> = ranks.map(|(rank, _)| rank.to_string()).collect();
    if found.len() == outcome.ranks.len() { String::new() } else { format!(" (rank {})", found.join(", ")) }
}

fn indented(reason: &str) -> String {
    reason.replace('\n', "\n  ")
}

fn verdict_line(outcome: &CaseOutcome, colour: bool) -> String {
    let word = match &outcome.outcome {
        Outcome::Judged(judgement) => judgement.verdict.to_string(),
        Outcome::Skipped { .. } => "skipped".to_owned(),
        Outcome::Interrupted => "interrupted".to_owned(),
    };
    let styled = console::style(word).bold().force_styling(colour);
    let styled = match outcome.verdict() {
        Some(Verdict::Reproduced | Verdict::Uncollectable | Verdict::OneOff) => styled.yellow(),
        Some(Verdict::Fixed) => styled.green(),
        Some(Verdict::Inconclusive | Verdict::Error) => styled.red(),
        None => styled.dim(),
    };
    let expectation = match (&outcome.outcome, outcome.expected) {
        (Outcome::Skipped { .. }, _) => String::new(),
        (_, None) => " (the case expects nothing for this environment)".to_owned(),
        (_, Some(_)) if outcome.is_ok() => " (as expected)".to_owned(),
        (_, Some(expected)) => format!(" (expected: {expected})"),
    };
    format!("  {styled}{expectation}")
}

fn numbers_line(outcome: &CaseOutcome, numbers: &Numbers) -> String {
    let predicted = match numbers.predicted {
        Some(predicted) => format!("{} bytes predicted", predicted.total),
        None => "nothing predicted".to_owned(),
    };
    let terms = outcome.prediction.as_ref().map(|prediction| {
        let terms: Vec<String> = prediction
            .terms
            .iter()
            .map(|term| {
                let holder = if term.held_by == HeldBy::Cpp { ", held by C++" } else { "" };
                format!("{} x {:?} {} {}{holder}", term.count, term.shape, term.dtype, term.name)
            })
            .collect();
        format!(" ({})", terms.join(" + "))
    });
    format!("per step: {predicted}{}, {}", terms.unwrap_or_default(), measured(numbers))
}

fn measured(numbers: &Numbers) -> String {
    format!(
        "{} in garbage, {} growth, {} freed per collect",
        numbers.garbage.bytes,
        human(numbers.growth),
        human(numbers.freed),
    )
}

/// The steps side by side. None when no measured arm reported any.
fn steps_table(outcome: &CaseOutcome) -> Option<String> {
    let empty = Recording::default();
    let recording = |name| outcome.arm(name).map_or(&empty, |arm| &arm.recording);
    let (uncollected, collected) = (recording("uncollected"), recording("collected"));
    let diagnosis = recording("garbage");
    let native = outcome.arm("native").map(|arm| &arm.recording.steps);
    let steps = uncollected.steps.len().max(collected.steps.len());
    if steps == 0 {
        return None;
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let titles = ["", "step", "loss", "uncollected", "collected", "freed", "garbage"];
    let titles = titles.into_iter().chain(native.map(|_| "native"));
    table.set_header(titles.map(|title| Cell::new(title).add_attribute(Attribute::Dim)));
    for index in 0..steps {
        let (without, with) = (uncollected.steps.get(index), collected.steps.get(index));
        let step = without.or(with)?.step;
        // One for which there is no number says which.
        let loss = without.or(with).and_then(|record| {
            record.loss.map(|loss| format!("{loss:.5}")).or_else(|| record.loss_is.clone())
        });
        let after = with.and_then(|record| record.collected.as_ref());
        let freed = with.zip(after).and_then(|(record, collected)| {
            Some(judged(&record.memory)? as f64 - judged(&collected.memory)? as f64)
        });
        let garbage = diagnosis
            .garbage
            .get(index)
            .map(|record| record.census.values().map(|storages| storages.bytes).sum::<u64>().to_string());
        let warm = if step <= outcome.warmup { "warm-up" } else { "" };
        let cells = [
            warm.to_owned(),
            step.to_string(),
            loss.unwrap_or_default(),
            without.and_then(|record| judged(&record.memory)).map_or_else(missing, shown),
            after.and_then(|collected| judged(&collected.memory)).map_or_else(missing, shown),
            freed.map_or_else(missing, human),
            garbage.unwrap_or_else(missing),
        ];
        let alone = native.map(|steps| {
            steps.get(index).and_then(|record| judged(&record.memory)).map_or_else(missing, shown)
        });
        table.add_row(cells.into_iter().chain(alone).map(|text| {
            let cell = Cell::new(text);
            if step <= outcome.warmup { cell.fg(Color::DarkGrey) } else { cell }
        }));
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let lines = table.to_string();
    Some(lines.lines().fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "{}", line.trim_end());
        text
    }))
}

/// The counter that a person looks at: the device's where there is one.
fn judged(memory: &torchleak_protocol::Memory) -> Option<u64> {
    memory.device.as_ref().map(|device| device.allocated).or(memory.in_use)
}

fn shown(bytes: u64) -> String {
    human(bytes as f64)
}

fn missing() -> String {
    "-".to_owned()
}
