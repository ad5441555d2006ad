//! What the tensors among the objects are.

use std::cell::RefCell;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rustc_hash::FxHashMap;
use torchleak_protocol::TensorInfo;

use super::read::{Readers, apply, entries, exact_text};
use super::traverse::Graph;
use crate::torch::Torch;

/// A tensor with what it is and which storage it uses.
pub struct Tensor {
    pub node: u32,
    /// Index into [`Tensors::infos`].
    pub info: u32,
    /// Index into [`Tensors::storages`]; None for a tensor without memory of its own.
    pub storage: Option<u32>,
}

/// All tensors of a graph. Alike ones share their description.
#[derive(Default)]
pub struct Tensors {
    pub all: Vec<Tensor>,
    pub infos: Vec<TensorInfo>,
    /// Bytes of each storage.
    pub storages: Vec<u64>,
    /// Device and address of each storage.
    pub keys: Vec<(String, usize)>,
}

impl Tensors {
    /// Reads the tensors among `nodes`. Without torch, the objects are described by their class only.
    pub fn read<'py>(
        graph: &Graph,
        nodes: impl Iterator<Item = u32>,
        torch: Option<&Torch<'py>>,
        readers: &Readers<'py>,
    ) -> PyResult<Self> {
        let _guard = torch.map(Torch::without_overrides).transpose()?;
        let reader = torch.map(|torch| Reader::new(torch, readers)).transpose()?;
        let mut tensors = Self::default();
        let mut drafts = Vec::new();
        let mut devices: Vec<String> = Vec::new();
        let mut storages: FxHashMap<(usize, usize), u32> = FxHashMap::default();
        let mut users: Vec<u32> = Vec::new();
        let mut dispatches = FxHashMap::default();
        for node in nodes.filter(|&node| graph.is_tensor(node)) {
            // SAFETY: the nodes of a graph are live.
            let object = unsafe { readers.borrow(graph.object(node)) };
            let name = &graph.facts(node).name;
            let mut info = TensorInfo {
                class: (name != "torch.Tensor").then(|| name.clone()),
                shape: None,
                dtype: String::new(),
                device: String::new(),
                bytes: 0,
                requires_grad: false,
                grad_fn: None,
                shares_storage: false,
                storage_is_live: false,
            };
            let mut storage_of = None;
            if let (Some(torch), Some(reader)) = (torch, &reader) {
                if let Some(storage) = torch.storage(&object)? {
                    info.device.clone_from(&storage.device);
                    info.bytes = storage.bytes;
                    // An address means something on its device only.
                    let device =
                        devices.iter().position(|known| *known == storage.device).unwrap_or_else(|| {
                            devices.push(storage.device);
                            devices.len() - 1
                        });
                    let next = u32::try_from(users.len()).unwrap_or(u32::MAX);
                    let index = *storages.entry((device, storage.address)).or_insert(next);
                    if index == next {
                        users.push(0);
                        tensors.storages.push(storage.bytes);
                        tensors.keys.push((info.device.clone(), storage.address));
                    }
                    users[index as usize] += 1;
                    storage_of = Some(index);
                }
                let dispatches = *dispatches
                    .entry(object.get_type_ptr() as usize)
                    .or_insert_with(|| reader.has_own_dispatch(readers, &object));
                reader.fill(readers, &object, dispatches, &mut info);
            }
            drafts.push((node, info, storage_of));
        }
        let mut known: FxHashMap<TensorInfo, u32> = FxHashMap::default();
        for (node, mut info, storage) in drafts {
            info.shares_storage = storage.is_some_and(|storage| users[storage as usize] > 1);
            let index = known.get(&info).copied().unwrap_or_else(|| {
                let next = u32::try_from(tensors.infos.len()).unwrap_or(u32::MAX);
                tensors.infos.push(info.clone());
                known.insert(info, next);
                next
            });
            tensors.all.push(Tensor { node, info: index, storage });
        }
        Ok(tensors)
    }
}

/// Descriptors of torch's tensor class, which are applied as they are: a subclass's own property of
/// the same name is never asked.
struct Reader<'py> {
    shape: Bound<'py, PyAny>,
    dtype: Bound<'py, PyAny>,
    device: Bound<'py, PyAny>,
    requires_grad: Bound<'py, PyAny>,
    grad_fn: Bound<'py, PyAny>,
    disabled_dispatch: Bound<'py, PyAny>,
    /// By address: torch makes each dtype once and keeps it.
    dtype_names: RefCell<FxHashMap<usize, String>>,
}

impl<'py> Reader<'py> {
    fn new(torch: &Torch<'py>, readers: &Readers<'py>) -> PyResult<Self> {
        let base = &torch.tensor_base;
        let c_module = readers.py.import("torch._C")?;
        Ok(Self {
            shape: base.getattr("shape")?,
            dtype: base.getattr("dtype")?,
            device: base.getattr("device")?,
            requires_grad: base.getattr("requires_grad")?,
            grad_fn: base.getattr("grad_fn")?,
            disabled_dispatch: c_module.getattr("_disabled_torch_dispatch_impl")?,
            dtype_names: RefCell::default(),
        })
    }

    /// Whether the class of a tensor handles operators in Python. Such a class may also answer for
    /// sizes and device, in Python.
    fn has_own_dispatch(&self, readers: &Readers<'py>, tensor: &Bound<'py, PyAny>) -> bool {
        for class in readers.classes(tensor.get_type().as_any()) {
            let Some(dict) = readers.dict(&class) else { continue };
            let found =
                entries(&dict).find(|(key, _)| exact_text(key).as_deref() == Some("__torch_dispatch__"));
            if let Some((_, dispatch)) = found {
                return !dispatch.is(&self.disabled_dispatch);
            }
        }
        false
    }

    fn fill(
        &self,
        readers: &Readers<'py>,
        tensor: &Bound<'py, PyAny>,
        dispatches: bool,
        info: &mut TensorInfo,
    ) {
        let text = |value: Bound<'py, PyAny>| Some(value.str().ok()?.to_string_lossy().into_owned());
        if let Some(dtype) = apply(&self.dtype, tensor) {
            let mut names = self.dtype_names.borrow_mut();
            let name = names.entry(dtype.as_ptr() as usize).or_insert_with(|| {
                text(dtype).map_or_else(String::new, |name| name.trim_start_matches("torch.").to_owned())
            });
            info.dtype.clone_from(name);
        }
        info.requires_grad =
            apply(&self.requires_grad, tensor).is_some_and(|value| value.is_truthy().unwrap_or(false));
        if dispatches {
            return;
        }
        if info.device.is_empty() {
            info.device = apply(&self.device, tensor).and_then(text).unwrap_or_default();
        }
        info.shape = apply(&self.shape, tensor)
            .and_then(|shape| shape.cast::<PyTuple>().ok()?.iter().map(|size| size.extract().ok()).collect());
        // Without this, an autograd node's Python object is asked for that cannot be there.
        if !info.requires_grad {
            return;
        }
        info.grad_fn = apply(&self.grad_fn, tensor).map(|node| {
            // SAFETY: the type of a live object is live.
            let name = unsafe { readers.type_name(node.get_type().as_type_ptr()) };
            name.rsplit('.').next().unwrap_or(&name).to_owned()
        });
    }
}
