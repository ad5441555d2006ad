//! A matrix of cases and versions: for a person, and as JSON, Markdown and CSV.

use std::fmt::Write;

use comfy_table::{Cell as TableCell, CellAlignment, Color, Table, presets};
use serde_json::{Value, json};

use torchleak_protocol::Device;

use super::markdown::escaped;
use crate::case::Verdict;
use crate::versions::{Cell, Share, Transition, minor, transitions};

/// The cells in rows and columns.
#[derive(Debug)]
pub struct MatrixReport {
    /// The cases, in the order in which they were asked for.
    cases: Vec<String>,
    /// In the order in which they were asked for.
    columns: Vec<Column>,
    cells: Vec<Cell>,
    /// Which part of a larger matrix this is, where that is known.
    share: Option<Share>,
    /// What keeps it from being whole.
    notes: Vec<String>,
}

/// What all cells of a column have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    label: String,
    /// The Python's `X.Y`.
    python: String,
    device: Device,
}

impl Column {
    fn of(cell: &Cell) -> Self {
        Self { label: cell.label.clone(), python: minor(&cell.python).to_owned(), device: cell.device }
    }
}

impl MatrixReport {
    /// Takes what a matrix found. Rows and columns are in the order in which the cells come.
    pub fn new(cells: Vec<Cell>) -> Self {
        let (mut cases, mut columns) = (Vec::new(), Vec::new());
        for cell in &cells {
            if !cases.contains(&cell.case) {
                cases.push(cell.case.clone());
            }
            let column = Column::of(cell);
            if !columns.contains(&column) {
                columns.push(column);
            }
        }
        Self { cases, columns, cells, share: None, notes: Vec::new() }
    }

    /// The same, as a part of a larger matrix.
    pub fn with_share(self, share: Share) -> Self {
        Self { share: Some(share), ..self }
    }

    /// The same with what keeps it from being whole.
    pub fn with_notes(self, notes: Vec<String>) -> Self {
        Self { notes, ..self }
    }

