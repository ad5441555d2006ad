//! The tensor census: which storages Python's tensors use, each counted once.

use std::collections::HashSet;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyType};
use torchleak_protocol::Census;

use crate::heap::{InstanceTest, listed_instances, tracked_instances};
use crate::messages::to_python;

/// Counts the live tensors: a dict from device to tensors, storages and bytes. It is empty before
/// torch is imported.
#[pyfunction]
pub fn census(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let Some(torch) = Torch::loaded(py)? else { return to_python(py, &Census::new()) };
    let tensors = tracked_instances(py, &mut torch.tensor_test())?;
    let mut count = Count::default();
    let _guard = torch.without_subclass_code()?;
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
        let mut test = torch.tensor_test();
        let dead = listed_instances(garbage, &mut test);
        let dead_addresses: HashSet<usize> = dead.iter().map(|tensor| tensor.as_ptr() as usize).collect();
        let _guard = torch.without_subclass_code()?;
        let mut live_storages = HashSet::new();
        for tensor in tracked_instances(py, &mut test)? {
            if !dead_addresses.contains(&(tensor.as_ptr() as usize))
                && let Some(storage) = torch.storage(&tensor)?
            {
                live_storages.insert((storage.device, storage.address));
            }
        }
        for tensor in &dead {
            let is_shared = torch
                .storage(tensor)?
                .is_some_and(|storage| live_storages.contains(&(storage.device, storage.address)));
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
    fn add(&mut self, torch: &Torch<'_>, tensor: &Bound<'_, PyAny>) -> PyResult<()> {
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

/// The memory behind a tensor.
struct Storage {
    device: String,
    address: usize,
    bytes: u64,
}

/// What is needed of torch, once it is imported.
struct Torch<'py> {
    tensor_base: Bound<'py, PyType>,
    untyped_storage: Bound<'py, PyAny>,
    guard: Bound<'py, PyAny>,
}

impl<'py> Torch<'py> {
    /// Finds torch among the imported modules; the probe never imports it, because an import would
    /// change what is measured.
    fn loaded(py: Python<'py>) -> PyResult<Option<Self>> {
        static BASE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        static STORAGE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        static GUARD: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let modules = py.import("sys")?.getattr("modules")?;
        let Ok(c_module) = modules.get_item("torch._C") else { return Ok(None) };
        let base = BASE.get_or_try_init(py, || -> PyResult<_> {
            Ok(c_module.getattr("TensorBase")?.cast_into::<PyType>()?.unbind())
        })?;
        let untyped_storage = STORAGE.get_or_try_init(py, || -> PyResult<_> {
            Ok(c_module.getattr("TensorBase")?.getattr("untyped_storage")?.unbind())
        })?;
        let guard = GUARD.get_or_try_init(py, || -> PyResult<_> {
            Ok(c_module.getattr("DisableTorchFunctionSubclass")?.unbind())
        })?;
        Ok(Some(Self {
            tensor_base: base.bind(py).clone(),
            untyped_storage: untyped_storage.bind(py).clone(),
            guard: guard.bind(py).clone(),
        }))
    }

    fn tensor_test(&self) -> InstanceTest {
        InstanceTest::new(&self.tensor_base)
    }

    /// While the guard lives, `__torch_function__` of tensor subclasses is not called.
    fn without_subclass_code(&self) -> PyResult<SubclassGuard<'py>> {
        let guard = self.guard.call0()?;
        guard.call_method0("__enter__")?;
        Ok(SubclassGuard(guard))
    }

    /// The storage of a tensor, or None for a tensor without memory of its own (meta tensors,
    /// wrapper subclasses, sparse layouts, empty tensors).
    fn storage(&self, tensor: &Bound<'py, PyAny>) -> PyResult<Option<Storage>> {
        let Ok(storage) = self.untyped_storage.call1((tensor,)) else { return Ok(None) };
        let Ok(address) = storage.call_method0("data_ptr").and_then(|value| value.extract::<usize>()) else {
            return Ok(None);
        };
        if address == 0 {
            return Ok(None);
        }
        let bytes = storage.call_method0("nbytes")?.extract()?;
        let device = storage.getattr("device")?.str()?.to_string();
        Ok(Some(Storage { device, address, bytes }))
    }
}

struct SubclassGuard<'py>(Bound<'py, PyAny>);

impl Drop for SubclassGuard<'_> {
    fn drop(&mut self) {
        let none = self.0.py().None();
        // Leaving the guard cannot fail in a way that a caller could act on.
        let _ = self.0.call_method1("__exit__", (&none, &none, &none));
    }
}
