//! Runs cases on many versions: the next environment is fetched while the current one runs.

use std::ops::Range;
use std::sync::mpsc::{channel, sync_channel};

use torchleak_protocol::Device;

use super::fetcher::{Fetched, Fetcher, Keeping, Places};
use super::store::CellStore;
use super::{Candidate, Cell, CellWatcher, Column, Source, Unavailable, run_cells, with_causes};
use crate::cache::Cache;
use crate::case::Case;
use crate::environment::{self, Environment, EnvironmentError, Progress, is_ready};
use crate::interrupt;
use crate::run::{RunError, Settings, WantedDevice, Watcher};
use crate::worker::WorkerError;

/// How many environments are made at once: while one is unpacked and checked, the line is free for another's download.
const AT_ONCE: usize = 2;

/// What is run where.
pub struct Matrix<'a> {
    pub cases: &'a [Case],
    pub sources: &'a [Box<dyn Source>],
    pub columns: &'a [Column],
    /// The cells to fill, numbered column by column and case by case.
    pub wanted: Range<usize>,
    pub settings: &'a Settings,
    pub cache: &'a Cache,
    /// How many of the environments that this matrix makes may be on the disk at once, besides the one that is being
    /// made. With none, each is removed before the next one is made, and nothing is fetched ahead.
    pub keep: Option<usize>,
}

impl std::fmt::Debug for Matrix<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Matrix").field("columns", &self.columns).finish_non_exhaustive()
    }
}

/// Is told of what goes on.
pub trait MatrixWatcher: CellWatcher {
    /// The cases of a column begin to run.
    fn column(&mut self, column: &Column, cases: usize);
    /// Something that the user should know.
    fn note(&mut self, note: &str);
}