    /// What keeps it from being whole.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The cells, as they were found.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    fn cell(&self, case: &str, column: &Column) -> Option<&Cell> {
        self.cells.iter().find(|cell| {
            // In the order in which cells differ, as this is asked for each of them.
            cell.label == column.label
                && cell.case == case
                && minor(&cell.python) == column.python
                && cell.device == column.device
        })
    }

    /// The columns, each with its cells.
    pub(super) fn by_column(&self) -> impl Iterator<Item = (&Column, Vec<&Cell>)> {
        self.columns
            .iter()
            .map(|column| (column, self.cases.iter().filter_map(|case| self.cell(case, column)).collect()))
    }

    /// Where verdicts change, case by case, Python by Python and device by device.
    pub fn transitions(&self) -> Vec<Transition> {
        let mut rows: Vec<Vec<&Column>> = Vec::new();
        for column in &self.columns {
            let is_of =
                |row: &&mut Vec<&Column>| row[0].python == column.python && row[0].device == column.device;
            match rows.iter_mut().find(is_of) {
                Some(row) => row.push(column),
                None => rows.push(vec![column]),
            }
        }
        let mut found = Vec::new();
        for case in &self.cases {
            for row in &rows {
                found.extend(transitions(row.iter().filter_map(|column| self.cell(case, column))));
            }
        }
        found
    }

    /// Whether there are several Pythons, so that a version alone does not name a column.
    fn has_pythons(&self) -> bool {
        self.columns.iter().any(|column| column.python != self.columns[0].python)
    }

    /// Whether there are several devices, which only machines that are joined have. What could not be run has none.
    fn has_devices(&self) -> bool {
        let mut devices = self.cells.iter().filter(|cell| cell.verdict.is_some()).map(|cell| cell.device);
        let first = devices.next();
        devices.any(|device| Some(device) != first)
    }

    pub(super) fn heading(&self, column: &Column, separator: &str) -> String {
        let mut heading = column.label.clone();
        if self.has_pythons() {
            let _ = write!(heading, "{separator}py{}", column.python);
        }
        if self.has_devices() {
            let _ = write!(heading, "{separator}{}", device_word(column.device));
        }
        heading
    }

    fn sentence(&self, transition: &Transition) -> String {
        let mut sentence = format!("{}: {}", transition.case, transition.sentence());
        if self.has_pythons() {
            let _ = write!(sentence, ", Python {}", transition.python);
        }
        if self.has_devices() {
            let _ = write!(sentence, ", {}", device_word(transition.device));
        }
        sentence
    }

    /// What a reader must know of single cells: those that are not as expected, and those without a verdict.
    fn remarks(&self) -> Vec<String> {
        let told = self.cells.iter().filter(|cell| !cell.ok || cell.verdict.is_none());
        let mut remarks: Vec<(String, Vec<&str>)> = Vec::new();
        for cell in told {
            let remark = format!("{}: {}", self.heading(&Column::of(cell), ", "), remark(cell));
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

fn device_word(device: Device) -> &'static str {
    match device {
        Device::Cpu => "cpu",
        Device::Cuda => "cuda",
    }
}

/// What a cell shows and why.
pub(super) fn remark(cell: &Cell) -> String {
    match (cell.verdict, cell.expected) {
        (Some(verdict), Some(expected)) if verdict != expected => {
            format!("{verdict}, expected {expected}: {}", cell.reason)
        }
        (Some(verdict), _) => format!("{verdict}: {}", cell.reason),
        (None, _) => cell.reason.clone(),
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
    let told = report.remarks().into_iter().chain(report.notes.iter().cloned());
    // A program's message must not steer the terminal.
    let steers = |character: char| character.is_control() && character != '\n';
    let remarks = told.map(|one| one.replace(steers, "").replace('\n', "\n  ") + "\n").collect::<String>();
    for paragraph in [changes, remarks, legend(report)].iter().filter(|paragraph| !paragraph.is_empty()) {
        let _ = write!(text, "\n{paragraph}");
    }
    text
}

/// The columns in groups that fit the width beside the names of the cases.
fn parts(report: &MatrixReport, width: usize) -> Vec<&[Column]> {
    // On both sides of what is in a column.
    const PADDING: usize = 2;
    let wide = |column: &Column| {
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
    let mut text = String::from("| case |");
    for column in &report.columns {
        let _ = write!(text, " {} |", escaped(&report.heading(column, ", ")));
    }
    let _ = writeln!(text, "\n|---|{}", "---|".repeat(report.columns.len()));
    for case in &report.cases {
        let _ = write!(text, "| {} |", escaped(case));
        for column in &report.columns {
            let _ = write!(text, " {} |", escaped(&word(report.cell(case, column))));
        }
        text.push('\n');
    }
    let transitions = report.transitions();
    let told = transitions.iter().map(|transition| report.sentence(transition)).chain(report.remarks());
    let told = told.chain(report.notes.iter().cloned());
    let lines: Vec<String> = told.map(|line| format!("- {}\n", escaped(&line))).collect();
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
        writer.write_record([
            cell.case.as_str(),
            &cell.label,
            &cell.torch,
            cell.torch_commit.as_deref().unwrap_or_default(),
            &cell.python,
            device_word(cell.device),
            cell.verdict.map_or("", Verdict::word),
            cell.expected.map_or("", Verdict::word),
            &cell.ok.to_string(),
            &cell.cached.to_string(),
            &format!("{:.2}", cell.seconds),
            &cell.growth.map(|growth| growth.to_string()).unwrap_or_default(),
            &cell.reason,
        ])?;
    }
    let bytes = writer.into_inner().map_err(|error| error.into_error())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The document that `--format json` prints.
pub fn matrix_document(report: &MatrixReport) -> Value {
    json!({
        "schema": 1,
        "partition": report.share,
        "cells": report.cells,
        "transitions": report.transitions(),
        "notes": report.notes,
    })
}
