//! What a torchtitan log shows: for a person, and as the JSON document. Integers are bytes unless a name says otherwise.

use std::fmt::Write;

use comfy_table::{Attribute, Cell, CellAlignment, Table, presets};
use serde_json::{Value, json};

use crate::bytes::human;
use crate::titan::{Judged, JudgedPart, JudgedRank, Point, Rows, Trend, Word, label, plain, sentences};

/// Rows of a rank's table of evenly spaced lines. The tables of many ranks are short.
fn rows_of(ranks: usize) -> usize {
    match ranks {
        0..=4 => 12,
        5..=16 => 6,
        _ => 3,
    }
}

/// All of it for a person.
pub fn titan_log_text(judged: &Judged<'_>, name: &str, rows: Rows, notes: &[String], colour: bool) -> String {
    let mut text = format!("{}: {}\n", plain(name), summary(judged));
    // What is to be said of several ranks in the same words is said once, below them.
    let mut remarks: Vec<(String, Vec<String>)> = Vec::new();
    let said: Vec<Vec<String>> = judged.ranks.iter().map(|rank| sentences(rank, &judged.facts)).collect();
    for (rank, sentences) in judged.ranks.iter().zip(&said) {
        for sentence in sentences.iter().skip(1) {
            let name = label(rank.track.rank.as_ref());
            match remarks.iter_mut().find(|(known, _)| known == sentence) {
                Some((_, ranks)) => ranks.push(name),
                None => remarks.push((sentence.clone(), vec![name])),
            }
        }
    }
    for (rank, sentences) in judged.ranks.iter().zip(&said) {
        let _ = writeln!(text, "{}", label(rank.track.rank.as_ref()));
        text.push_str(&table(rank, rows, rows_of(judged.ranks.len())));
        for (index, sentence) in sentences.iter().enumerate() {
            let is_shared = remarks.iter().any(|(known, ranks)| known == sentence && ranks.len() > 1);
            if index == 0 || !is_shared {
                let _ = writeln!(text, "  {sentence}");
            }
        }
        text.push_str(&tallies(rank));
    }
    for (sentence, ranks) in remarks.iter().filter(|(_, ranks)| ranks.len() > 1) {
        let _ = writeln!(text, "{}: {sentence}", some_of(ranks));
    }
    for note in notes.iter().cloned().chain(own_notes(judged)) {
        let _ = writeln!(text, "note: {note}");
    }
    let styled = console::style(judged.word.word()).bold().force_styling(colour);
    let styled = match judged.word {
        Word::Grows => styled.yellow(),
        Word::Flat => styled.green(),
        Word::Inconclusive => styled.red(),
    };
    let _ = writeln!(text, "{styled}: {}", judged.reason());
    text
}

/// The line that tells of a running job.
pub fn titan_log_line(judged: &Judged<'_>) -> Option<String> {
    let worst = judged.worst()?;
    let last = worst.part()?.last;
    let of = last.percent.map_or_else(String::new, |percent| format!(" ({percent:.2} %)"));
    let left = worst.exhaustion.map_or_else(String::new, |exhaustion| {
        format!(", likely out of memory in {} steps at most", exhaustion.steps)
    });
    Some(format!("step {}: {}{of}: {}{left}", last.step, human(last.memory), judged.reason()))
}

/// The names of ranks, the first of many.
fn some_of(ranks: &[String]) -> String {
    let named = ranks.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
    if ranks.len() > 8 { format!("{named} and {} more", ranks.len() - 8) } else { named }
}

fn summary(judged: &Judged<'_>) -> String {
    let count =
        |number: u64, one: &str| if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") };
    let ranks = judged.ranks.iter().filter(|rank| rank.part().is_some()).count();
    format!(
        "{}, {} of {}",
        count(judged.log.lines, "line"),
        count(judged.step_lines(), "step line"),
        count(ranks as u64, "rank")
    )
}

