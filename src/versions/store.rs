//! Cells of earlier runs, so that a matrix that was broken off goes on, and a longer one runs only what is new.

use std::fs;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use sha2::{Digest, Sha256};

use super::{Candidate, Cell};
use crate::cache::{Cache, CacheError, write_whole};
use crate::case::{Case, Verdict};
use crate::run::{Settings, WantedDevice, relevant_variables};
use crate::worker::content_key;

/// Finished cells, by all that a verdict depends on.
#[derive(Debug)]
pub struct CellStore {
    folder: PathBuf,
    /// What does not change within one command.
    common: String,
    /// Whether cells of earlier runs are used.
    is_read: bool,
}

impl CellStore {
    /// The cells in the cache that this very build of torchleak would find with these settings.
    ///
    /// # Errors
    /// The cache cannot be written.
    pub fn open(cache: &Cache, settings: &Settings) -> Result<Self, CacheError> {
        cache.prepare(&cache.cells())?;
        let device = match settings.device {
            WantedDevice::Cpu => "cpu",
            WantedDevice::Cuda => "cuda",
            // A cache in a home folder may be shared by machines with and without a GPU.
            WantedDevice::Auto if fs::exists("/dev/nvidiactl").unwrap_or(false) => "auto with a GPU",
            WantedDevice::Auto => "auto without a GPU",
        };
        // torchleak's own variables change no measurement.
        let variables: Vec<String> =
            relevant_variables().into_iter().filter(|variable| !variable.starts_with("TORCHLEAK_")).collect();
        let common =
            format!("{device}, {}, {}, {:?}, {variables:?}", build(), content_key(), settings.memory_limit);
        Ok(Self { folder: cache.cells(), common, is_read: true })
    }

    /// As if no cell were known; what is found is kept all the same.
    pub fn without_the_known(self) -> Self {
        Self { is_read: false, ..self }
    }

    /// The cell of that case on that version, if it is there with its evidence.
    pub fn get(&self, case: &Case, candidate: &Candidate) -> Option<Cell> {
        if !self.is_read {
            return None;
        }
        let text = fs::read_to_string(self.path(case, candidate)).ok()?;
        let cell: Cell = serde_json::from_str(&text).ok()?;
        // A verdict without its evidence is worth nothing. A case that does not run on the device leaves none.
        let has_evidence = cell.verdict.is_none()
            || cell.run_dir.as_deref().is_some_and(|folder| folder.join("verdict.json").is_file());
        has_evidence.then_some(Cell { cached: true, label: candidate.label.clone(), ..cell })
    }

    /// Keeps a cell, but not one that the next run may change.
    ///
    /// # Errors
    /// What the operating system said of the writing.
    pub fn put(&self, case: &Case, candidate: &Candidate, cell: &Cell) -> std::io::Result<()> {
        if !cell.ok && !cell.verdict.is_some_and(Verdict::is_conclusive) {
            return Ok(());
        }
        write_whole(&self.path(case, candidate), &serde_json::to_string_pretty(cell)?)
    }

    fn path(&self, case: &Case, candidate: &Candidate) -> PathBuf {
        let all = format!("{}\n{}\n{}", self.common, case.content_hash(), candidate.identity);
        let name: String =
            Sha256::digest(all.as_bytes()).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        self.folder.join(format!("{name}.json"))
    }
}

