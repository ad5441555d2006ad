//! A watched script for people and programs: a line per step while it runs, a summary, a JSON document.

use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};
use torchleak_protocol::{Memory, WatchEvent, WatchStep};

use super::human::finding_word;
use crate::bytes::human;
use crate::say::say;
use crate::verdict::Verdict;
use crate::watch::{Follower, Process, ScriptExit, Summary};

const GIB: f64 = (1_u64 << 30) as f64;

/// Prints torchtitan's line for each step, with the fields that are known of somebody else's script.
#[derive(Debug, Default)]
pub struct WatchLines;

impl Follower for WatchLines {
    fn event(&mut self, process: &Process, event: &WatchEvent) {
        let prefix = prefix(process);
        match event {
            WatchEvent::Step(step) => {
                say(&format!("{prefix}{}", step_line(step, process)));
                if let Some(line) = collection_line(step) {
                    say(&format!("{prefix}{line}"));
                }
            }
            WatchEvent::Garbage(garbage) if garbage.cycles.is_some() => {
                let bytes: u64 = garbage.census.values().map(|storages| storages.bytes).sum();
                say(&format!("{prefix}Reference cycles keep {bytes} bytes of tensors"));
            }
            WatchEvent::Note { message } => say(&format!("{prefix}torchleak: {message}")),
            _ => {}
        }
    }
}

/// torchrun's own prefix where there is more than one rank.
fn prefix(process: &Process) -> String {
    match &process.began {
        Some(began) if began.worker.is_some() => format!("[{}]:", process.name()),
        Some(began) if began.world_size > 1 => format!("[rank{}]:", began.rank),
        _ => String::new(),
    }
}

fn step_line(step: &WatchStep, process: &Process) -> String {
    let mut line = format!("step: {:2}", step.step);
    if let Some(peak) = reserved(&step.memory) {
        let total = process.began.as_ref().and_then(|began| began.device_memory);
        let percent = total.map(|total| format!("({:.2}%)", 100.0 * peak as f64 / total as f64));
        let _ = write!(line, "  memory: {:5.2}GiB{}", peak as f64 / GIB, percent.unwrap_or_default());
    }
    line
}

/// Peak reserved memory as the script sees it; on a CPU, which reserves nothing, the resident set.
fn reserved(memory: &Memory) -> Option<u64> {
    memory.device.as_ref().map(|device| device.peak_reserved).or(memory.rss)
}

fn collection_line(step: &WatchStep) -> Option<String> {
    let collected = step.collected.as_ref()?;
    let freed = judged(&step.memory)
        .zip(judged(&collected.memory))
        .map(|(before, after)| format!(", {} bytes freed", before as i64 - after as i64));
    Some(format!(
        "[GC] Forced collection of generation {} took {:.2} seconds{}",
        collected.generation,
        collected.seconds,
        freed.unwrap_or_default()
    ))
}

fn judged(memory: &Memory) -> Option<u64> {
    memory.device.as_ref().map(|device| device.allocated).or(memory.in_use)
}

/// The summary, with so many of the findings.
pub fn watch_text(summary: &Summary, folder: &Path, findings: usize, colour: bool) -> String {
    let styled = console::style(summary.verdict).bold().force_styling(colour);
    let styled = match summary.verdict {
        Verdict::Reproduced | Verdict::Uncollectable | Verdict::OneOff => styled.yellow(),
        Verdict::Fixed => styled.green(),
        Verdict::Inconclusive | Verdict::Error => styled.red(),
    };
    let mut text = format!("torchleak: {styled}: {}\n", summary.reason);
    for rank in &summary.ranks {
        let numbers = &rank.numbers;
        let known = |value: Option<f64>| value.map_or_else(|| "unknown".to_owned(), human);
        let mut line = format!(
            "  {}: {} steps, {} growth per step, {} freed per collect",
            rank.name,
            numbers.steps,
            known(numbers.growth),
            known(numbers.freed_per_collect),
        );
        if summary.ranks.len() > 1 {
            let _ = write!(line, ", {}", rank.verdict.verdict);
        }
        let _ = writeln!(text, "{line}");
    }
    for cycle in summary.cycles.iter().take(findings) {
        let ranks = ranks(&cycle.ranks, summary);
        let _ = writeln!(
            text,
            "  {}: {}{ranks}",
            finding_word(Some(summary.verdict)),
            cycle.explanation.sentence
        );
        if let Some(repair) = &cycle.explanation.repair {
            let _ = writeln!(text, "  repair: {repair}");
        }
    }
    if findings > 0 && summary.cycles.len() > findings {
        let all = summary.cycles.len();
        let _ = writeln!(text, "  {} more findings (--findings {all}, or cycles.html)", all - findings);
    }
    if let Some(retained) = &summary.retained {
        for sentence in retained.sentences.iter().take(findings) {
            let _ = writeln!(text, "  why: {sentence}");
        }
    }
    for remark in &summary.remarks {
        let _ = writeln!(text, "  {remark}");
    }
    let _ = writeln!(text, "  kept in {}", folder.display());
    text
}

/// Which ranks have a finding, where there are several and not all have it.
fn ranks(ranks: &[u32], summary: &Summary) -> String {
    if summary.ranks.len() < 2 {
        return String::new();
    }
    if ranks.len() == summary.ranks.len() {
        return " (on every rank)".to_owned();
    }
    let names: Vec<String> = ranks.iter().map(u32::to_string).collect();
    format!(" (on rank {})", names.join(", "))
}

/// The document of `--format json`, which is also `verdict.json`.
pub fn watch_document(summary: &Summary, exit: ScriptExit, folder: &Path) -> Value {
    let ranks: Vec<Value> = summary
        .ranks
        .iter()
        .map(|rank| {
            let numbers = &rank.numbers;
            let whole = |value: Option<f64>| value.map(|value| value.round() as i64);
            json!({
                "rank": rank.rank,
                "worker": rank.worker,
                "pid": rank.pid,
                "steps": numbers.steps,
                "growth_bytes_per_step": whole(numbers.growth),
                "growth_collected_bytes_per_step": whole(numbers.growth_collected),
                "freed_bytes_per_collect": whole(numbers.freed_per_collect),
                "freed_bytes_per_step": whole(numbers.freed_per_step),
                "garbage_bytes_per_step": whole(numbers.garbage_bytes),
                "collections": numbers.collections,
                "other_collections": numbers.others,
                "first_growing_step": numbers.onset,
                "collecting_seconds": numbers.collecting_seconds,
                "watch_seconds": numbers.watch_seconds,
                "verdict": rank.verdict.verdict.word(),
                "reason": rank.verdict.reason,
            })
        })
        .collect();
    let cycles: Vec<Value> = summary
        .cycles
        .iter()
        .map(|cycle| {
            json!({
                "sentence": cycle.explanation.sentence,
                "repair": cycle.explanation.repair,
                "finding": cycle.finding,
                "over_steps": cycle.over_steps,
                "ranks": cycle.ranks,
            })
        })
        .collect();
    json!({
        "schema": 1,
        "verdict": summary.verdict.word(),
        "reason": summary.reason,
        "exit_code": exit.code(),
        "ranks": ranks,
        "cycles": cycles,
        "retained": summary.retained,
        "remarks": summary.remarks,
        "run_dir": folder,
    })
}
