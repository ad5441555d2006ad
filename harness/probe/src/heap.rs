//! Walks over the objects that Python's collector tracks.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyType};

/// Answers whether an object is an instance of one class, by its type alone: no code of the object
/// runs, as `isinstance` would run its `__class__`.
pub struct InstanceTest {
    class: *mut ffi::PyTypeObject,
    /// A heap has a million objects of a few hundred types, so each type is decided once.
    decided: HashMap<*mut ffi::PyTypeObject, bool>,
}

impl InstanceTest {
    pub fn new(class: &Bound<'_, PyType>) -> Self {
        Self { class: class.as_type_ptr(), decided: HashMap::new() }
    }

    /// # Safety
    /// `object` must point to a live Python object, and the interpreter must be attached.
    unsafe fn accepts(&mut self, object: *mut ffi::PyObject) -> bool {
        // SAFETY: the caller vouches for the object; a live object keeps its type alive.
        unsafe {
            let class = ffi::Py_TYPE(object);
            *self.decided.entry(class).or_insert_with(|| ffi::PyType_IsSubtype(class, self.class) != 0)
        }
    }
}

/// All tracked objects that are instances of the class that `test` asks for. Objects in the
/// permanent generation (`gc.freeze`) are the host's imports; whether they are visited depends on
/// the interpreter.
pub fn tracked_instances<'py>(py: Python<'py>, test: &mut InstanceTest) -> PyResult<Vec<Bound<'py, PyAny>>> {
    if let Some(visit) = visit_objects() {
        let mut search = Search { test, found: Vec::new() };
        // SAFETY: the callback gets back the pointer that is passed here, whose target outlives the
        // call; it makes no tracked object, as the function demands.
        unsafe { visit(collect_instance, (&raw mut search).cast()) };
        // SAFETY: the callback took one reference to each object for us.
        return Ok(search
            .found
            .into_iter()
            .map(|object| unsafe { Bound::from_owned_ptr(py, object) })
            .collect());
    }
    let objects = py.import("gc")?.call_method0("get_objects")?.cast_into::<PyList>()?;
    Ok(listed_instances(&objects, test))
}

/// The items of a list that are instances of the class that `test` asks for.
pub fn listed_instances<'py>(list: &Bound<'py, PyList>, test: &mut InstanceTest) -> Vec<Bound<'py, PyAny>> {
    // SAFETY: the iterator holds a reference to each item while it is looked at.
    list.iter().filter(|item| unsafe { test.accepts(item.as_ptr()) }).collect()
}

struct Search<'a> {
    test: &'a mut InstanceTest,
    found: Vec<*mut ffi::PyObject>,
}

extern "C" fn collect_instance(object: *mut ffi::PyObject, search: *mut c_void) -> c_int {
    // SAFETY: `search` is the pointer that `tracked_instances` passed, and nothing else uses it
    // during the visit; `object` is a live object that the collector shows us.
    unsafe {
        let search = &mut *search.cast::<Search<'_>>();
        if search.test.accepts(object) {
            ffi::Py_INCREF(object);
            search.found.push(object);
        }
    }
    1
}

type Callback = extern "C" fn(*mut ffi::PyObject, *mut c_void) -> c_int;
type VisitObjects = unsafe extern "C" fn(Callback, *mut c_void);

/// `PyUnstable_GC_VisitObjects`, which walks the collector's lists in place. It exists since Python
/// 3.12 and is not part of the stable ABI, so it is looked up at run time.
fn visit_objects() -> Option<VisitObjects> {
    static FUNCTION: std::sync::OnceLock<Option<VisitObjects>> = std::sync::OnceLock::new();
    *FUNCTION.get_or_init(|| {
        // SAFETY: dlsym is given a valid C string, and CPython documents the type of what it finds.
        unsafe {
            let symbol = libc::dlsym(libc::RTLD_DEFAULT, c"PyUnstable_GC_VisitObjects".as_ptr());
            if symbol.is_null() {
                None
            } else {
                Some(std::mem::transmute::<*mut c_void, VisitObjects>(symbol))
            }
        }
    })
}
