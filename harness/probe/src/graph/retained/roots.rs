//! Objects that are alive for a reason of their own, and what they reach.

use std::collections::HashMap;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use torchleak_protocol::{NodeKind, RootKind};

use super::frames::RunningFrames;
use crate::graph::bits::Bits;
use crate::graph::read::{Readers, entries};
use crate::graph::search::Search;
use crate::graph::traverse::Graph;

/// The nearest root of every object.
///
/// An object that is reached from a root with a name is held by that one, even if something outside
/// of Python is nearer: a name is what a person can act on. What no such root reaches is searched from
/// the objects that are held from outside.
pub struct Reach {
    search: Search,
    kinds: HashMap<u32, RootKind>,
    named: Bits,
}

impl Reach {
    /// The first `listed` items of `list` are those of the graph to which the list refers.
    pub fn of<'py>(
        graph: &Graph,
        readers: &Readers<'py>,
        list: &Bound<'py, PyList>,
        listed: usize,
        modules: &Bound<'py, PyAny>,
        frames: &RunningFrames<'_, 'py>,
    ) -> Self {
        let mut search = Search::new(graph.len());
        let mut kinds = HashMap::new();
        let named = named_roots(readers, modules, frames);
        let named: HashMap<_, _> = named.iter().map(|(object, kind)| (object.as_ptr(), *kind)).collect();
        for node in 0..graph.node_count() {
            if let Some(kind) = named.get(&graph.object(node)) {
                kinds.insert(node, *kind);
            } else if graph.kind(node) == NodeKind::Type && is_no_local_class(graph, readers, node) {
                kinds.insert(node, RootKind::Type);
            }
        }
        kinds.keys().for_each(|&node| search.begin(node));
        search.run(graph, |_| true, |_, _, _| true);
        let mut named = Bits::new(graph.len());
        (0..graph.node_count()).filter(|&node| search.is_reached(node)).for_each(|node| named.insert(node));

        for node in held_from_outside(graph, list, listed, &named) {
            let is_context =
                graph.facts(node).name.ends_with("Context") && graph.kind(node) == NodeKind::Other;
            kinds.insert(node, if is_context { RootKind::Thread } else { RootKind::Cpp });
            search.begin(node);
        }
        search.run(graph, |node| !named.contains(node), |_, _, _| true);
        Self { search, kinds, named }
    }

    /// What is lower is a better explanation.
    pub fn rank(&self, node: u32) -> (bool, u32) {
        (!self.named.contains(node), self.search.distance(node))
    }

    /// The path from the nearest root, and what that is.
    pub fn path(&self, node: u32) -> (Vec<u32>, RootKind) {
        let path = self.search.path(node);
        let kind = self.kinds.get(&path[0]).copied().unwrap_or(RootKind::Garbage);
        (path, kind)
    }

    pub fn search(&self) -> &Search {
        &self.search
    }
}

fn named_roots<'py>(
    readers: &Readers<'py>,
    modules: &Bound<'py, PyAny>,
    frames: &RunningFrames<'_, 'py>,
) -> Vec<(Bound<'py, PyAny>, RootKind)> {
    let mut roots = Vec::new();
    if let Ok(modules) = modules.cast::<PyDict>() {
        roots.extend(entries(modules).map(|(_, module)| (module, RootKind::Module)));
    }
    roots.extend(frames.all().iter().map(|frame| (frame.clone(), RootKind::Frame)));
    // SAFETY: the interpreter is attached. The dict belongs to the thread; there may be none.
    let locals = unsafe { Bound::from_borrowed_ptr_or_opt(readers.py, ffi::PyThreadState_GetDict()) };
    roots.extend(locals.map(|locals| (locals, RootKind::Thread)));
    let handled = readers.py.import("sys").and_then(|sys| sys.call_method0("exc_info")?.get_item(1));
    roots.extend(handled.ok().filter(|error| !error.is_none()).map(|error| (error, RootKind::Thread)));
    roots
}

/// Whether a class is one of a module or of another class. A class made in a function lives as long
/// as something holds it, and what does is asked for.
fn is_no_local_class(graph: &Graph, readers: &Readers<'_>, node: u32) -> bool {
    // SAFETY: the nodes of a graph are live, and this one is a type.
    !unsafe { readers.type_name(graph.object(node).cast()) }.contains("<locals>")
}

/// Objects that no named root reaches and that have more references than the graph accounts for.
fn held_from_outside(graph: &Graph, list: &Bound<'_, PyList>, listed: usize, named: &Bits) -> Vec<u32> {
    let mut seen = vec![0_u32; graph.len()];
    for node in 0..graph.node_count() {
        for &target in graph.targets(node) {
            seen[target as usize] += 1;
        }
    }
    // The list itself has a reference to what it lists.
    let listed: std::collections::HashSet<usize> =
        list.iter().take(listed).map(|object| object.as_ptr() as usize).collect();
    (0..graph.node_count())
        .filter(|&node| !named.contains(node) && graph.kind(node) != NodeKind::Type)
        .filter(|&node| {
            let object = graph.object(node);
            // SAFETY: the nodes of a graph are live.
            let references = unsafe { ffi::Py_REFCNT(object) };
            let own = ffi::Py_ssize_t::from(listed.contains(&(object as usize)));
            references - own > ffi::Py_ssize_t::try_from(seen[node as usize]).unwrap_or(ffi::Py_ssize_t::MAX)
        })
        .collect()
}
