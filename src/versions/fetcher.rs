//! Makes the environments of a matrix, each while the column before it runs, and removes those that are not to be kept.

use std::sync::mpsc::{Receiver, SyncSender};

use super::{Matrix, Unavailable};
use crate::environment::{self, Environment, Progress};
use crate::interrupt;

/// The environment of a column, or why there is none.
pub(super) struct Fetched {
    pub(super) place: usize,
    pub(super) environment: Result<Environment, Unavailable>,
}

/// Goes through the columns ahead of those that run.
pub(super) struct Fetcher<'a> {
    matrix: &'a Matrix<'a>,
    progress: &'a dyn Progress,
    /// Hears of each column that is done. It ends when no further column will run.
    done: Receiver<()>,
    /// How many columns were handed over and are not done yet.
    running: usize,
    /// The names of the environments that this matrix made and that are there, the first used first.
    made: Vec<String>,
}

impl<'a> Fetcher<'a> {
    pub(super) fn new(matrix: &'a Matrix<'a>, progress: &'a dyn Progress, done: Receiver<()>) -> Self {
        Self { matrix, progress, done, running: 0, made: Vec::new() }
    }

    /// Hands over the environments of the columns at these places. `send` has no room, so that the one after the next
    /// is not begun before the next one runs.
    pub(super) fn run(mut self, places: &[usize], send: SyncSender<Fetched>) {
        for &place in places {
            self.remove_what_is_too_much();
            // What is there stays there after an interruption: the next matrix goes on with it.
            if interrupt::requested() {
                return;
            }
            let column = &self.matrix.columns[place];
            let source = &self.matrix.sources[column.source];
            let environment = source.environment(&column.candidate, self.progress);
            self.progress.end();
            if let Ok(environment) = &environment
                && environment.is_new()
            {
                self.made.extend(environment.key().map(str::to_owned));
            }
            if send.send(Fetched { place, environment }).is_err() {
                return;
            }
            self.running += 1;
        }
        // Whoever receives would wait for more, while this waits for the last columns.
        drop(send);
        self.remove_what_is_too_much();
    }

    /// Removes the first used of what was made until few enough are left. Those in use stay; as long as a column runs
    /// that uses one, this waits for it.
    fn remove_what_is_too_much(&mut self) {
        let Some(keep) = self.matrix.keep else { return };
        loop {
            while self.done.try_recv().is_ok() {
                self.running -= 1;
            }
            self.remove_unused(keep);
            if self.made.len() <= keep || self.running == 0 || self.done.recv().is_err() {
                return;
            }
            self.running -= 1;
        }
    }

    fn remove_unused(&mut self, keep: usize) {
        let mut place = 0;
        let before = self.made.len();
        while self.made.len() > keep && place < self.made.len() {
            match environment::remove_environment(&self.made[place], self.matrix.cache) {
                Ok(true) => drop(self.made.remove(place)),
                Ok(false) => place += 1,
                Err(error) => {
                    let key = self.made.remove(place);
                    self.progress.note(&format!("warning: {key} stays: {}", super::with_causes(&error)));
                }
            }
        }
        if self.made.len() < before
            && let Err(error) = environment::forget_downloads(self.matrix.cache, self.progress)
        {
            self.progress.note(&format!("warning: downloads stay: {}", super::with_causes(&error)));
        }
        self.progress.end();
    }
}
