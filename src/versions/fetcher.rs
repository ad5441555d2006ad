//! Makes the environments of a matrix, ahead of the columns that run, and removes those that are not to be kept.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Mutex, PoisonError};

use super::{Matrix, Unavailable};
use crate::cache::Cache;
use crate::environment::{self, Environment, Progress};
use crate::interrupt;

/// The environment of a column, or why there is none.
pub(super) struct Fetched {
    pub(super) place: usize,
    pub(super) environment: Result<Environment, Unavailable>,
}

/// Columns in the order in which they are fetched, which more than one fetcher takes from.
pub(super) type Places = Mutex<VecDeque<usize>>;

/// Goes through columns ahead of those that run.
pub(super) struct Fetcher<'a> {
    matrix: &'a Matrix<'a>,
    progress: &'a dyn Progress,
    /// What bounds how many environments are there at once, if anything does.
    keeping: Option<Keeping>,
}

impl<'a> Fetcher<'a> {
    pub(super) fn new(matrix: &'a Matrix<'a>, progress: &'a dyn Progress, keeping: Option<Keeping>) -> Self {
        Self { matrix, progress, keeping }
    }

    /// Hands over the environments of columns. `send` has no room, so that no other environment is begun before the
    /// column of this one runs.
    pub(super) fn run(mut self, places: &Places, send: &SyncSender<Fetched>) {
        while let Some(place) = self.next(places) {
            let column = &self.matrix.columns[place];
            let source = &self.matrix.sources[column.source];
            let environment = source.environment(&column.candidate, self.progress);
            self.progress.end();
            if let (Some(keeping), Ok(environment)) = (&mut self.keeping, &environment)
                && environment.is_new()
            {
                keeping.made.extend(environment.key().map(str::to_owned));
            }
            if send.send(Fetched { place, environment }).is_err() {
                return;
            }
            if let Some(keeping) = &mut self.keeping {
                keeping.running += 1;
            }
        }
    }

    /// The next column, once there is room for its environment. After an interruption there is none, and what is on the
    /// disk stays there: the next matrix goes on with it.
    fn next(&mut self, places: &Places) -> Option<usize> {
        if let Some(keeping) = &mut self.keeping {
            keeping.remove_what_is_too_much(self.matrix.cache, self.progress);
        }
        if interrupt::requested() {
            return None;
        }
        places.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// Which environments are there and how many may be.
pub(super) struct Keeping {
    /// How many may stay.
    most: usize,
    /// Hears of each column that is done. It ends when no further column will run.
    done: Receiver<()>,
    /// How many columns were handed over and are not done yet.
    running: usize,
    /// The names of the environments that this matrix made and that are there, the first used first.
    made: Vec<String>,
}

impl Keeping {
    pub(super) fn new(most: usize, done: Receiver<()>) -> Self {
        Self { most, done, running: 0, made: Vec::new() }
    }

    /// Removes the first used of what was made until few enough are left. Those in use stay; as long as a column runs
    /// that uses one, this waits for it.
    fn remove_what_is_too_much(&mut self, cache: &Cache, progress: &dyn Progress) {
        loop {
            while self.done.try_recv().is_ok() {
                self.running -= 1;
            }
            self.remove_unused(cache, progress);
            if self.made.len() <= self.most || self.running == 0 || self.done.recv().is_err() {
                return;
            }
            self.running -= 1;
        }
    }

    fn remove_unused(&mut self, cache: &Cache, progress: &dyn Progress) {
        let mut place = 0;
        let before = self.made.len();
        while self.made.len() > self.most && place < self.made.len() {
            match environment::remove_environment(&self.made[place], cache) {
                Ok(true) => drop(self.made.remove(place)),
                Ok(false) => place += 1,
                Err(error) => {
                    let key = self.made.remove(place);
                    progress.note(&format!("warning: {key} stays: {}", super::with_causes(&error)));
                }
            }
        }
        if self.made.len() < before
            && let Err(error) = environment::forget_downloads(cache, progress)
        {
            progress.note(&format!("warning: downloads stay: {}", super::with_causes(&error)));
        }
        progress.end();
    }
}
