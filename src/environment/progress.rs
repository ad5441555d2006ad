//! Tells the user what is being done, on standard error only: standard output belongs to reports.

use std::fmt;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::say::say;

/// Hears what is being done.
pub trait Progress: Sync {
    /// A piece of work begins; it replaces the one before.
    fn begin(&self, what: &str);
    /// A line worth keeping, such as a download and its size.
    fn note(&self, line: &str);
    /// No work is going on any more.
    fn end(&self);
}

/// Says nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _: &str) {}
    fn note(&self, _: &str) {}
    fn end(&self) {}
}

/// A spinner with elapsed time on a terminal, plain lines elsewhere.
pub struct OnStderr {
    bar: Option<ProgressBar>,
    started: Instant,
}

impl OnStderr {
    /// Looks once whether standard error is a terminal.
    pub fn new() -> Self {
        let bar = console::user_attended_stderr().then(|| {
            // The target is set when work begins, so that nothing is drawn before.
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
            let style = ProgressStyle::with_template("{spinner:.cyan} {wide_msg} [{elapsed}]")
                .unwrap_or_else(|_| ProgressStyle::default_spinner());
            bar.set_style(style);
            bar
        });
        Self { bar, started: Instant::now() }
    }
}

impl Default for OnStderr {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for OnStderr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnStderr").field("terminal", &self.bar.is_some()).finish()
    }
}

impl Progress for OnStderr {
    fn begin(&self, what: &str) {
        match &self.bar {
            Some(bar) => {
                // A bar that was ended draws no more until its clock starts anew.
                if bar.is_finished() {
                    bar.reset();
                }
                bar.set_draw_target(ProgressDrawTarget::stderr());
                bar.set_message(what.to_owned());
                bar.enable_steady_tick(Duration::from_millis(120));
            }
            None => say(&format!("{what} [{} s]", self.started.elapsed().as_secs())),
        }
    }

    fn note(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(format!("  {line}")),
            None => say(&format!("  {line}")),
        }
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.disable_steady_tick();
            bar.finish_and_clear();
        }
    }
}
