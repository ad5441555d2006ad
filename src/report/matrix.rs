//! A matrix of cases and versions: for a person, and as JSON, Markdown and CSV.

use std::fmt::Write;

use comfy_table::{Cell as TableCell, CellAlignment, Color, Table, presets};
use serde_json::{Value, json};

use crate::case::Verdict;
use crate::versions::{Cell, Transition, minor, transitions};

/// The cells in rows and columns.
#[derive(Debug)]
pub struct MatrixReport {
    /// The cases, in the order in which they were asked for.
    cases: Vec<String>,
    /// The versions with their Pythons' `X.Y`, in the order in which they were asked for.
    columns: Vec<(String, String)>,
    cells: Vec<Cell>,
}

impl MatrixReport {
    /// Takes what a matrix found. Rows and columns are in the order in which the cells come.
    pub fn new(cells: Vec<Cell>) -> Self {
        let (mut cases, mut columns) = (Vec::new(), Vec::new());
        for cell in &cells {
            if !cases.contains(&cell.case) {
                cases.push(cell.case.clone());
            }
            let column = (cell.label.clone(), minor(&cell.python).to_owned());
            if !columns.contains(&column) {
                columns.push(column);
            }
        }
        Self { cases, columns, cells }
    }

    /// The cells, as they were found.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    fn cell(&self, case: &str, column: &(String, String)) -> Option<&Cell> {
        self.cells
            .iter()
            .find(|cell| cell.case == case && cell.label == column.0 && minor(&cell.python) == column.1)
    }

    /// Where verdicts change, case by case and Python by Python.
    pub fn transitions(&self) -> Vec<Transition> {
        let mut pythons: Vec<&String> = self.columns.iter().map(|(_, python)| python).collect();
        pythons.dedup();
        let mut found = Vec::new();
        for case in &self.cases {
            for python in &pythons {
                let row = self.columns.iter().filter(|(_, of)| of == *python);
                found.extend(transitions(row.filter_map(|column| self.cell(case, column))));
            }
        }
        found
    }

    /// Whether there are several Pythons, so that a version alone does not name a column.
    fn has_pythons(&self) -> bool {
        self.columns.iter().any(|(_, python)| *python != self.columns[0].1)
    }

    fn heading(&self, (label, python): &(String, String), separator: &str) -> String {
        if self.has_pythons() { format!("{label}{separator}py{python}") } else { label.clone() }
    }

    fn sentence(&self, transition: &Transition) -> String {
        let python =
            if self.has_pythons() { format!(", Python {}", transition.python) } else { String::new() };
        format!("{}: {}{python}", transition.case, transition.sentence())
    }

    /// What a reader must know of single cells: those that are not as expected, and those without a verdict.
    fn remarks(&self) -> Vec<String> {
        let told = self.cells.iter().filter(|cell| !cell.ok || cell.verdict.is_none());
        let mut remarks: Vec<(String, Vec<&str>)> = Vec::new();
        for cell in told {
            let what = match (cell.verdict, cell.expected) {
                (Some(verdict), Some(expected)) if verdict != expected => {
                    format!("{verdict}, expected {expected}: ")
                }
                (Some(verdict), _) => format!("{verdict}: "),
                (None, _) => String::new(),
            };
            let version = self.heading(&(cell.label.clone(), minor(&cell.python).to_owned()), ", ");
            let remark = format!("{version}: {what}{}", cell.reason);
            // A version that cannot be had says so once and not for each case.
            match remarks.iter_mut().find(|(known, _)| *known == remark) {
                Some((_, cases)) => cases.push(&cell.case),
                None => remarks.push((remark, vec![&cell.case])),
            }
        }
        let all = self.cases.len();
        let named = |cases: &[&str]| match cases {
            cases if cases.len() == all && all > 1 => "all cases".to_owned(),
            cases => cases.join(", "),
        };
        remarks.into_iter().map(|(remark, cases)| format!("{}, {remark}", named(&cases))).collect()
    }
}

/// The word for a cell, with `!` where it is not as expected and `*` where it is from an earlier run.
fn word(cell: Option<&Cell>) -> String {
    let Some(cell) = cell else { return "not run".to_owned() };
    let word = cell.verdict.map_or("-", Verdict::word);
    let surprise = if cell.ok { "" } else { "!" };
    let cached = if cell.cached { "*" } else { "" };
    format!("{word}{surprise}{cached}")
}

fn colour(cell: Option<&Cell>) -> Option<Color> {
    let cell = cell?;
    Some(match cell.verdict {
        _ if !cell.ok => Color::Magenta,
        Some(Verdict::Fixed) => Color::Green,
        Some(Verdict::Reproduced | Verdict::Uncollectable) => Color::Red,
        Some(Verdict::OneOff | Verdict::Inconclusive | Verdict::Error) => Color::Yellow,
        None => Color::DarkGrey,
    })
}

