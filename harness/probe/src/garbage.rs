//! A look at garbage: its tensors and cycles while it is there, and what of its memory went with it.

use std::collections::HashMap;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::census::Count;
use crate::graph::{Unsettled, unsettled};
use crate::heap::listed_instances;
use crate::messages::to_python;
use crate::torch::Torch;

type Key = (String, usize);

/// What a list of garbage was, with weak references to the storages of its tensors.
///
/// Who else uses a storage cannot be seen beforehand: a view holds the tensor that it was made of in C++, once or
/// twice, a node of autograd holds storages of its own, and neither is known to the collector. Once the garbage is
/// freed, a storage is gone or is not.
#[pyclass]
#[derive(Debug)]
pub struct GarbageLook {
    /// One for each tensor that has memory.
    tensors: Vec<(Key, u64)>,
    storages: HashMap<Key, Py<PyAny>>,
    cycles: Option<Unsettled>,
}

/// Looks at garbage that is saved in a list. Nothing of it is kept alive.
#[pyfunction]
#[pyo3(signature = (garbage, show_values = false))]
pub fn look(py: Python<'_>, garbage: &Bound<'_, PyList>, show_values: bool) -> PyResult<GarbageLook> {
    let mut look = GarbageLook { tensors: Vec::new(), storages: HashMap::new(), cycles: None };
    let Some(torch) = Torch::loaded(py)? else { return Ok(look) };
    let weak = py.import("torch.multiprocessing.reductions")?.getattr("StorageWeakRef")?;
    {
        let _guard = torch.without_overrides()?;
        for tensor in listed_instances(garbage, &mut torch.tensor_test()) {
            let Some(storage) = torch.storage(&tensor)? else { continue };
            let key = storage.key();
            if !look.storages.contains_key(&key) {
                look.storages.insert(key.clone(), weak.call1((&storage.object,))?.unbind());
            }
            look.tensors.push((key, storage.bytes));
        }
    }
    if !look.tensors.is_empty() {
        look.cycles = Some(unsettled(py, garbage, show_values)?);
    }
    Ok(look)
}

#[pymethods]
impl GarbageLook {
    /// Says what was found, once the garbage is freed: `census` of the tensors whose storage is gone, `shared` of those
    /// whose storage something alive uses, and `cycles`, the protocol's `CycleReport`, or None without any tensor.
    fn settled<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let mut is_alive: HashMap<&Key, bool> = HashMap::new();
        for (key, reference) in &self.storages {
            let expired: bool = reference.bind(py).call_method0("expired")?.extract()?;
            is_alive.insert(key, !expired);
        }
        let (mut gone, mut alive) = (Count::default(), Count::default());
        for (key, bytes) in &self.tensors {
            let count = if is_alive[key] { &mut alive } else { &mut gone };
            count.add(key.clone(), *bytes);
        }
        let lives = |key: &Key| is_alive.get(key).copied().unwrap_or(false);
        let cycles = self.cycles.as_ref().map(|cycles| to_python(py, &cycles.settled(lives))).transpose()?;
        let told = PyDict::new(py);
        told.set_item("census", to_python(py, &gone.census)?)?;
        told.set_item("shared", to_python(py, &alive.census)?)?;
        told.set_item("cycles", cycles)?;
        Ok(told)
    }
}
