//! The references among a set of objects, as the collector itself sees them.

use std::ffi::{c_int, c_void};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;
use rustc_hash::FxHashMap;
use torchleak_protocol::NodeKind;

use super::bits::Bits;
use super::index::Index;
use super::read::Readers;
use super::types::{TypeFacts, TypeId, Types};

/// Objects and their references, in compressed rows: 20 bytes an object and 4 a reference.
pub struct Graph {
    objects: Vec<*mut ffi::PyObject>,
    type_ids: Vec<TypeId>,
    /// Where the references of each object begin in `targets`, and the end of the last.
    starts: Vec<u32>,
    targets: Vec<u32>,
    pub types: Types,
}

/// References that an object has and does not show to the collector, by the object's address.
pub type Unshown = FxHashMap<usize, Vec<*mut ffi::PyObject>>;

impl Graph {
    /// Visits every object of `list`, which must keep them alive as long as the graph is used.
    pub fn of(list: &Bound<'_, PyList>, readers: &Readers<'_>, types: Types) -> Self {
        Self::visit(list, readers, types, None)
    }

    /// Visits every object of `list`, and all that is reached from them.
    ///
    /// The objects in `unshown` must be live as long as the graph is used.
    pub fn reached_from(
        list: &Bound<'_, PyList>,
        readers: &Readers<'_>,
        types: Types,
        unshown: &Unshown,
    ) -> Self {
        Self::visit(list, readers, types, Some(unshown))
    }

    fn visit(
        list: &Bound<'_, PyList>,
        readers: &Readers<'_>,
        types: Types,
        unshown: Option<&Unshown>,
    ) -> Self {
        // SAFETY: the list is not changed here, and each index is below its length.
        let addresses: Vec<usize> = (0..list.len())
            .map(|index| unsafe { ffi::PyList_GetItem(list.as_ptr(), index as ffi::Py_ssize_t) } as usize)
            .collect();
        let index = Index::new(&addresses);
        let mut objects = vec![std::ptr::null_mut(); index.len()];
        for &address in &addresses {
            if let Some(node) = index.find(address) {
                objects[node as usize] = address as *mut ffi::PyObject;
            }
        }
        drop(addresses);
        let len = objects.len();
        let mut visitor = Visitor {
            graph: Self {
                objects,
                type_ids: Vec::with_capacity(len),
                starts: Vec::with_capacity(len + 1),
                targets: Vec::with_capacity(2 * len),
                types,
            },
            index,
            readers,
            hidden: FxHashMap::default(),
            unshown,
            strangers: [0; 1024],
        };
        visitor.walk();
        visitor.graph.targets.shrink_to_fit();
        visitor.graph
    }

    /// The graph of the objects in `keep` alone; what leads out of them is dropped, the order stays.
    pub fn only(self, keep: &Bits) -> Self {
        let mut numbers = vec![u32::MAX; self.len()];
        let kept: Vec<u32> = keep.iter().collect();
        for (number, &node) in (0..).zip(&kept) {
            numbers[node as usize] = number;
        }
        let mut starts = Vec::with_capacity(kept.len() + 1);
        let mut targets = Vec::new();
        for &node in &kept {
            starts.push(u32::try_from(targets.len()).unwrap_or(u32::MAX));
            let inside = self.targets(node).iter().map(|&target| numbers[target as usize]);
            targets.extend(inside.filter(|&number| number != u32::MAX));
        }
        starts.push(u32::try_from(targets.len()).unwrap_or(u32::MAX));
        Self {
            objects: kept.iter().map(|&node| self.objects[node as usize]).collect(),
            type_ids: kept.iter().map(|&node| self.type_ids[node as usize]).collect(),
            starts,
            targets,
            types: self.types,
        }
    }

    pub fn len(&self) -> usize {
        self.objects.len()
    }

    pub fn node_count(&self) -> u32 {
        u32::try_from(self.len()).unwrap_or(u32::MAX)
    }

    pub fn edge_count(&self) -> usize {
        self.targets.len()
    }

    #[inline]
    pub fn object(&self, node: u32) -> *mut ffi::PyObject {
        self.objects[node as usize]
    }

    #[inline]
    pub fn facts(&self, node: u32) -> &TypeFacts {
        self.types.facts(self.type_ids[node as usize])
    }

    #[inline]
    pub fn kind(&self, node: u32) -> NodeKind {
        self.facts(node).kind
    }

    #[inline]
    pub fn is_tensor(&self, node: u32) -> bool {
        self.kind(node) == NodeKind::Tensor
    }

    #[inline]
    pub fn edge_start(&self, node: u32) -> u32 {
        self.starts[node as usize]
    }

    #[inline]
    pub fn edge_end(&self, node: u32) -> u32 {
        self.starts[node as usize + 1]
    }

