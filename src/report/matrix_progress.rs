//! Progress of a matrix on standard error: what runs, and what is fetched beside it.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use torchleak_protocol::{ArmEvent, HostEvent};

use crate::case::Verdict;
use crate::environment::Progress;
use crate::run::{ArmOutcome, CaseOutcome, Watcher};
use crate::say::say;
use crate::versions::{Cell, Column, MatrixWatcher, minor};

/// Two bars on a terminal, plain lines elsewhere.
#[derive(Debug)]
pub struct MatrixProgress {
    cells: Option<ProgressBar>,
    arms: Arms,
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
    (MatrixProgress { arms: Arms(cells.clone()), cells }, FetchProgress(fetching))
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
        let label = &column.candidate.label;
        match &self.cells {
            Some(bar) => {
                bar.set_message(format!("torch {label}, Python 3.{}: importing", column.python_minor))
            }
            None => say(&format!("matrix: torch {label}, Python 3.{}: {cases} cases", column.python_minor)),
        }
    }

    fn run(&mut self) -> &mut dyn Watcher {
        &mut self.arms
    }

    fn cell(&mut self, cell: &Cell) {
        if let Some(bar) = &self.cells {
            bar.inc(1);
        }
        let word = cell.verdict.map_or("no verdict", Verdict::word);
        let surprise = if cell.ok { "" } else { " (not as expected)" };
        let time = if cell.cached { "cached".to_owned() } else { format!("{:.1} s", cell.seconds) };
        let python = minor(&cell.python);
        self.say(&format!(
            "matrix: {}, torch {}, Python {python}: {word}{surprise}, {time}",
            cell.case, cell.label
        ));
    }

    fn note(&mut self, note: &str) {
        self.say(&format!("matrix: {note}"));
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
        // Downloads are too many for lines between cells.
        if let Some(bar) = &self.0 {
            bar.set_message(line.to_owned());
        }
    }

    fn end(&self) {
        if let Some(bar) = &self.0 {
            bar.set_message(String::new());
        }
    }
}

/// Shows on the bar which step runs.
#[derive(Debug)]
struct Arms(Option<ProgressBar>);

impl Watcher for Arms {
    fn planned(&mut self, _arms: usize) {}

    fn host(&mut self, _event: &HostEvent) {}

    fn event(&mut self, case: &str, arm: &str, steps: u32, event: &ArmEvent) {
        let step = match event {
            ArmEvent::Step(record) => record.step,
            ArmEvent::Garbage(record) => record.step,
            _ => return,
        };
        if let Some(bar) = &self.0 {
            bar.set_message(format!("{case}: {arm}: step {step} of {steps}"));
        }
    }

    fn arm_ended(&mut self, _case: &str, _arm: &ArmOutcome) {}

    fn concluded(&mut self, _outcome: &CaseOutcome) {}
}
