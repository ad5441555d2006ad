//! A report of which it is not known yet what memory goes with the garbage.

use torchleak_protocol::CycleReport;

/// Device and address of a storage.
type Key = (String, usize);

/// A report about garbage that is still there. Its totals are not known yet, and its findings have the bytes of all
/// their storages.
#[derive(Debug)]
pub struct Unsettled {
    pub report: CycleReport,
    /// All storages, with their bytes.
    pub storages: Vec<(Key, u64)>,
    /// The storages of each finding of the report.
    pub held: Vec<Held>,
    /// The storages of tensors that any cycle keeps.
    pub explained: Vec<u32>,
}

/// Storages of a finding, each once.
#[derive(Debug)]
pub struct Held {
    pub all: Vec<u32>,
    /// Those of each of its groups.
    pub groups: Vec<Vec<u32>>,
}

impl Unsettled {
    /// The report without the bytes of storages that are still alive.
    pub fn settled(&self, is_alive: impl Fn(&Key) -> bool) -> CycleReport {
        let gone: Vec<u64> =
            self.storages.iter().map(|(key, bytes)| if is_alive(key) { 0 } else { *bytes }).collect();
        let bytes = |storages: &[u32]| storages.iter().map(|&storage| gone[storage as usize]).sum::<u64>();
        let mut report = self.report.clone();
        for (finding, held) in report.findings.iter_mut().zip(&self.held) {
            finding.exclusive_bytes = bytes(&held.all);
            for (group, storages) in finding.groups.iter_mut().zip(&held.groups) {
                group.bytes = bytes(storages);
                group.tensor.storage_is_live = !storages.is_empty()
                    && storages.iter().all(|&storage| is_alive(&self.storages[storage as usize].0));
            }
            finding.groups.sort_by_key(|group| std::cmp::Reverse(group.bytes));
        }
        report.findings.sort_by_key(|finding| std::cmp::Reverse(finding.exclusive_bytes));
        report.tensor_bytes = gone.iter().sum();
        report.unexplained_bytes = report.tensor_bytes - bytes(&self.explained);
        report
    }
}
