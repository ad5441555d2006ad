//! Progress of a matrix on standard error: what runs, and what is fetched beside it.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use torchleak_protocol::ArmEvent;

use crate::case::Verdict;
use crate::environment::Progress;
use crate::run::Watcher;
use crate::say::say;
use crate::versions::{Cell, CellWatcher, Column, MatrixWatcher, minor};

/// Two bars on a terminal, plain lines elsewhere.
#[derive(Debug)]
pub struct MatrixProgress {
    cells: Option<ProgressBar>,
}

/// Hears how environments are made, beside the cells that run.
#[derive(Debug)]
pub struct FetchProgress(Option<ProgressBar>);

/// Both, for so many cells.
pub fn matrix_progress(cells: usize) -> (MatrixProgress, FetchProgress) {
    let bars = console::user_attended_stderr().then(|| {
        let all = MultiProgress::new();
        let bar = |template: &str, length: u64| {
            let style = ProgressStyle::with_template(template);
            let bar = all.add(ProgressBar::new(length));
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        };
        (
            bar("{spinner:.cyan} {pos}/{len} cells [{elapsed}] {wide_msg}", cells as u64),
            bar("  {wide_msg}", 0),
        )
    });
    let (cells, fetching) = bars.unzip();
    (MatrixProgress { cells }, FetchProgress(fetching))
}

impl Drop for MatrixProgress {
    fn drop(&mut self) {
        self.cells.iter().for_each(ProgressBar::finish_and_clear);
    }
}

impl Drop for FetchProgress {
    fn drop(&mut self) {
        self.0.iter().for_each(ProgressBar::finish_and_clear);
    }
}

impl MatrixProgress {
    fn say(&self, line: &str) {
        match &self.cells {
            Some(bar) => bar.println(line),
            None => say(line),
        }
    }
}

impl MatrixWatcher for MatrixProgress {
    fn column(&mut self, column: &Column, cases: usize) {
        let version = format!("torch {}, Python 3.{}", column.candidate.label, column.python_minor);
        match &self.cells {
            Some(bar) => bar.set_message(format!("{version}: importing torch")),
            None => say(&format!("matrix: {version}: {cases} cases")),
        }
    }

    fn note(&mut self, note: &str) {
        self.say(&format!("matrix: {note}"));
    }
}

impl CellWatcher for MatrixProgress {
    fn cell(&mut self, cell: &Cell) {
        if let Some(bar) = &self.cells {
            bar.inc(1);
        }
        let word = cell.verdict.map_or("no verdict", Verdict::word);
        let surprise = if cell.ok { "" } else { " (not as expected)" };
        let time = if cell.cached { "from the cache".to_owned() } else { format!("{:.1} s", cell.seconds) };
        let version = format!("torch {}, Python {}", cell.label, minor(&cell.python));
        self.say(&format!("matrix: {version}: {}: {word}{surprise}, {time}", cell.case));
    }
}

impl Watcher for MatrixProgress {
    fn event(&mut self, case: &str, arm: &str, steps: u32, event: &ArmEvent) {
        let step = match event {
            ArmEvent::Step(record) => record.step,
            ArmEvent::Garbage(record) => record.step,
            _ => return,
        };
        if let Some(bar) = &self.cells {
            bar.set_message(format!("{case}: {arm}: step {step} of {steps}"));
        }
    }
}

impl Progress for FetchProgress {
    fn begin(&self, what: &str) {
        match &self.0 {
            Some(bar) => bar.set_message(what.to_owned()),
            None => say(&format!("matrix: {what}")),
        }
    }

    fn note(&self, line: &str) {
        match &self.0 {
            Some(bar) if line.starts_with("warning: ") => bar.println(format!("matrix: {line}")),
            Some(bar) => bar.set_message(line.to_owned()),
            None if line.starts_with("warning: ") => say(&format!("matrix: {line}")),
            // Downloads are too many for lines between cells.
            None => {}
        }
    }

    fn end(&self) {
        if let Some(bar) = &self.0 {
            bar.set_message(String::new());
        }
    }
}