/// The table, what changes between which versions, and what is to be known of single cells.
pub fn matrix_text(report: &MatrixReport, is_coloured: bool, width: u16) -> String {
    let mut text = String::new();
    // A table that is wider than the terminal is told in parts, because a broken word is hard to read.
    for (number, columns) in parts(report, usize::from(width)).into_iter().enumerate() {
        if number > 0 {
            text.push('\n');
        }
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        let mut header = vec![String::new()];
        header.extend(columns.iter().map(|column| report.heading(column, "\n")));
        table.set_header(header);
        for case in &report.cases {
            let mut row = vec![TableCell::new(case)];
            row.extend(columns.iter().map(|column| {
                let cell = report.cell(case, column);
                let shown = TableCell::new(word(cell)).set_alignment(CellAlignment::Left);
                match colour(cell).filter(|_| is_coloured) {
                    Some(colour) => shown.fg(colour),
                    None => shown,
                }
            }));
            table.add_row(row);
        }
        if is_coloured {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        for line in table.to_string().lines() {
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    let changes = report.transitions().iter().map(|one| report.sentence(one) + "\n").collect::<String>();
    let remarks = report.remarks().iter().map(|one| one.replace('\n', "\n  ") + "\n").collect::<String>();
    for paragraph in [changes, remarks, legend(report)].iter().filter(|paragraph| !paragraph.is_empty()) {
        let _ = write!(text, "\n{paragraph}");
    }
    text
}

/// The columns in groups that fit the width beside the names of the cases.
fn parts(report: &MatrixReport, width: usize) -> Vec<&[(String, String)]> {
    // On both sides of what is in a column.
    const PADDING: usize = 2;
    let wide = |column: &(String, String)| {
        let heading = report.heading(column, "\n");
        let words = report.cases.iter().map(|case| word(report.cell(case, column)).len());
        heading.lines().map(str::len).chain(words).max().unwrap_or(0) + PADDING
    };
    let names = report.cases.iter().map(String::len).max().unwrap_or(0) + PADDING;
    let (mut parts, mut begin, mut taken) = (Vec::new(), 0, names);
    for (place, column) in report.columns.iter().enumerate() {
        // A column that fits nowhere is a part of its own.
        if place > begin && taken + wide(column) > width {
            parts.push(&report.columns[begin..place]);
            (begin, taken) = (place, names);
        }
        taken += wide(column);
    }
    parts.push(&report.columns[begin..]);
    parts.retain(|part| !part.is_empty());
    parts
}

fn legend(report: &MatrixReport) -> String {
    let mut legend = String::new();
    if report.cells.iter().any(|cell| !cell.ok) {
        legend.push_str("! not as expected\n");
    }
    if report.cells.iter().any(|cell| cell.cached) {
        legend.push_str("* from the cache of an earlier run (--fresh runs it again)\n");
    }
    legend
}

/// A Markdown table with the changes below it.
pub fn matrix_markdown(report: &MatrixReport) -> String {
    let cell_text = |text: &str| text.replace('|', "\\|").replace('\n', " ");
    let mut text = String::from("| case |");
    for column in &report.columns {
        let _ = write!(text, " {} |", cell_text(&report.heading(column, ", ")));
    }
    let _ = writeln!(text, "\n|---|{}", "---|".repeat(report.columns.len()));
    for case in &report.cases {
        let _ = write!(text, "| {} |", cell_text(case));
        for column in &report.columns {
            let _ = write!(text, " {} |", word(report.cell(case, column)).replace('*', "\\*"));
        }
        text.push('\n');
    }
    let remarks = report.remarks();
    let transitions = report.transitions();
    let told = transitions.iter().map(|transition| report.sentence(transition)).chain(remarks);
    let lines: Vec<String> = told.map(|line| format!("- {}\n", line.replace('\n', " "))).collect();
    if !lines.is_empty() {
        let _ = write!(text, "\n{}", lines.concat());
    }
    let legend = legend(report).replace('*', "\\*").replace('\n', "  \n");
    if !legend.is_empty() {
        let _ = write!(text, "\n{legend}");
    }
    text
}

/// A line per cell.
///
/// # Errors
/// A cell cannot be written as a line, which would be a mistake of torchleak's.
pub fn matrix_csv(report: &MatrixReport) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record([
        "case",
        "torch",
        "build",
        "commit",
        "python",
        "device",
        "verdict",
        "expected",
        "ok",
        "cached",
        "seconds",
        "growth_bytes_per_step",
        "reason",
    ])?;
    for cell in &report.cells {
        let device = serde_json::to_value(cell.device).ok();
        writer.write_record([
            cell.case.as_str(),
            &cell.label,
            &cell.torch,
            cell.torch_commit.as_deref().unwrap_or_default(),
            &cell.python,
            device.as_ref().and_then(Value::as_str).unwrap_or_default(),
            cell.verdict.map_or("", Verdict::word),
            cell.expected.map_or("", Verdict::word),
            &cell.ok.to_string(),
            &cell.cached.to_string(),
            &format!("{:.2}", cell.seconds),
            &cell.growth.map(|growth| format!("{growth:.0}")).unwrap_or_default(),
            &cell.reason,
        ])?;
    }
    let bytes = writer.into_inner().map_err(|error| error.into_error())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The document that `--format json` prints.
pub fn matrix_document(report: &MatrixReport) -> Value {
    let cells = report.cells.iter().map(|cell| {
        json!({
            "case": cell.case,
            "torch": cell.label,
            "build": cell.torch,
            "commit": cell.torch_commit,
            "python": cell.python,
            "device": cell.device,
            "verdict": cell.verdict,
            "reason": cell.reason,
            "expected": cell.expected,
            "ok": cell.ok,
            "cached": cell.cached,
            "seconds": cell.seconds,
            "growth_bytes_per_step": cell.growth.map(|growth| growth.round() as i64),
            "run_dir": cell.run_dir,
        })
    });
    json!({
        "schema": 1,
        "cells": cells.collect::<Vec<_>>(),
        "transitions": report.transitions(),
    })
}