/// What a reader must know of what was not taken.
fn own_notes(judged: &Judged<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    let unreadable: u64 = judged.log.tracks().iter().map(|track| track.unreadable).sum();
    if unreadable > 0 {
        notes.push(format!("{unreadable} step lines are torn or absurd and were left out"));
    }
    if judged.without_rank > 0 {
        notes.push(format!("{} step lines lost their rank and were left out", judged.without_rank));
    }
    if judged.log.ranks_left_out > 0 {
        notes.push(format!(
            "{} lines are of more ranks than are kept, and were left out",
            judged.log.ranks_left_out
        ));
    }
    notes
}

/// The step lines to show, each with the number of its part.
fn shown(rank: &JudgedRank<'_>, rows: Rows, most: usize) -> Vec<(u64, Point)> {
    if rows != Rows::Spaced {
        let mut all = rank.track.rows.clone();
        let last = rank.track.part.last().map(|last| (rank.track.part_number(), *last));
        all.extend(last.filter(|(part, last)| {
            all.last().is_none_or(|(row_part, row)| (row_part, row.step) != (part, last.step))
        }));
        return all;
    }
    let numbered = (rank.track.parts_left_out..).zip(rank.track.parts());
    let all: Vec<(u64, Point)> = numbered
        .flat_map(|(number, part)| part.points().into_iter().map(move |point| (number, point)))
        .collect();
    if all.len() <= most {
        return all;
    }
    (0..most).map(|row| all[row * (all.len() - 1) / (most - 1)]).collect()
}

fn table(rank: &JudgedRank<'_>, rows: Rows, most: usize) -> String {
    let points = shown(rank, rows, most);
    if points.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let titles = ["", "step", "memory", "of device", "change per step"];
    table.set_header(titles.map(|title| Cell::new(title).add_attribute(Attribute::Dim)));
    let mut before: Option<(u64, Point)> = None;
    for (part, point) in points {
        let same = before.filter(|(other, earlier)| *other == part && earlier.step < point.step);
        let change = same.map_or_else(
            || "-".to_owned(),
            |(_, earlier)| signed((point.memory - earlier.memory) / f64::from(point.step - earlier.step)),
        );
        let is_restart = before.is_some_and(|(other, _)| other != part);
        table.add_row([
            if is_restart { "restart".to_owned() } else { String::new() },
            point.step.to_string(),
            human(point.memory),
            point.percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent:.2} %")),
            change,
        ]);
        before = Some((part, point));
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string().lines().fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "{}", line.trim_end());
        text
    })
}

fn signed(bytes: f64) -> String {
    if bytes > 0.0 { format!("+{}", human(bytes)) } else { human(bytes) }
}

/// What collections said, counted.
fn tallies(rank: &JudgedRank<'_>) -> String {
    let track = rank.track;
    let mut text = String::new();
    for reason in &track.collections.reasons {
        let _ = writeln!(
            text,
            "  gc: {} x \"{}\", {:.2} s in all, {:.2} s the longest",
            reason.count, reason.reason, reason.seconds, reason.longest
        );
    }
    if let Some((low, high)) = track.freed.range {
        let _ = writeln!(
            text,
            "  freed: {} collects freed {} bytes in all, {low} to {high} each",
            track.freed.count(),
            track.freed.total
        );
    }
    if let Some(first) = track.cycles.paths.first() {
        let more = if track.cycles.count > 1 {
            format!(" and {} more", track.cycles.count - 1)
        } else {
            String::new()
        };
        let _ = writeln!(text, "  cycles: drawn by warn_tensor_cycles in {first}{more}");
    }
    if track.without_tensors > 0 {
        let _ = writeln!(text, "  {} collects found garbage without a CUDA tensor", track.without_tensors);
    }
    text
}

