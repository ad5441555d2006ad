//! What a bisection found: for a person, and as the JSON document.

use std::fmt::Write;

use comfy_table::{Attribute, Cell, CellAlignment, Table, presets};
use serde_json::{Value, json};

use crate::bytes::human;
use crate::versions::{Answer, BisectReport, Find, Ran, Tested};

/// How much of a reason fits beside others.
const SHORT: usize = 160;

/// The line that tells of one run while the bisection goes on.
pub fn bisect_line(ran: &Ran<'_>) -> String {
    let shown = &ran.run.shown;
    let again = if ran.run.recheck { " again" } else { "" };
    let seconds = shown.cell().map_or_else(String::new, |cell| format!(", {:.1} s", cell.seconds));
    let why = match shown.answer() {
        Answer::Unknown => format!(": {}", short(shown.reason())),
        _ => String::new(),
    };
    format!(
        "bisect: {} of about {}: {}{again} ... {} ({}){seconds}{why}",
        ran.done,
        ran.about,
        ran.run.candidate,
        shown.word(),
        shown.answer().word(),
    )
}

/// The document that `--format json` prints.
pub fn bisect_document(report: &BisectReport) -> Value {
    let mut document = json!({"schema": 1});
    // Of a struct with string keys serde makes an object, so neither of the two can be anything else.
    if let (Some(all), Ok(Value::Object(found))) = (document.as_object_mut(), serde_json::to_value(report)) {
        all.extend(found);
    }
    document
}

/// All of it for a person.
pub fn bisect_text(report: &BisectReport, colour: bool) -> String {
    let mut text = format!("{}: where it was {}\n", report.case, report.find.word());
    text.push_str(&table(&report.tested));
    let verdict = if report.conclusive { "conclusive" } else { "not conclusive" };
    let styled = console::style(verdict).bold().force_styling(colour);
    let styled = if report.conclusive { styled.green() } else { styled.red() };
    let _ = writeln!(text, "  {styled}: {}", report.reason.replace('\n', "\n  "));
    if let Some((before, after)) = report.sides() {
        let words = match report.find {
            Find::Introduced => ["last good", "first bad"],
            Find::Fixed => ["last bad", "first good"],
        };
        for (word, side) in words.iter().zip([before, after]) {
            let _ = writeln!(text, "  {word}: {}", one_side(side));
        }
    }
    for skipped in &report.skipped {
        let _ = writeln!(text, "  skipped {}: {}", skipped.candidate, short(&skipped.reason));
    }
    if report.sides().is_some() && report.untested > 0 {
        let _ = writeln!(
            text,
            "  note: {} of {} candidates were not tested; whether it changes back among them is not known",
            report.untested,
            report.untested + report.tested.len()
        );
    }
    for note in &report.notes {
        let _ = writeln!(text, "  note: {note}");
    }
    if let Some(link) = &report.compare {
        let _ = writeln!(text, "  commits: {link}");
    }
    if !report.replay.is_empty() {
        let _ = writeln!(text, "  to see both sides again:");
    }
    for command in &report.replay {
        let _ = writeln!(text, "    {command}");
    }
    let _ = writeln!(text, "  kept in {}", report.state.display());
    text
}

fn one_side(side: &Tested) -> String {
    let mut text = side.candidate.clone();
    if let Some(verdict) = side.verdict {
        let _ = write!(text, ", {verdict}");
    }
    if let Some(torch) = side.torch.as_ref().filter(|torch| **torch != side.candidate) {
        let _ = write!(text, ", torch {torch}");
    }
    if let Some(commit) = side.commit.as_ref().filter(|commit| **commit != side.candidate) {
        let _ = write!(text, " (commit {commit:.10})");
    }
    text
}

/// What was tested, in the order of history.
fn table(tested: &[Tested]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let titles = ["", "candidate", "answer", "verdict", "growth per step", "runs", "seconds"];
    table.set_header(titles.map(|title| Cell::new(title).add_attribute(Attribute::Dim)));
    for one in tested {
        let cells = [
            String::new(),
            one.candidate.clone(),
            one.answer.word().to_owned(),
            one.verdict.map_or("-", |verdict| verdict.word()).to_owned(),
            one.growth.map_or_else(|| "-".to_owned(), |growth| human(growth as f64)),
            one.runs.to_string(),
            format!("{:.1}", one.seconds),
        ];
        table.add_row(cells);
    }
    for column in table.column_iter_mut().skip(4) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string().lines().fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "{}", line.trim_end());
        text
    })
}

/// The first line of a reason, cut where it is long.
fn short(reason: &str) -> String {
    let line = reason.lines().next().unwrap_or_default();
    if line.chars().count() <= SHORT {
        return line.to_owned();
    }
    line.chars().take(SHORT).chain("...".chars()).collect()
}