impl Matrix<'_> {
    /// Fills the cells, column by column and case by case. After an interruption those that are known are given.
    ///
    /// `fetching` hears how environments are made, which goes on beside what `watcher` is told.
    ///
    /// # Errors
    /// The disk cannot hold one more environment, or something fails that has nothing to do with a version.
    pub fn run(
        &self,
        store: &CellStore,
        fetching: &dyn Progress,
        watcher: &mut dyn MatrixWatcher,
    ) -> Result<Vec<Cell>, MatrixError> {
        let mut cells: Vec<Vec<Option<Cell>>> =
            (0..self.columns.len()).map(|place| self.known(place, store)).collect();
        cells.iter().flatten().flatten().for_each(|cell| watcher.cell(cell));
        let pending: Vec<usize> =
            (0..cells.len()).filter(|&place| !self.missing(place, &cells[place]).is_empty()).collect();
        if pending.iter().any(|&place| self.is_missing(place)) {
            environment::check_room(self.cache)?;
        }
        let places = Places::new(pending.iter().copied().collect());
        std::thread::scope(|scope| {
            let (send, receive) = sync_channel(0);
            // One who is done never waits for whoever is to hear of it.
            let (done, heard) = channel();
            let mut keeping = self.keep.map(|most| Keeping::new(most, heard));
            for _ in 0..self.fetchers(&pending) {
                let fetcher = Fetcher::new(self, fetching, keeping.take());
                let (places, send) = (&places, send.clone());
                scope.spawn(move || fetcher.run(places, &send));
            }
            // The columns are over when the last fetcher is.
            drop(send);
            for Fetched { place, environment } in receive {
                self.fill(place, environment, &mut cells[place], store, watcher)?;
                // Without `--keep`, or when the fetcher is over, nobody needs to know.
                let _ = done.send(());
                if interrupt::requested() {
                    break;
                }
            }
            Ok(cells.into_iter().flatten().flatten().collect())
        })
    }

    /// How many environments are made at once. What bounds the disk bounds that to one.
    fn fetchers(&self, pending: &[usize]) -> usize {
        let missing = pending.iter().filter(|&&place| self.is_missing(place)).count();
        let is_bounded = self.keep.is_some() || !environment::has_room_for(AT_ONCE, self.cache);
        if is_bounded { 1 } else { missing.clamp(1, AT_ONCE) }
    }

    fn is_missing(&self, place: usize) -> bool {
        !is_ready(&self.columns[place].candidate.identity, self.cache)
    }

    /// The cells of a column that are known from an earlier run, in the order of the cases.
    fn known(&self, place: usize, store: &CellStore) -> Vec<Option<Cell>> {
        let candidate = &self.columns[place].candidate;
        let cases = self.cases.iter().enumerate();
        cases.map(|(case, one)| store.get(one, candidate).filter(|_| self.is_wanted(place, case))).collect()
    }

    fn is_wanted(&self, place: usize, case: usize) -> bool {
        self.wanted.contains(&(place * self.cases.len() + case))
    }

    /// The cases of a column that are to be run.
    fn missing(&self, place: usize, cells: &[Option<Cell>]) -> Vec<usize> {
        (0..cells.len()).filter(|&case| cells[case].is_none() && self.is_wanted(place, case)).collect()
    }

    /// Runs the cases of a column that are not known yet.
    fn fill(
        &self,
        place: usize,
        environment: Result<Environment, Unavailable>,
        cells: &mut [Option<Cell>],
        store: &CellStore,
        watcher: &mut dyn MatrixWatcher,
    ) -> Result<(), MatrixError> {
        let column = &self.columns[place];
        let missing = self.missing(place, cells);
        let cases: Vec<Case> = missing.iter().map(|&case| self.cases[case].clone()).collect();
        let mut keeper =
            Keeper { store, candidate: &column.candidate, cases: &cases, known: Vec::new(), watcher };
        let ran = match environment {
            Ok(environment) => self.run_column(column, &cases, &environment, &mut keeper),
            Err(error) if error.is_interrupted() => Ok(()),
            Err(error) => {
                keeper.tell_unavailable(&format!("3.{}", column.python_minor), self.device(), &error);
                Ok(())
            }
        };
        let known = keeper.known;
        for (case, place) in cases.iter().zip(missing) {
            cells[place] = known.iter().find(|cell| cell.case == case.name()).cloned();
        }
        ran
    }

    /// Runs cases in an environment. That it does not work says something of it and nothing of the others.
    fn run_column(
        &self,
        column: &Column,
        cases: &[Case],
        environment: &Environment,
        keeper: &mut Keeper<'_>,
    ) -> Result<(), MatrixError> {
        keeper.watcher.column(column, cases.len());
        let ran = self
            .settings
            .on(environment)
            .and_then(|options| run_cells(cases, &column.candidate.label, environment, &options, keeper));
        match ran {
            Ok(_) => Ok(()),
            Err(_) if interrupt::requested() => Ok(()),
            Err(error @ RunError::NoDevice { .. })
            | Err(error @ RunError::Worker(WorkerError::Start { .. } | WorkerError::Died { .. })) => {
                let why = Unavailable::Broken(with_causes(&error));
                keeper.tell_unavailable(&environment.facts.python, self.device(), &why);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The device that cells are of that have no environment.
    fn device(&self) -> Device {
        match self.settings.device {
            WantedDevice::Cuda => Device::Cuda,
            WantedDevice::Auto | WantedDevice::Cpu => Device::Cpu,
        }
    }
}

/// Keeps each cell as soon as it is known, so that whatever ends the matrix loses none.
struct Keeper<'a> {
    store: &'a CellStore,
    candidate: &'a Candidate,
    cases: &'a [Case],
    /// The cells that were told so far.
    known: Vec<Cell>,
    watcher: &'a mut dyn MatrixWatcher,
}

impl Keeper<'_> {
    /// Tells of each case that is not known yet why it cannot be.
    fn tell_unavailable(&mut self, python: &str, device: Device, why: &Unavailable) {
        for case in self.cases {
            if !self.known.iter().any(|cell| cell.case == case.name()) {
                let label = &self.candidate.label;
                let cell = Cell::without_environment(case, label, python.to_owned(), device, why);
                self.watcher.cell(&cell);
                self.known.push(cell);
            }
        }
    }
}

impl CellWatcher for Keeper<'_> {
    fn cell(&mut self, cell: &Cell) {
        let case = self.cases.iter().find(|case| case.name() == cell.case);
        let kept = case.map_or(Ok(()), |case| self.store.put(case, self.candidate, cell));
        if let Err(error) = kept {
            self.watcher.note(&format!("{} cannot be kept for a later matrix: {error}", cell.case));
        }
        self.watcher.cell(cell);
        self.known.push(cell.clone());
    }
}

impl Watcher for Keeper<'_> {
    fn inner(&mut self) -> Option<&mut dyn Watcher> {
        Some(&mut *self.watcher)
    }
}

/// Why a matrix does not come to an end. A version that cannot be had is no such reason.
#[derive(Debug, thiserror::Error)]
pub enum MatrixError {
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error(transparent)]
    Run(#[from] RunError),
}
