//! The tensor census: which storages Python's tensors use, each counted once.

use std::collections::HashSet;

use pyo3::prelude::*;
use torchleak_protocol::Census;

use crate::heap::tracked_instances;
use crate::messages::to_python;
use crate::torch::Torch;

/// Counts the live tensors: a dict from device to tensors, storages and bytes. It is empty before
/// torch is imported.
#[pyfunction]
pub fn census(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let Some(torch) = Torch::loaded(py)? else { return to_python(py, &Census::new()) };
    let tensors = tracked_instances(py, &mut torch.tensor_test())?;
    let mut count = Count::default();
    let _guard = torch.without_overrides()?;
    for tensor in &tensors {
        if let Some(storage) = torch.storage(tensor)? {
            count.add(storage.key(), storage.bytes);
        }
    }
    to_python(py, &count.census)
}

/// A census in the making.
#[derive(Default)]
pub struct Count {
    pub census: Census,
    seen: HashSet<(String, usize)>,
}

impl Count {
    /// Adds a tensor by the device and the address of its storage, and the storage's bytes.
    pub fn add(&mut self, storage: (String, usize), bytes: u64) {
        let entry = self.census.entry(storage.0.clone()).or_default();
        entry.tensors += 1;
        if self.seen.insert(storage) {
            entry.storages += 1;
            entry.bytes += bytes;
        }
    }
}
