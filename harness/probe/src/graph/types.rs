//! What is known of a type, decided once for all its objects.

use std::ffi::{c_int, c_ulong, c_void};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;
use rustc_hash::FxHashMap;
use torchleak_protocol::NodeKind;

use super::read::Readers;

/// Number of a type in [`Types`]; one byte or two a node would not hold a heap's thousands of types.
pub type TypeId = u32;

pub struct TypeFacts {
    pub kind: NodeKind,
    /// What visits an object's references; None if it can have none.
    pub traverse: Option<ffi::traverseproc>,
    /// Answers for a single object whether the collector may traverse it; types are such a case,
    /// because those that are written in C are not on the heap.
    is_gc: Option<ffi::inquiry>,
    /// Qualified with the module, except for builtins.
    pub name: String,
    /// The same for types of the same name in every process, for choices that must not depend on
    /// addresses.
    pub hash: u64,
}

impl TypeFacts {
    /// # Safety
    /// `object` must be a live object of this type.
    #[inline]
    pub unsafe fn may_traverse(&self, object: *mut ffi::PyObject) -> Option<ffi::traverseproc> {
        let traverse = self.traverse?;
        match self.is_gc {
            None => Some(traverse),
            // SAFETY: the function is the type's own and gets an object of that type.
            Some(is_gc) => (unsafe { is_gc(object) } != 0).then_some(traverse),
        }
    }
}

/// The types met so far.
pub struct Types {
    facts: Vec<TypeFacts>,
    known: FxHashMap<usize, TypeId>,
    /// The most recent types, by a few bits of the address: most objects are of few types.
    recent: [(usize, TypeId); 256],
    classes: Vec<(NodeKind, *mut ffi::PyTypeObject)>,
}

impl Types {
    /// `tensor` is torch's tensor class, `autograd` the classes of autograd nodes, where torch is
    /// imported.
    pub fn new(py: Python<'_>, tensor: Option<&Bound<'_, PyType>>, autograd: &[Bound<'_, PyType>]) -> Self {
        let mut classes = Vec::new();
        // The first match decides, so tensors come before all else.
        classes.extend(tensor.map(|class| (NodeKind::Tensor, class.as_type_ptr())));
        classes.extend(autograd.iter().map(|class| (NodeKind::AutogradNode, class.as_type_ptr())));
        for (kind, module, name) in [
            (NodeKind::Function, "types", "FunctionType"),
            (NodeKind::Function, "types", "BuiltinFunctionType"),
            (NodeKind::Method, "types", "MethodType"),
            (NodeKind::Frame, "types", "FrameType"),
            (NodeKind::Cell, "types", "CellType"),
            (NodeKind::Module, "types", "ModuleType"),
            (NodeKind::Generator, "types", "GeneratorType"),
            (NodeKind::Coroutine, "types", "CoroutineType"),
            (NodeKind::Generator, "types", "AsyncGeneratorType"),
            (NodeKind::Traceback, "types", "TracebackType"),
            (NodeKind::Partial, "functools", "partial"),
            (NodeKind::Weakref, "weakref", "ReferenceType"),
            (NodeKind::Weakref, "weakref", "ProxyType"),
            (NodeKind::Weakref, "weakref", "CallableProxyType"),
            (NodeKind::Set, "builtins", "set"),
            (NodeKind::Set, "builtins", "frozenset"),
        ] {
            // These modules are part of Python itself. A missing one only makes a label coarser.
            if let Ok(class) = py.import(module).and_then(|module| module.getattr(name))
                && let Ok(class) = class.cast::<PyType>()
            {
                classes.push((kind, class.as_type_ptr()));
            }
        }
        Self { facts: Vec::new(), known: FxHashMap::default(), recent: [(0, 0); 256], classes }
    }

    pub fn facts(&self, id: TypeId) -> &TypeFacts {
        &self.facts[id as usize]
    }

    /// # Safety
    /// `object` must be a live object, and the interpreter must be attached.
    #[inline]
    pub unsafe fn of(&mut self, readers: &Readers<'_>, object: *mut ffi::PyObject) -> TypeId {
        // SAFETY: the caller vouches for the object; a live object keeps its type alive.
        let class = unsafe { ffi::Py_TYPE(object) };
        let slot = (class as usize >> 5) % self.recent.len();
        let (recent, id) = self.recent[slot];
        if recent == class as usize {
            return id;
        }
        let id = match self.known.get(&(class as usize)) {
            Some(&id) => id,
            None => {
                let id = TypeId::try_from(self.facts.len()).unwrap_or(TypeId::MAX);
                // SAFETY: as above.
                self.facts.push(unsafe { self.examine(readers, class) });
                self.known.insert(class as usize, id);
                id
            }
        };
        self.recent[slot] = (class as usize, id);
        id
    }

    /// # Safety
    /// `class` must be a live type, and the interpreter must be attached.
    unsafe fn examine(&self, readers: &Readers<'_>, class: *mut ffi::PyTypeObject) -> TypeFacts {
        // SAFETY: the caller vouches for the type. Its slots hold functions of the types that they
        // are documented to have, and null is None.
        unsafe {
            let flags = ffi::PyType_GetFlags(class);
            let (traverse, is_gc) = if flags & ffi::Py_TPFLAGS_HAVE_GC == 0 {
                (None, None)
            } else {
                (
                    std::mem::transmute::<*mut c_void, Option<ffi::traverseproc>>(ffi::PyType_GetSlot(
                        class,
                        ffi::Py_tp_traverse,
                    )),
                    std::mem::transmute::<*mut c_void, Option<ffi::inquiry>>(ffi::PyType_GetSlot(
                        class,
                        ffi::Py_tp_is_gc,
                    )),
                )
            };
            let name = readers.type_name(class);
            let hash = hash_of(name.as_bytes());
            TypeFacts { kind: self.kind(class, flags), traverse, is_gc, name, hash }
        }
    }

    /// # Safety
    /// `class` must be a live type.
    unsafe fn kind(&self, class: *mut ffi::PyTypeObject, flags: c_ulong) -> NodeKind {
        let is_subtype = |of: *mut ffi::PyTypeObject| -> bool {
            // SAFETY: both are live types; only their method resolution orders are compared.
            let answer: c_int = unsafe { ffi::PyType_IsSubtype(class, of) };
            answer != 0
        };
        for (flag, kind) in [
            (ffi::Py_TPFLAGS_DICT_SUBCLASS, NodeKind::Dict),
            (ffi::Py_TPFLAGS_LIST_SUBCLASS, NodeKind::List),
            (ffi::Py_TPFLAGS_TUPLE_SUBCLASS, NodeKind::Tuple),
            (ffi::Py_TPFLAGS_TYPE_SUBCLASS, NodeKind::Type),
            (ffi::Py_TPFLAGS_BASE_EXC_SUBCLASS, NodeKind::Exception),
        ] {
            if flags & flag != 0 {
                return kind;
            }
        }
        if let Some((kind, _)) = self.classes.iter().find(|(_, of)| is_subtype(*of)) {
            return *kind;
        }
        // A type that Python code made has instances that people know as objects of that class.
        if flags & ffi::Py_TPFLAGS_HEAPTYPE != 0 { NodeKind::Instance } else { NodeKind::Other }
    }
}

/// FNV-1a: the same in every process, unlike the hashes of the standard library's maps.
pub fn hash_of(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// Combines a hash with one more part.
pub fn mix(hash: u64, part: u64) -> u64 {
    (hash.rotate_left(23) ^ part).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
