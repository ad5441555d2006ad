//! The tensor census: which storages Python's tensors use, each counted once.

use std::collections::HashSet;

use pyo3::prelude::*;
use pyo3::types::PyList;
use torchleak_protocol::Census;

use crate::heap::{listed_instances, tracked_instances};
use crate::live::LiveStorages;
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
        count.add(&torch, tensor)?;
    }
    to_python(py, &count.census)
}

/// Counts the tensors of a list of garbage: two dicts like [`census`]'s, one of the tensors whose
/// storage only garbage uses, and one of those that share it with a live tensor.
#[pyfunction]
pub fn garbage_census<'py>(
    py: Python<'py>,
    garbage: &Bound<'py, PyList>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let (mut own, mut shared) = (Count::default(), Count::default());
    if let Some(torch) = Torch::loaded(py)? {
        let dead = listed_instances(garbage, &mut torch.tensor_test());
        let _guard = torch.without_overrides()?;
        let live = LiveStorages::besides(&torch, garbage, &dead)?;
        for tensor in &dead {
            let is_shared = torch.storage(tensor)?.is_some_and(|storage| live.contains(&storage));
            if is_shared { shared.add(&torch, tensor)? } else { own.add(&torch, tensor)? }
        }
    }
    Ok((to_python(py, &own.census)?, to_python(py, &shared.census)?))
}

/// A census in the making.
#[derive(Default)]
struct Count {
    census: Census,
    seen: HashSet<(String, usize)>,
}

impl Count {
    fn add<'py>(&mut self, torch: &Torch<'py>, tensor: &Bound<'py, PyAny>) -> PyResult<()> {
        let Some(storage) = torch.storage(tensor)? else { return Ok(()) };
        let entry = self.census.entry(storage.device.clone()).or_default();
        entry.tensors += 1;
        if self.seen.insert((storage.device, storage.address)) {
            entry.storages += 1;
            entry.bytes += storage.bytes;
        }
        Ok(())
    }
}
