//! Whether it is autograd, in C++, that holds an object.
//!
//! Only what is seen is said. What C++ nodes saved is not looked at, because unpacking it can run
//! hooks of the program.

use std::collections::HashSet;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use torchleak_protocol::NodeKind;

use crate::graph::read::{Readers, apply};
use crate::graph::traverse::Graph;

/// A graph of autograd is searched up to so many nodes.
const MOST_NODES: usize = 100_000;

/// How autograd holds the object `node`, which has references from outside of Python.
pub fn holder(graph: &Graph, readers: &Readers<'_>, node: u32) -> Option<String> {
    match graph.kind(node) {
        NodeKind::AutogradNode => Some(format!("held by C++: autograd node of {}", graph.facts(node).name)),
        NodeKind::Tensor => own_gradient(graph, readers, node),
        NodeKind::Dict => hooks(graph, readers, node),
        _ => None,
    }
}

/// The gradient of a leaf has a graph that leads back to the leaf.
fn own_gradient(graph: &Graph, readers: &Readers<'_>, node: u32) -> Option<String> {
    // SAFETY: the nodes of a graph are live.
    let leaf = unsafe { readers.borrow(graph.object(node)) };
    let base = readers.py.import("torch._C").and_then(|module| module.getattr("TensorBase")).ok()?;
    let member = |name: &str, tensor: &Bound<'_, PyAny>| {
        apply(&base.getattr(name).ok()?, &tensor.clone().into_any()).map(Bound::unbind)
    };
    // Asking another tensor for its gradient makes torch warn.
    if !member("is_leaf", &leaf)?.bind(readers.py).is_truthy().ok()? {
        return None;
    }
    let gradient = member("grad", &leaf)?;
    let made_by = member("grad_fn", gradient.bind(readers.py))?.into_bound(readers.py);
    let name = short_name(readers, &made_by);
    leads_to(readers, made_by, &leaf)
        .then(|| format!("held by C++: autograd node AccumulateGrad, in the graph of its own .grad ({name})"))
}

/// Whether a graph of autograd accumulates into a tensor.
fn leads_to<'py>(readers: &Readers<'py>, start: Bound<'py, PyAny>, leaf: &Bound<'py, PyAny>) -> bool {
    let Ok(python_node) = readers.py.import("torch._C").and_then(|module| module.getattr("_FunctionBase"))
    else {
        return false;
    };
    let next_of_python_node = python_node.getattr("next_functions").ok();
    let mut known = HashSet::new();
    // Objects that stand for C++ nodes are kept, so that an address is one node.
    let mut nodes = vec![start];
    let mut position = 0;
    while position < nodes.len() && nodes.len() < MOST_NODES {
        let node = nodes[position].clone();
        position += 1;
        // SAFETY: the type of a live object is live.
        let is_written_in_python =
            unsafe { ffi::PyType_GetFlags(node.get_type_ptr()) } & ffi::Py_TPFLAGS_HEAPTYPE != 0;
        let next = if is_written_in_python {
            next_of_python_node.as_ref().and_then(|descriptor| apply(descriptor, &node))
        } else {
            if node.getattr("variable").is_ok_and(|variable| variable.is(leaf)) {
                return true;
            }
            node.getattr("next_functions").ok()
        };
        let Some(next) = next.and_then(|next| next.cast_into::<PyTuple>().ok()) else { continue };
        for pair in next.iter() {
            let Some(node) = pair.cast::<PyTuple>().ok().and_then(|pair| pair.get_item(0).ok()) else {
                continue;
            };
            if !node.is_none() && known.insert(node.as_ptr() as usize) {
                nodes.push(node);
            }
        }
    }
    false
}

/// The dict of a tensor's hooks, which the node that made the tensor holds too.
fn hooks(graph: &Graph, readers: &Readers<'_>, dict: u32) -> Option<String> {
    let base = readers.py.import("torch._C").and_then(|module| module.getattr("TensorBase")).ok()?;
    let (hooks, grad_fn) = (base.getattr("_backward_hooks").ok()?, base.getattr("grad_fn").ok()?);
    let is_of = |&tensor: &u32| graph.is_tensor(tensor) && graph.targets(tensor).contains(&dict);
    (0..graph.node_count()).filter(is_of).find_map(|tensor| {
        // SAFETY: the nodes of a graph are live.
        let tensor = unsafe { readers.borrow(graph.object(tensor)) };
        if apply(&hooks, &tensor)?.as_ptr() != graph.object(dict) {
            return None;
        }
        let made_by = apply(&grad_fn, &tensor)
            .map_or_else(|| "AccumulateGrad".to_owned(), |node| short_name(readers, &node));
        Some(format!("held by C++: hooks of autograd node {made_by}"))
    })
}

fn short_name(readers: &Readers<'_>, node: &Bound<'_, PyAny>) -> String {
    // SAFETY: the type of a live object is live.
    let name = unsafe { readers.type_name(node.get_type().as_type_ptr()) };
    name.rsplit('.').next().unwrap_or(&name).to_owned()
}
