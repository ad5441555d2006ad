//! Why garbage that holds tensors is garbage: the cycles, by name.
//!
//! The stages run one after another, and only the last, which looks at what is shown, reads names:
//! `traverse` asks the collector's own visitors for all references, `leading` keeps what leads to tensors,
//! `scc` finds cycles, `tensors` reads shapes and storages, `blame` finds the nearest cycle of each tensor,
//! and `findings` merges what is alike and names it.
//!
//! No code of the examined objects runs. A collection could run finalizers, so none happens
//! meanwhile.

mod alike;
mod bits;
mod blame;
mod cycle;
mod edges;
mod findings;
mod hops;
mod index;
mod labels;
mod leading;
mod nodes;
mod read;
mod retained;
mod scc;
mod search;
mod tensors;
mod traverse;
mod types;
mod unsettled;

use std::collections::HashSet;
use std::time::Instant;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyType};
use torchleak_protocol::{CycleReport, CycleSeconds};

use crate::messages::to_python;
use crate::torch::Torch;
use edges::Namer;
use findings::{Facts, findings};
use labels::Labels;
use leading::leading;
use read::Readers;
use scc::components;
use tensors::Tensors;
use traverse::Graph;
use types::Types;

pub use retained::{live_storages, retained_by};
pub use unsettled::Unsettled;

/// So many findings are named where nobody says how many.
const MOST_FINDINGS: usize = 50;

/// Explains which reference cycles among `garbage` keep tensors alive: a dict of the shape of the
/// protocol's `CycleReport`.
///
/// `show_values` lets numbers and strings of the program into the report. `most_findings` bounds what
/// is named. `target` is the class whose instances are looked for instead of torch's tensors; they
/// are then described by their class alone, and torch need not be there.
#[pyfunction]
#[pyo3(signature = (garbage, show_values = false, most_findings = MOST_FINDINGS, target = None))]
pub fn cycles<'py>(
    py: Python<'py>,
    garbage: &Bound<'py, PyList>,
    show_values: bool,
    most_findings: usize,
    target: Option<&Bound<'py, PyType>>,
) -> PyResult<Bound<'py, PyAny>> {
    let _no_collection = NoCollection::new();
    to_python(py, &report(py, garbage, show_values, most_findings, target)?.settled(|_| false))
}

/// As [`cycles`] of torch's tensors, before it is known which of their memory goes with the garbage.
pub fn unsettled<'py>(
    py: Python<'py>,
    garbage: &Bound<'py, PyList>,
    show_values: bool,
) -> PyResult<Unsettled> {
    let _no_collection = NoCollection::new();
    report(py, garbage, show_values, MOST_FINDINGS, None)
}

fn report<'py>(
    py: Python<'py>,
    garbage: &Bound<'py, PyList>,
    show_values: bool,
    most_findings: usize,
    target: Option<&Bound<'py, PyType>>,
) -> PyResult<Unsettled> {
    let began = Instant::now();
    let readers = Readers::new(py)?;
    let torch = if target.is_some() { None } else { Torch::loaded(py)? };
    let class = target.or(torch.as_ref().map(|torch| &torch.tensor_base));
    let all = Graph::of(garbage, &readers, Types::new(py, class, &autograd_classes(py, torch.is_some())));
    let traversed = Instant::now();
    let (objects, edges) = (all.len() as u64, all.edge_count() as u64);
    let kept = leading(&all);
    let graph = all.only(&kept);
    let components = components(&graph);
    let found = Instant::now();
    let tensors = Tensors::read(&graph, 0..graph.node_count(), torch.as_ref(), &readers)?;
    let described = Instant::now();
    let mut labels = Labels::new(&readers);
    let blame = blame::blame(&graph, &components, &tensors, &mut labels);
    let blamed = Instant::now();
    let facts = Facts { graph: &graph, components: &components, tensors: &tensors, blame: &blame };
    let (findings, held, findings_left_out) =
        findings(&facts, &Namer { readers: &readers, show_values }, most_findings);
    let explained: HashSet<u32> = (tensors.all.iter().zip(&blame.owners))
        .filter_map(|(tensor, owner)| owner.and(tensor.storage))
        .collect();
    let report = CycleReport {
        objects,
        edges,
        leading: graph.len() as u64,
        leading_edges: different_edges(&graph),
        tensors: tensors.all.len() as u64,
        tensor_bytes: 0,
        components: components.len() as u64,
        findings,
        findings_left_out,
        unexplained_bytes: 0,
        seconds: CycleSeconds {
            traverse: (traversed - began).as_secs_f64(),
            components: ((found - traversed) + (blamed - described)).as_secs_f64(),
            names: ((described - found) + blamed.elapsed()).as_secs_f64(),
        },
    };
    let storages = tensors.keys.into_iter().zip(tensors.storages).collect();
    Ok(Unsettled { report, storages, held, explained: explained.into_iter().collect() })
}

/// Different pairs of objects of which the first refers to the second.
fn different_edges(graph: &Graph) -> u64 {
    let mut targets: Vec<u32> = Vec::new();
    let mut count = 0;
    for node in 0..graph.node_count() {
        targets.clear();
        targets.extend_from_slice(graph.targets(node));
        targets.sort_unstable();
        targets.dedup();
        count += targets.len() as u64;
    }
    count
}

/// Classes of autograd nodes: `Function` contexts, and what C++ shows of its own nodes.
fn autograd_classes<'py>(py: Python<'py>, has_torch: bool) -> Vec<Bound<'py, PyType>> {
    if !has_torch {
        return Vec::new();
    }
    let Ok(c_module) = py.import("torch._C") else { return Vec::new() };
    ["_FunctionBase", "Node"]
        .iter()
        .filter_map(|name| c_module.getattr(*name).ok()?.cast_into::<PyType>().ok())
        .collect()
}

/// While it lives, no automatic collection runs.
struct NoCollection {
    was_enabled: bool,
}

impl NoCollection {
    fn new() -> Self {
        // SAFETY: the interpreter is attached wherever this is made.
        Self { was_enabled: unsafe { ffi::PyGC_Disable() } != 0 }
    }
}

impl Drop for NoCollection {
    fn drop(&mut self) {
        if self.was_enabled {
            // SAFETY: it is dropped where it was made.
            unsafe { ffi::PyGC_Enable() };
        }
    }
}
