//! Progress while a run goes on, on standard error: a bar on a terminal, plain lines elsewhere.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use torchleak_protocol::{ArmEvent, HostEvent};

use crate::run::{ArmOutcome, CaseOutcome, Watcher};
use crate::say::say;
use crate::versions::CellWatcher;
use crate::worker::Ending;

/// Without a terminal, a step is worth a line when the last line is this long ago.
const QUIET: Duration = Duration::from_secs(10);

/// Shows progress, and hands finished cases to `print`.
pub struct ProgressWatcher<'a> {
    bar: Option<ProgressBar>,
    last_line: Instant,
    print: Box<dyn FnMut(&CaseOutcome) + 'a>,
}

impl std::fmt::Debug for ProgressWatcher<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ProgressWatcher").finish_non_exhaustive()
    }
}

impl<'a> ProgressWatcher<'a> {
    /// Calls `print` with each case as soon as its outcome is known, in order.
    pub fn new(print: impl FnMut(&CaseOutcome) + 'a) -> Self {
        let bar = console::user_attended_stderr().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            let style =
                ProgressStyle::with_template("{spinner:.cyan} {pos}/{len} arms [{elapsed}] {wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar.enable_steady_tick(Duration::from_millis(120));
            bar.set_message("importing torch");
            bar
        });
        Self { bar, last_line: Instant::now(), print: Box::new(print) }
    }

    fn say(&mut self, message: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(message.to_owned()),
            None => say(&format!("torchleak: {message}")),
        }
        self.last_line = Instant::now();
    }
}

impl Drop for ProgressWatcher<'_> {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl CellWatcher for ProgressWatcher<'_> {}

impl Watcher for ProgressWatcher<'_> {
    fn planned(&mut self, arms: usize) {
        if let Some(bar) = &self.bar {
            // A command that runs several times goes on where it was.
            bar.set_length(bar.position() + arms as u64);
        }
    }

    fn host(&mut self, event: &HostEvent) {
        match event {
            HostEvent::Ready { .. } => self.say("importing torch"),
            HostEvent::Imported { seconds, torch, .. } => {
                self.say(&format!("imported torch {torch} in {seconds:.1} s"));
            }
            _ => {}
        }
    }

    fn event(&mut self, case: &str, arm: &str, steps: u32, event: &ArmEvent) {
        let step = match event {
            ArmEvent::Step(record) => record.step,
            ArmEvent::Garbage(record) => record.step,
            _ => return,
        };
        if self.bar.is_some() || self.last_line.elapsed() > QUIET {
            self.say(&format!("{case}: {arm}: step {step} of {steps}"));
        }
    }

    fn arm_ended(&mut self, case: &str, arm: &ArmOutcome) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
        if let Some(ending) = arm.ending.as_ref().filter(|ending| **ending != Ending::Done) {
            let line = format!("{case}: the {} arm {}", arm.name, ending.reason());
            match &self.bar {
                Some(bar) => bar.println(line),
                None => self.say(&line),
            }
        }
    }

    fn concluded(&mut self, outcome: &CaseOutcome) {
        match &self.bar {
            Some(bar) => bar.suspend(|| (self.print)(outcome)),
            None => (self.print)(outcome),
        }
    }
}
