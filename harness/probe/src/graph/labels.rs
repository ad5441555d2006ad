//! A number for what an object is, the same for alike objects in every process.

use pyo3::ffi;
use rustc_hash::FxHashMap;
use torchleak_protocol::NodeKind;

use super::read::Readers;
use super::traverse::Graph;
use super::types::{hash_of, mix};

/// Combines the type of an object with the code that it has, if any.
pub struct Labels<'a, 'py> {
    readers: &'a Readers<'py>,
    codes: FxHashMap<*mut ffi::PyObject, u64>,
}

impl<'a, 'py> Labels<'a, 'py> {
    pub fn new(readers: &'a Readers<'py>) -> Self {
        Self { readers, codes: FxHashMap::default() }
    }

    pub fn of(&mut self, graph: &Graph, node: u32) -> u64 {
        let hash = graph.facts(node).hash;
        let has_code = matches!(
            graph.kind(node),
            NodeKind::Function | NodeKind::Frame | NodeKind::Generator | NodeKind::Coroutine
        );
        if !has_code {
            return hash;
        }
        // SAFETY: the nodes of a graph are live.
        let object = unsafe { self.readers.borrow(graph.object(node)) };
        let Some(code) = self.readers.code(&object) else { return hash };
        // A code object lives as long as the function that it was read from.
        let part = *self.codes.entry(code.as_ptr()).or_insert_with(|| {
            let name = self.readers.code_name(&code).unwrap_or_default();
            mix(hash_of(name.as_bytes()), u64::from(self.readers.first_line(&code).unwrap_or(0)))
        });
        mix(hash, part)
    }
}
