//! What keeps tensors alive that no collection frees.
//!
//! `frames` finds the variables of running code, which the collector is never shown; `roots` finds
//! the objects that are alive for a reason of their own and searches from all of them at once;
//! `autograd` asks torch about objects that C++ holds; `merge` names what is alike once.

mod autograd;
mod frames;
mod merge;
mod roots;

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use pyo3::prelude::*;
use pyo3::types::PyList;
use torchleak_protocol::RetentionReport;

use super::read::Readers;
use super::tensors::Tensors;
use super::traverse::Graph;
use super::types::Types;
use super::{NoCollection, autograd_classes};
use crate::heap::tracked_instances;
use crate::messages::to_python;
use crate::torch::Torch;
use frames::RunningFrames;
use roots::Reach;

/// Addresses of the storages of all live tensors, for a later [`retained_by`].
#[pyfunction]
pub fn live_storages(py: Python<'_>) -> PyResult<HashSet<usize>> {
    let Some(torch) = Torch::loaded(py)? else { return Ok(HashSet::new()) };
    let _guard = torch.without_overrides()?;
    let mut addresses = HashSet::new();
    for tensor in tracked_instances(py, &mut torch.tensor_test())? {
        addresses.extend(torch.storage(&tensor)?.map(|storage| storage.address));
    }
    Ok(addresses)
}

/// Explains what keeps tensors alive: a dict of the shape of the protocol's `RetentionReport`.
///
/// `before` holds addresses of storages that are not asked about, as [`live_storages`] gave them.
/// `limit` bounds what is named. It is for use after a full collection: before one, garbage has no
/// root and is said to be garbage.
#[pyfunction]
#[pyo3(signature = (limit = 20, before = None, show_values = false))]
pub fn retained_by<'py>(
    py: Python<'py>,
    limit: usize,
    before: Option<HashSet<usize>>,
    show_values: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let _no_collection = NoCollection::new();
    to_python(py, &report(py, limit, &before.unwrap_or_default(), show_values)?)
}

fn report(
    py: Python<'_>,
    limit: usize,
    before: &HashSet<usize>,
    show_values: bool,
) -> PyResult<RetentionReport> {
    let began = Instant::now();
    let Some(torch) = Torch::loaded(py)? else { return Ok(RetentionReport::default()) };
    let readers = Readers::new(py)?;
    let frames = RunningFrames::new(&readers)?;
    // It lacks what `gc.freeze` put aside; all of that which matters is reached from a module.
    let list = py.import("gc")?.call_method0("get_objects")?.cast_into::<PyList>()?;
    let listed = list.len();
    let modules = py.import("sys")?.getattr("modules")?;
    list.append(&modules)?;
    for frame in frames.all() {
        list.append(frame)?;
    }
    let types = Types::new(py, Some(&torch.tensor_base), &autograd_classes(py, true));
    let graph = Graph::reached_from(&list, &readers, types, frames.unshown());
    let reach = Reach::of(&graph, &readers, &list, listed, &modules, &frames);

    let new = new_tensors(&graph, &torch, &readers, before)?;
    let tensors = Tensors::read(&graph, new.into_iter(), Some(&torch), &readers)?;
    let (retentions, retentions_left_out) = merge::retentions(
        &merge::Facts { graph: &graph, reach: &reach, tensors: &tensors },
        &readers,
        limit,
        show_values,
    );
    Ok(RetentionReport {
        objects: graph.len() as u64,
        storages: tensors.storages.len() as u64,
        bytes: tensors.storages.iter().sum(),
        retentions,
        retentions_left_out,
        seconds: began.elapsed().as_secs_f64(),
    })
}

/// Tensors whose storage is not known from before.
fn new_tensors<'py>(
    graph: &Graph,
    torch: &Torch<'py>,
    readers: &Readers<'py>,
    before: &HashSet<usize>,
) -> PyResult<Vec<u32>> {
    let _guard = torch.without_overrides()?;
    let mut new = Vec::new();
    for node in (0..graph.node_count()).filter(|&node| graph.is_tensor(node)) {
        // SAFETY: the nodes of a graph are live.
        let tensor = unsafe { readers.borrow(graph.object(node)) };
        if torch.storage(&tensor)?.is_some_and(|storage| !before.contains(&storage.address)) {
            new.push(node);
        }
    }
    Ok(new)
}

/// The tensor that is nearest to a root, of each storage.
fn nearest(tensors: &Tensors, reach: &Reach) -> Vec<u32> {
    let mut by_storage: HashMap<u32, ((bool, u32), u32)> = HashMap::new();
    for (index, tensor) in (0..).zip(&tensors.all) {
        let Some(storage) = tensor.storage else { continue };
        let found = (reach.rank(tensor.node), index);
        by_storage.entry(storage).and_modify(|known| *known = (*known).min(found)).or_insert(found);
    }
    let mut nearest: Vec<u32> = by_storage.into_values().map(|(_, index)| index).collect();
    nearest.sort_unstable();
    nearest
}
