//! Which storages that garbage uses are used by something alive as well: freeing the garbage does not
//! free those.

use std::collections::{HashMap, HashSet};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{IntoPyDict, PyList};

use crate::heap::{count_references, tracked_instances};
use crate::torch::{Guard, Storage, Torch};

type Key = (String, usize);

/// The storages that live tensors share with tensors in garbage.
#[derive(Default)]
pub struct LiveStorages(HashSet<Key>);

impl LiveStorages {
    /// Looks at all tensors besides `dead`, which are those of `garbage`. The caller has disabled the code of
    /// subclasses and modes.
    ///
    /// The tensor that a view was made of lives as long as the view does, held in C++ where the collector cannot
    /// see it. One that nothing but garbage and its views hold is no live tensor: it goes with them.
    pub fn besides<'py>(
        torch: &Torch<'py>,
        garbage: &Bound<'py, PyList>,
        dead: &[Bound<'py, PyAny>],
    ) -> PyResult<Self> {
        let mut users: HashMap<Key, Vec<&Bound<'py, PyAny>>> = HashMap::new();
        for tensor in dead {
            if let Some(storage) = torch.storage(tensor)? {
                users.entry(key(&storage)).or_default().push(tensor);
            }
        }
        let mut live = Self::default();
        if users.is_empty() {
            return Ok(live);
        }
        let addresses: HashSet<*mut ffi::PyObject> = dead.iter().map(Bound::as_ptr).collect();
        let owning = Owning::of(torch, garbage.py());
        let mut bases = Vec::new();
        for tensor in tracked_instances(garbage.py(), &mut torch.tensor_test())? {
            if addresses.contains(&tensor.as_ptr()) {
                continue;
            }
            let Some(storage) = torch.storage(&tensor)? else { continue };
            let key = key(&storage);
            let Some(sharing) = users.get(&key) else { continue };
            match owning.and_then(|owning| owning.references_besides_views(torch, &tensor, sharing)) {
                Some(others) => bases.push((tensor, key, others)),
                None => {
                    live.0.insert(key);
                }
            }
        }
        let mut from_garbage: HashMap<_, usize> =
            bases.iter().filter(|(.., others)| *others > 0).map(|(base, ..)| (base.as_ptr(), 0)).collect();
        if !from_garbage.is_empty() {
            count_references(garbage, &mut from_garbage);
        }
        for (base, key, others) in bases {
            if others != from_garbage.get(&base.as_ptr()).copied().unwrap_or(0) {
                live.0.insert(key);
            }
        }
        Ok(live)
    }

    pub fn contains(&self, storage: &Storage) -> bool {
        !self.0.is_empty() && self.0.contains(&key(storage))
    }
}

fn key(storage: &Storage) -> Key {
    (storage.device.clone(), storage.address)
}

/// How a tensor that C++ holds as well as Python counts its references.
#[derive(Debug, Clone, Copy)]
struct Owning {
    /// Whether a reference from C++ keeps the Python object by a reference of its own, besides which the Python
    /// object has one to the tensor. Elsewhere, one of the two owns the other: as long as Python does, C++'s
    /// references are not among Python's.
    both: bool,
}

impl Owning {
    /// Tries which it is on a gradient of this module's own, once. None if that cannot be told.
    fn of(torch: &Torch<'_>, py: Python<'_>) -> Option<Self> {
        static OWNING: PyOnceLock<Option<Owning>> = PyOnceLock::new();
        *OWNING.get_or_init(py, || {
            // One reference from Python is held there, and one of all references is the Python object's.
            match gradient_counts(torch, py).ok()? {
                (1, 2) => Some(Self { both: false }),
                (2, 2) => Some(Self { both: true }),
                _ => None,
            }
        })
    }

    /// How many references there are to the Python object of a tensor besides those of the views of it among
    /// `sharing`. None if it has no such views, or if C++ holds it by more than those. The caller has one
    /// reference to it, which does not count.
    fn references_besides_views<'py>(
        self,
        torch: &Torch<'py>,
        tensor: &Bound<'py, PyAny>,
        sharing: &[&Bound<'py, PyAny>],
    ) -> Option<usize> {
        // The counts come first: to ask a view for its base can move the ownership to Python.
        let (all, python) = (torch.use_count(tensor)?, python_count(tensor));
        let views =
            sharing.iter().filter(|view| torch.base(view).is_some_and(|base| base.is(tensor))).count();
        (views > 0 && all == views + usize::from(self.both)).then(|| python.saturating_sub(2))
    }
}

/// How often a gradient is referred to by Python, and how often in all, while a leaf and one Python name hold it.
fn gradient_counts(torch: &Torch<'_>, py: Python<'_>) -> PyResult<(usize, usize)> {
    let c_module = py.import("torch._C")?;
    // Modes that the program has set see nothing of it.
    let _functions = torch.without_overrides()?;
    let _dispatch = Guard::enter(&c_module.getattr("_DisableTorchDispatch")?)?;
    let module = py.import("torch")?;
    let on_the_cpu = [("device", "cpu")].into_py_dict(py)?;
    let empty = || module.call_method("empty", (0,), Some(&on_the_cpu));
    let (leaf, gradient) = (empty()?, empty()?);
    leaf.setattr("grad", &gradient)?;
    Ok((python_count(&gradient), torch.use_count(&gradient).unwrap_or(0)))
}

/// References to a Python object.
fn python_count(object: &Bound<'_, PyAny>) -> usize {
    // From Python 3.14 on flags lie in the upper half of what the stable ABI has as the count.
    // SAFETY: the object is live, and the interpreter is attached.
    let count = unsafe { ffi::Py_REFCNT(object.as_ptr()) };
    (count & 0xffff_ffff).try_into().unwrap_or(0)
}