    #[inline]
    pub fn edge(&self, edge: u32) -> u32 {
        self.targets[edge as usize]
    }

    #[inline]
    pub fn targets(&self, node: u32) -> &[u32] {
        &self.targets[self.edge_start(node) as usize..self.edge_end(node) as usize]
    }
}

/// What the collector's visit calls write to.
struct Visitor<'a, 'py> {
    graph: Graph,
    index: Index,
    readers: &'a Readers<'py>,
    /// Objects of the graph that the list lacks: made since, or never shown to the collector by the
    /// extension that made them.
    hidden: FxHashMap<usize, u32>,
    /// Present if all that is met becomes part of the graph.
    unshown: Option<&'a Unshown>,
    /// Addresses lately met that are no part of the graph, such as modules' globals.
    strangers: [usize; 1024],
}

impl Visitor<'_, '_> {
    fn walk(&mut self) {
        let mut node = 0;
        // Hidden objects are appended while this runs.
        while node < self.graph.objects.len() {
            let object = self.graph.objects[node];
            if let Some(&soon) = self.graph.objects.get(node + AHEAD) {
                prefetch(soon);
            }
            self.graph.starts.push(u32::try_from(self.graph.targets.len()).unwrap_or(u32::MAX));
            // SAFETY: the list that the objects came from keeps them alive, and they keep alive what
            // they refer to. The interpreter is attached and no Python code runs in between.
            unsafe {
                let id = self.graph.types.of(self.readers, object);
                self.graph.type_ids.push(id);
                if let Some(traverse) = self.graph.types.facts(id).may_traverse(object) {
                    traverse(object, visit, (&raw mut *self).cast());
                }
            }
            if let Some(more) = self.unshown.and_then(|unshown| unshown.get(&(object as usize))) {
                more.iter().for_each(|&object| self.meet(object));
            }
            node += 1;
        }
        self.graph.starts.push(u32::try_from(self.graph.targets.len()).unwrap_or(u32::MAX));
    }

    #[inline]
    fn meet(&mut self, object: *mut ffi::PyObject) {
        if let Some(node) = self.index.find(object as usize) {
            self.graph.targets.push(node);
        } else {
            self.meet_unlisted(object);
        }
    }

    fn meet_unlisted(&mut self, object: *mut ffi::PyObject) {
        let slot = (object as usize >> 4) % self.strangers.len();
        if self.strangers[slot] == object as usize {
            return;
        }
        // SAFETY: the object that is being visited keeps this one alive.
        unsafe {
            let id = self.graph.types.of(self.readers, object);
            let facts = self.graph.types.facts(id);
            // A type's own references lead everywhere.
            let is_hidden = facts.may_traverse(object).is_some()
                && (self.unshown.is_some()
                    || facts.kind != NodeKind::Type && Self::is_left_out(facts.kind, object));
            if !is_hidden {
                self.strangers[slot] = object as usize;
                return;
            }
        }
        let next = u32::try_from(self.graph.objects.len()).unwrap_or(u32::MAX);
        let node = *self.hidden.entry(object as usize).or_insert(next);
        if node == next {
            self.graph.objects.push(object);
        }
        self.graph.targets.push(node);
    }

    /// Whether an object that the list of garbage lacks is garbage too.
    ///
    /// Python itself leaves a tuple or dict untracked only while it holds nothing that could be part of a
    /// cycle, so these hide nothing. A tracked object that is not listed is no garbage, unless nothing but
    /// the object that is being visited holds it: so it is with a dict that was made for an instance since
    /// the collection, when somebody looked at its attributes.
    ///
    /// # Safety
    /// `object` must be a live object that the collector may traverse.
    unsafe fn is_left_out(kind: NodeKind, object: *mut ffi::PyObject) -> bool {
        // SAFETY: the caller vouches for the object.
        unsafe {
            ffi::Py_REFCNT(object) == 1
                || !matches!(kind, NodeKind::Tuple | NodeKind::Dict)
                    && ffi::PyObject_GC_IsTracked(object) == 0
        }
    }
}

/// How many objects ahead of the visit their memory is asked for: a million objects do not fit a
/// cache, and waiting for each takes longer than visiting it.
const AHEAD: usize = 12;

fn prefetch(object: *mut ffi::PyObject) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing and may be given any address.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(object.cast());
            _mm_prefetch::<_MM_HINT_T0>(object.cast::<i8>().wrapping_add(64));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = object;
}

unsafe extern "C" fn visit(object: *mut ffi::PyObject, visitor: *mut c_void) -> c_int {
    // SAFETY: `visitor` is what `walk` passed, and nothing else uses it during the call.
    let visitor = unsafe { &mut *visitor.cast::<Visitor<'_, '_>>() };
    visitor.meet(object);
    0
}