/// The document that `--format json` prints.
pub fn titan_log_document(judged: &Judged<'_>, name: &str, rows: Rows, notes: &[String]) -> Value {
    let notes: Vec<String> = notes.iter().cloned().chain(own_notes(judged)).collect();
    json!({
        "schema": 1,
        "file": name,
        "verdict": judged.word.word(),
        "reason": judged.reason(),
        "lines": judged.log.lines,
        "step_lines": judged.step_lines(),
        "unreadable_step_lines": judged.log.tracks().iter().map(|track| track.unreadable).sum::<u64>(),
        "model": {
            "layers": judged.facts.layers,
            "dim": judged.facts.dim,
            "local_batch_size": judged.facts.local_batch,
            "sequence_length": judged.facts.sequence_length,
            "total_steps": judged.facts.total_steps,
        },
        "notes": notes,
        "ranks": judged.ranks.iter().map(|rank| rank_document(rank, judged, rows)).collect::<Vec<_>>(),
    })
}

fn whole(bytes: f64) -> i64 {
    bytes.round() as i64
}

fn rank_document(rank: &JudgedRank<'_>, judged: &Judged<'_>, rows: Rows) -> Value {
    let track = rank.track;
    let part = rank.part();
    let mut all = sentences(rank, &judged.facts).into_iter();
    let exhaustion = rank.exhaustion.map(|exhaustion| {
        json!({
            "device_bytes": whole(exhaustion.capacity),
            "left_bytes": whole(exhaustion.left),
            "steps": exhaustion.steps,
            "seconds": exhaustion.seconds.map(|time| time.seconds),
            "seconds_are_by_tps": exhaustion.seconds.map(|time| time.by_tps),
            "after_the_end_of_the_run": exhaustion.after_the_end,
        })
    });
    json!({
        "rank": track.rank.as_ref().map(|rank| rank.number),
        "label": label(track.rank.as_ref()),
        "verdict": rank.word.word(),
        "reason": all.next(),
        "remarks": all.collect::<Vec<_>>(),
        "steps": track.step_lines,
        "growth_bytes_per_step": rank.growth().map(whole),
        "freed_bytes_per_collect": track.freed.typical(),
        "freed_bytes_per_step": rank.freed_per_step.map(whole),
        "freed": track.freed.range.map(|(low, high)| json!({
            "collects": track.freed.count(),
            "total": i64::try_from(track.freed.total).ok(),
            "smallest": low,
            "largest": high,
        })),
        "collects_without_tensors": track.without_tensors,
        "cycle_files": {"count": track.cycles.count, "first": track.cycles.paths},
        "gc": track.collections.reasons.iter().map(|reason| json!({
            "reason": reason.reason,
            "count": reason.count,
            "seconds": reason.seconds,
            "longest_seconds": reason.longest,
        })).collect::<Vec<_>>(),
        "allocation_retries": track.retries,
        "out_of_memory_after_step": track.out_of_memory.flatten(),
        "exhaustion": exhaustion,
        "judged_part": rank.judged.map(|index| track.parts_left_out + index as u64),
        "parts": (track.parts_left_out..).zip(&rank.parts).map(part_document).collect::<Vec<_>>(),
        "highest_bytes": part.map(|part| whole(part.highest)),
        "table": shown(rank, rows, rows_of(1)).iter().map(|(part, point)| json!({
            "part": part,
            "step": point.step,
            "memory_bytes": whole(point.memory),
            "percent": point.percent,
        })).collect::<Vec<_>>(),
    })
}

fn part_document((number, part): (u64, &JudgedPart)) -> Value {
    let (trend, since) = match part.trend {
        Trend::Grows { since, .. } => ("grows", Some(since)),
        Trend::Levelled { since, .. } => ("levelled off", Some(since)),
        Trend::Flat { .. } => ("flat", None),
        Trend::TooFew { .. } => ("too few lines", None),
    };
    json!({
        "part": number,
        "first_step": part.first.step,
        "last_step": part.last.step,
        "lines": part.lines,
        "trend": trend,
        "since_step": since,
        "growth_bytes_per_step": part.growth().map(whole),
        "fit": part.fit.map(|fit| json!({
            "from_step": fit.from,
            "to_step": fit.to,
            "lines": fit.lines,
            "evenly_spaced_of_more": fit.thinned,
        })),
        "seconds_per_step": part.seconds_per_step,
    })
}
