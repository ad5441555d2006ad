//! What the probe asks of torch, without running code of tensor subclasses or of modes that the program has set.

use std::cell::RefCell;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use crate::heap::InstanceTest;

/// The memory behind a tensor.
pub struct Storage<'py> {
    pub device: String,
    pub address: usize,
    pub bytes: u64,
    /// torch's own object.
    pub object: Bound<'py, PyAny>,
}

impl Storage<'_> {
    /// An address means something on its device only.
    pub fn key(&self) -> (String, usize) {
        (self.device.clone(), self.address)
    }
}

/// What is needed of torch, once it is imported.
pub struct Torch<'py> {
    pub tensor_base: Bound<'py, PyType>,
    untyped_storage: Bound<'py, PyAny>,
    guard: Bound<'py, PyAny>,
    /// The device of the last storage with its name: most tensors are on one device, and a name costs
    /// more to make than to compare.
    last_device: RefCell<Option<(Bound<'py, PyAny>, String)>>,
}

impl<'py> Torch<'py> {
    /// Finds torch among the imported modules; the probe never imports it, because an import would
    /// change what is measured.
    pub fn loaded(py: Python<'py>) -> PyResult<Option<Self>> {
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
            Ok(c_module.getattr("DisableTorchFunction")?.unbind())
        })?;
        Ok(Some(Self {
            tensor_base: base.bind(py).clone(),
            untyped_storage: untyped_storage.bind(py).clone(),
            guard: guard.bind(py).clone(),
            last_device: RefCell::new(None),
        }))
    }

    pub fn tensor_test(&self) -> InstanceTest {
        InstanceTest::new(&self.tensor_base)
    }

    /// While the guard lives, `__torch_function__` of subclasses and of modes is not called.
    pub fn without_overrides(&self) -> PyResult<Guard<'py>> {
        Guard::enter(&self.guard)
    }

    /// The storage of a tensor, or None for a tensor without memory of its own (meta tensors,
    /// wrapper subclasses, sparse layouts, empty tensors).
    pub fn storage(&self, tensor: &Bound<'py, PyAny>) -> PyResult<Option<Storage<'py>>> {
        let py = tensor.py();
        let Ok(storage) = self.untyped_storage.call1((tensor,)) else { return Ok(None) };
        let Ok(address) =
            storage.call_method0(intern!(py, "data_ptr")).and_then(|value| value.extract::<usize>())
        else {
            return Ok(None);
        };
        if address == 0 {
            return Ok(None);
        }
        let bytes = storage.call_method0(intern!(py, "nbytes"))?.extract()?;
        let device = self.device_name(storage.getattr(intern!(py, "device"))?)?;
        Ok(Some(Storage { device, address, bytes, object: storage }))
    }

    fn device_name(&self, device: Bound<'py, PyAny>) -> PyResult<String> {
        let mut last = self.last_device.borrow_mut();
        if let Some((known, name)) = &*last
            && known.eq(&device)?
        {
            return Ok(name.clone());
        }
        let name = device.str()?.to_string();
        *last = Some((device, name.clone()));
        Ok(name)
    }
}

/// A context manager of torch that is left when this is dropped.
pub struct Guard<'py>(Bound<'py, PyAny>);

impl<'py> Guard<'py> {
    pub fn enter(class: &Bound<'py, PyAny>) -> PyResult<Self> {
        let guard = class.call0()?;
        guard.call_method0("__enter__")?;
        Ok(Self(guard))
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let none = self.0.py().None();
        // Leaving the guard cannot fail in a way that a caller could act on.
        let _ = self.0.call_method1("__exit__", (&none, &none, &none));
    }
}
