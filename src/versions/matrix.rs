//! Runs cases on many versions: the next environment is fetched while the current one runs.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use torchleak_protocol::{ArmEvent, Device, HostEvent};

use super::store::CellStore;
use super::{Candidate, Cell, CellWatcher, Source, Unavailable, run_cells};
use crate::cache::Cache;
use crate::case::Case;
use crate::environment::{self, Environment, EnvironmentError, Progress, is_ready};
use crate::interrupt;
use crate::run::{ArmOutcome, CaseOutcome, RunError, Settings, WantedDevice, Watcher};

/// One version under one interpreter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Which of the sources it is of.
    pub source: usize,
    pub candidate: Candidate,
    /// The Python's minor version (of 3).
    pub python_minor: u32,
}

/// What is run where.
pub struct Matrix<'a> {
    pub cases: &'a [Case],
    pub sources: &'a [Box<dyn Source>],
    pub columns: &'a [Column],
    pub settings: &'a Settings,
    pub cache: &'a Cache,
    /// How many of the environments that this matrix makes may be on the disk at once, besides the one that is being
    /// made.
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
            self.columns.iter().map(|column| self.known(column, store)).collect();
        cells.iter().flatten().flatten().for_each(|cell| watcher.cell(cell));
        let pending: Vec<usize> =
            (0..cells.len()).filter(|&place| cells[place].iter().any(Option::is_none)).collect();
        if pending.iter().any(|&place| !is_ready(&self.columns[place].candidate.identity, self.cache)) {
            environment::check_room(self.cache)?;
        }
        std::thread::scope(|scope| {
            // Without room in the channel the one after the next is not begun before the next one runs.
            let (send, receive) = sync_channel(0);
            let (free, freed) = sync_channel(self.columns.len() + 1);
            let wanted = &pending;
            scope.spawn(move || self.fetch(wanted, &send, &freed, fetching));
            for fetched in receive {
                let Fetched { place, environment } = fetched;
                self.fill(place, environment, &mut cells[place], store, watcher)?;
                // The fetcher may be over, and then nobody needs the room.
                let _ = free.send(place);
                if interrupt::requested() {
                    break;
                }
            }
            Ok(cells.into_iter().flatten().flatten().collect())
        })
    }

    /// The cells of a column that are known from an earlier run, in the order of the cases.
    fn known(&self, column: &Column, store: &CellStore) -> Vec<Option<Cell>> {
        self.cases.iter().map(|case| store.get(case, &column.candidate)).collect()
    }

    /// Makes the environments of the columns one after the other, and removes what `keep` says when their column is
    /// done.
    fn fetch(
        &self,
        places: &[usize],
        send: &SyncSender<Fetched>,
        done: &Receiver<usize>,
        progress: &dyn Progress,
    ) {
        let mut made: Vec<String> = Vec::new();
        for &place in places {
            if interrupt::requested() {
                return;
            }
            let column = &self.columns[place];
            let key = &column.candidate.identity;
            let was_there = is_ready(key, self.cache);
            let environment = self.sources[column.source].environment(&column.candidate, progress);
            progress.end();
            if !was_there && is_ready(key, self.cache) {
                made.push(key.clone());
            }
            if send.send(Fetched { place, environment }).is_err() {
                return;
            }
            self.keep_few(&mut made, done);
        }
        // The last columns still run.
        while self.keep.is_some_and(|keep| made.len() > keep) && done.recv().is_ok() {
            self.keep_few(&mut made, done);
        }
    }

    /// Removes the oldest of what this matrix made until few enough are left; one that still runs stays.
    fn keep_few(&self, made: &mut Vec<String>, done: &Receiver<usize>) {
        while done.try_recv().is_ok() {}
        let Some(keep) = self.keep else { return };
        let mut place = 0;
        while made.len() > keep && place < made.len() {
            match environment::remove_environment(&made[place], self.cache) {
                Ok(true) => drop(made.remove(place)),
                // In use, or it cannot be removed: the next look may find it otherwise.
                Ok(false) | Err(_) => place += 1,
            }
        }
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
        let missing: Vec<usize> = (0..cells.len()).filter(|&case| cells[case].is_none()).collect();
        let cases: Vec<Case> = missing.iter().map(|&case| self.cases[case].clone()).collect();
        let environment = match environment {
            Ok(environment) => environment,
            Err(error) if error.is_interrupted() => return Ok(()),
            Err(error) => {
                let python = format!("3.{}", column.python_minor);
                for &case in &missing {
                    let label = &column.candidate.label;
                    let cell = Cell::without_environment(
                        &self.cases[case],
                        label,
                        python.clone(),
                        self.device(),
                        &error,
                    );
                    watcher.cell(&cell);
                    cells[case] = Some(cell);
                }
                return Ok(());
            }
        };
        let options = self.settings.on(&environment)?;
        watcher.column(column, cases.len());
        let mut keeper = Keeper { store, candidate: &column.candidate, cases: &cases, watcher };
        let found = run_cells(&cases, &column.candidate.label, &environment, &options, &mut keeper)?;
        for cell in found {
            let of = missing.iter().find(|&&case| self.cases[case].name() == cell.case);
            if let Some(&case) = of {
                cells[case] = Some(cell);
            }
        }
        Ok(())
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
    watcher: &'a mut dyn MatrixWatcher,
}

impl CellWatcher for Keeper<'_> {
    fn cell(&mut self, cell: &Cell) {
        let case = self.cases.iter().find(|case| case.name() == cell.case);
        let kept = case.map_or(Ok(()), |case| self.store.put(case, self.candidate, cell));
        if let Err(error) = kept {
            self.watcher.note(&format!("{} cannot be kept for a later matrix: {error}", cell.case));
        }
        self.watcher.cell(cell);
    }
}

impl Watcher for Keeper<'_> {
    fn planned(&mut self, arms: usize) {
        self.watcher.planned(arms);
    }

    fn host(&mut self, event: &HostEvent) {
        self.watcher.host(event);
    }

    fn event(&mut self, case: &str, arm: &str, steps: u32, event: &ArmEvent) {
        self.watcher.event(case, arm, steps, event);
    }

    fn arm_ended(&mut self, case: &str, arm: &ArmOutcome) {
        self.watcher.arm_ended(case, arm);
    }

    fn concluded(&mut self, outcome: &CaseOutcome) {
        self.watcher.concluded(outcome);
    }
}

/// An environment that is ready, or why there is none.
struct Fetched {
    place: usize,
    environment: Result<Environment, Unavailable>,
}

/// Why a matrix does not come to an end. A version that cannot be had is no such reason.
#[derive(Debug, thiserror::Error)]
pub enum MatrixError {
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error(transparent)]
    Run(#[from] RunError),
}