/// Tells builds of torchleak apart: another build may judge the same recordings in another way.
fn build() -> String {
    let file = std::env::current_exe().and_then(fs::metadata);
    let stamp = file.and_then(|file| {
        let modified = file.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(format!("{} bytes of {}", file.len(), modified.as_nanos()))
    });
    format!("{} {}", env!("CARGO_PKG_VERSION"), stamp.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use torchleak_protocol::Device;

    use super::*;
    use crate::case::{Catalog, HEADLINE};

    fn settings(device: WantedDevice) -> Settings {
        Settings {
            device,
            deadline: Duration::from_secs(1),
            jobs: 1,
            memory_limit: None,
            show_values: false,
            runs: PathBuf::new(),
            worker: PathBuf::new(),
        }
    }

    fn candidate(identity: &str) -> Candidate {
        Candidate { label: "2.8.0".into(), identity: identity.into(), commit: None, note: None }
    }

    fn cell(run_dir: Option<PathBuf>, verdict: Option<Verdict>) -> Cell {
        Cell {
            case: HEADLINE.into(),
            label: "2.8.0".into(),
            torch: "2.8.0+cu128".into(),
            torch_commit: None,
            overlay: None,
            python: "3.11.7".into(),
            device: Device::Cpu,
            verdict,
            reason: String::new(),
            expected: None,
            ok: verdict.is_some(),
            growth: Some(2),
            seconds: 2.0,
            run_dir,
            cached: false,
        }
    }

    #[test]
    fn a_cell_is_found_again_as_long_as_nothing_changed_and_its_evidence_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        fs::create_dir(&run).unwrap();
        fs::write(run.join("verdict.json"), "{}").unwrap();
        let cache = Cache::at(folder.path());
        let store = CellStore::open(&cache, &settings(WantedDevice::Cpu)).unwrap();
        let catalog = Catalog::shipped().unwrap();
        let (case, other) = (catalog.get(HEADLINE).unwrap(), catalog.get("sac-stock").unwrap());
        let kept = cell(Some(run.clone()), Some(Verdict::Reproduced));
        store.put(case, &candidate("a"), &kept).unwrap();
        assert_eq!(store.get(case, &candidate("a")), Some(Cell { cached: true, ..kept }));
        assert_eq!(store.get(case, &candidate("b")), None);
        assert_eq!(store.get(other, &candidate("a")), None);
        let cuda = CellStore::open(&cache, &settings(WantedDevice::Cuda)).unwrap();
        assert_eq!(cuda.get(case, &candidate("a")), None);
        fs::remove_dir_all(&run).unwrap();
        assert_eq!(store.get(case, &candidate("a")), None);
    }

    #[test]
    fn what_the_next_run_may_change_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let store = CellStore::open(&Cache::at(folder.path()), &settings(WantedDevice::Cpu)).unwrap();
        let catalog = Catalog::shipped().unwrap();
        let case = catalog.get(HEADLINE).unwrap();
        fs::write(folder.path().join("verdict.json"), "{}").unwrap();
        for verdict in [None, Some(Verdict::Inconclusive), Some(Verdict::Error)] {
            let run_dir = Some(folder.path().to_owned());
            store.put(case, &candidate("a"), &Cell { ok: false, ..cell(run_dir, verdict) }).unwrap();
            assert_eq!(store.get(case, &candidate("a")), None, "{verdict:?}");
        }
    }

    #[test]
    fn that_a_case_does_not_run_on_the_device_is_kept_without_evidence() {
        let folder = tempfile::tempdir().unwrap();
        let store = CellStore::open(&Cache::at(folder.path()), &settings(WantedDevice::Cuda)).unwrap();
        let catalog = Catalog::shipped().unwrap();
        let case = catalog.get(HEADLINE).unwrap();
        store.put(case, &candidate("a"), &Cell { ok: true, ..cell(None, None) }).unwrap();
        assert!(store.get(case, &candidate("a")).is_some_and(|cell| cell.cached && cell.verdict.is_none()));
        assert_eq!(store.without_the_known().get(case, &candidate("a")), None);
    }

    #[test]
    fn a_garbled_file_is_no_cell() {
        let folder = tempfile::tempdir().unwrap();
        let store = CellStore::open(&Cache::at(folder.path()), &settings(WantedDevice::Cpu)).unwrap();
        let catalog = Catalog::shipped().unwrap();
        let case = catalog.get(HEADLINE).unwrap();
        fs::write(store.path(case, &candidate("a")), "{\"case\":").unwrap();
        assert_eq!(store.get(case, &candidate("a")), None);
    }
}
