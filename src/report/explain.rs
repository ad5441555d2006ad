//! What an ablation found: for a person, as Markdown and as the JSON document.

use std::fmt::Write;

use comfy_table::{Cell, CellAlignment, Table, TableStyle, presets};
use serde_json::{Value, json};

use crate::case::Verdict;
use crate::environment::Environment;
use crate::explain::{Effect, Explanation, Law, Row, Shown, law_words, sentence};

/// The document that `--format json` prints. Integers are bytes, `seconds` those of the whole command.
pub fn explain_document(explanation: &Explanation, environment: &Environment) -> Value {
    let facts = &environment.facts;
    json!({
        "schema": 1,
        "case": explanation.base.name,
        "torch": facts.torch,
        "python": facts.python,
        "verdict": explanation.base.verdict(),
        "reason": explanation.base.reason(),
        "retained_bytes_per_step": explanation.own.as_ref().and_then(|own| own.retained),
        "conditions": conditions(explanation),
        "laws": explanation.laws.iter().map(law).collect::<Vec<_>>(),
        "minimal": explanation.minimal.as_ref().map(|minimal| json!({
            "path": minimal.path,
            "yaml": minimal.yaml,
            "verdict": minimal.verdict,
            "reason": minimal.reason,
            "retained_bytes_per_step": minimal.retained,
            "leaks": minimal.leaks,
        })),
        "sentence": sentence(explanation, &facts.torch),
        "interrupted": explanation.interrupted,
        "run_dir": explanation.folder,
        "seconds": (explanation.took.as_secs_f64() * 10.0).round() / 10.0,
    })
}

/// The values of each condition, that of the case itself first.
fn conditions(explanation: &Explanation) -> Vec<Value> {
    let Some(own) = &explanation.own else { return Vec::new() };
    let groups = explanation.rows.chunk_by(|one, next| one.condition == next.condition);
    groups
        .flat_map(|rows| {
            let base = rows.iter().take(1).map(|row| condition(row.condition, &row.base, true, own));
            base.chain(rows.iter().map(|row| condition(row.condition, &row.value, false, &row.shown)))
        })
        .collect()
}

fn condition(name: &str, value: &str, is_base: bool, shown: &Shown) -> Value {
    json!({
        "condition": name,
        "value": value,
        "is_base": is_base,
        "verdict": shown.verdict,
        "reason": shown.reason,
        "retained_bytes_per_step": shown.retained,
        "predicted_bytes_per_step": shown.predicted,
        "effect": shown.effect,
    })
}

fn law(law: &Law) -> Value {
    let whole = |bytes: f64| bytes.round() as i64;
    json!({
        "quantity": law.quantity,
        "fitted_bytes_per_unit": whole(law.fitted.per_unit),
        "fitted_fixed_bytes": whole(law.fitted.fixed),
        "predicted_bytes_per_unit": law.predicted.map(|line| whole(line.per_unit)),
        "predicted_fixed_bytes": law.predicted.map(|line| whole(line.fixed)),
        "residual_bytes": whole(law.residual),
        "is_linear": law.is_linear(),
        "points": law.points.iter().map(|(amount, bytes)| json!([amount, whole(*bytes)])).collect::<Vec<_>>(),
    })
}

/// All of it for a person.
pub fn explain_text(explanation: &Explanation, torch: &str, width: u16) -> String {
    let mut text = format!("{}\n", explanation.base.name);
    if !explanation.rows.is_empty() {
        let mut table = table(explanation, presets::NOTHING);
        table.set_width(width);
        for line in table.to_string().lines() {
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    for remark in remarks(explanation) {
        let _ = writeln!(text, "  {}", remark.replace('\n', "\n    "));
    }
    for law in &explanation.laws {
        let _ = writeln!(text, "  scales {}", law_words(law));
    }
    let _ = writeln!(text, "\n{}", sentence(explanation, torch));
    if let Some(minimal) = &explanation.minimal {
        let _ = writeln!(text, "\nminimal case, {}: {}", minimal_words(explanation), minimal.path.display());
        for line in minimal.yaml.lines() {
            let _ = writeln!(text, "    {line}");
        }
    }
    let _ = writeln!(text, "\n{}", last_line(explanation));
    text
}

/// The same for an issue.
pub fn explain_markdown(explanation: &Explanation, torch: &str) -> String {
    let mut text = format!("{}\n", sentence(explanation, torch));
    if !explanation.rows.is_empty() {
        let _ = writeln!(text, "\n{}\n", table(explanation, presets::ASCII_MARKDOWN));
    }
    for told in remarks(explanation)
        .into_iter()
        .chain(explanation.laws.iter().map(|law| format!("scales {}", law_words(law))))
    {
        let _ = writeln!(text, "- {}", told.replace('\n', " "));
    }
    if let Some(minimal) = &explanation.minimal {
        let _ = writeln!(
            text,
            "\nThe minimal case, {}:\n\n```yaml\n{}```",
            minimal_words(explanation),
            minimal.yaml
        );
    }
    text
}

fn table(explanation: &Explanation, style: TableStyle) -> Table {
    let mut table = Table::new();
    table.load_style(style);
    table.force_no_tty();
    table.set_header(["condition", "case", "switched to", "verdict", "retained/step", "predicted", "effect"]);
    for row in &explanation.rows {
        table.add_row(cells(row).map(Cell::new));
    }
    for column in [4, 5] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn cells(row: &Row) -> [String; 7] {
    let bytes = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
    [
        row.condition.to_owned(),
        row.base.clone(),
        row.value.clone(),
        row.shown.verdict.map_or("-", Verdict::word).to_owned(),
        bytes(row.shown.retained),
        bytes(row.shown.predicted),
        row.shown.effect.word().to_owned(),
    ]
}

/// Why there is no verdict, where there should be one.
fn remarks(explanation: &Explanation) -> Vec<String> {
    let unknown = explanation.rows.iter().filter(|row| row.shown.effect == Effect::Unknown);
    unknown.map(|row| format!("{} = {}: {}", row.condition, row.value, row.shown.reason)).collect()
}

fn minimal_words(explanation: &Explanation) -> String {
    let Some(minimal) = &explanation.minimal else { return String::new() };
    let verdict = minimal.verdict.map_or("without a verdict", Verdict::word);
    match minimal.retained.filter(|_| minimal.leaks) {
        Some(bytes) => format!("run from its file: {verdict}, {bytes} bytes per step"),
        None => {
            format!("run from its file: {verdict}, which is not the leak of the case: {}", minimal.reason)
        }
    }
}

fn last_line(explanation: &Explanation) -> String {
    let interrupted = if explanation.interrupted { "interrupted after" } else { "took" };
    format!("{interrupted} {:.0} s, kept in {}", explanation.took.as_secs_f64(), explanation.folder.display(),)
}
