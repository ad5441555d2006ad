//! Reads objects without running any code of theirs.
//!
//! An ordinary attribute access asks the object's class first, which can be anybody's. Here the
//! descriptors of Python's own classes are applied directly, dicts are walked entry by entry (never
//! looked up by a key, which would hash and compare), and names are only used if they are exactly
//! `str`.

use std::collections::HashMap;
use std::ffi::c_int;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

/// Code that keeps its variables in slots rather than in a namespace that may be anybody's mapping.
const CO_OPTIMIZED: u32 = 1;

/// The descriptors of Python's own classes.
pub struct Readers<'py> {
    pub py: Python<'py>,
    descriptors: HashMap<&'static str, Bound<'py, PyAny>>,
    member_descriptor: Bound<'py, PyAny>,
}

/// What is read, under the name that it is asked for by: where a class is, and the attribute.
const ATTRIBUTES: [(&str, &str, &[&str]); 14] = [
    (
        "types",
        "FunctionType",
        &[
            "__code__",
            "__closure__",
            "__defaults__",
            "__kwdefaults__",
            "__globals__",
            "__annotations__",
            "__qualname__",
        ],
    ),
    ("types", "BuiltinFunctionType", &["__self__", "__name__"]),
    ("types", "MethodType", &["__func__", "__self__"]),
    ("types", "CellType", &["cell_contents"]),
    ("types", "FrameType", &["f_code", "f_back", "f_globals", "f_locals", "f_lineno"]),
    (
        "types",
        "CodeType",
        &[
            "co_name",
            "co_qualname",
            "co_filename",
            "co_firstlineno",
            "co_flags",
            "co_freevars",
            "co_cellvars",
            "co_varnames",
            "co_argcount",
        ],
    ),
    ("types", "GeneratorType", &["gi_frame", "gi_yieldfrom", "gi_code", "__qualname__"]),
    ("types", "CoroutineType", &["cr_frame", "cr_await", "cr_code", "__qualname__"]),
    ("types", "AsyncGeneratorType", &["ag_frame", "ag_await", "ag_code", "__qualname__"]),
    ("types", "TracebackType", &["tb_frame", "tb_next", "tb_lineno"]),
    ("functools", "partial", &["func", "args", "keywords"]),
    ("weakref", "ReferenceType", &["__callback__"]),
    ("builtins", "BaseException", &["__traceback__", "__context__", "__cause__", "args"]),
    ("builtins", "type", &["__qualname__", "__module__", "__mro__", "__bases__"]),
];

impl<'py> Readers<'py> {
    pub fn new(py: Python<'py>) -> PyResult<Self> {
        let mut descriptors = HashMap::new();
        for (module, class, names) in ATTRIBUTES {
            // Taken from the class's dict, because `FunctionType.__qualname__` is that of the class.
            let own = py.import(module)?.getattr(class)?.getattr("__dict__")?;
            for name in names {
                // Some came late: `co_qualname` with Python 3.11. What is missing is not read.
                if let Ok(descriptor) = own.get_item(*name) {
                    descriptors.insert(key(class, name), descriptor);
                }
            }
        }
        let member_descriptor = py.import("types")?.getattr("MemberDescriptorType")?;
        Ok(Self { py, descriptors, member_descriptor })
    }

    /// # Safety
    /// `object` must be live.
    pub unsafe fn borrow(&self, object: *mut ffi::PyObject) -> Bound<'py, PyAny> {
        // SAFETY: the caller vouches for the object.
        unsafe { Bound::from_borrowed_ptr(self.py, object) }
    }

    /// Reads `Class.name` of an object of that class; None if it has no value.
    pub fn read(&self, class_and_name: &str, object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        apply(self.descriptors.get(class_and_name)?, object)
    }

    /// Reads a text that is exactly a `str`.
    pub fn text(&self, class_and_name: &str, object: &Bound<'py, PyAny>) -> Option<String> {
        exact_text(&self.read(class_and_name, object)?)
    }

    fn number(&self, class_and_name: &str, object: &Bound<'py, PyAny>) -> Option<u32> {
        self.read(class_and_name, object)?.extract().ok()
    }

    /// The code of a function, frame, generator or coroutine.
    pub fn code(&self, object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        // A descriptor refuses an object that is not of its class.
        [
            "FunctionType.__code__",
            "FrameType.f_code",
            "GeneratorType.gi_code",
            "CoroutineType.cr_code",
            "AsyncGeneratorType.ag_code",
        ]
        .iter()
        .find_map(|name| self.read(name, object))
    }

    pub fn code_name(&self, code: &Bound<'py, PyAny>) -> Option<String> {
        self.text("CodeType.co_qualname", code).or_else(|| self.text("CodeType.co_name", code))
    }

    pub fn first_line(&self, code: &Bound<'py, PyAny>) -> Option<u32> {
        self.number("CodeType.co_firstlineno", code)
    }

    pub fn file(&self, code: &Bound<'py, PyAny>) -> Option<String> {
        self.text("CodeType.co_filename", code)
    }

    pub fn frame_line(&self, frame: &Bound<'py, PyAny>) -> Option<u32> {
        self.number("FrameType.f_lineno", frame)
    }

    pub fn traceback_line(&self, traceback: &Bound<'py, PyAny>) -> Option<u32> {
        self.number("TracebackType.tb_lineno", traceback)
    }

    /// The names of one kind of a code's variables.
    pub fn names(&self, code: &Bound<'py, PyAny>, attribute: &str) -> Vec<String> {
        let tuple = self.read(attribute, code);
        let Some(tuple) = tuple.as_ref().and_then(|value| value.cast::<PyTuple>().ok()) else {
            return Vec::new();
        };
        tuple.iter().map(|name| exact_text(&name).unwrap_or_default()).collect()
    }

    /// The names of parameters that can be given by position.
    pub fn parameters(&self, code: &Bound<'py, PyAny>) -> Vec<String> {
        let mut names = self.names(code, "CodeType.co_varnames");
        names.truncate(self.number("CodeType.co_argcount", code).unwrap_or(0) as usize);
        names
    }

    /// The name of the variable of a frame by which it refers to `target`, which can be the variable's
    /// cell.
    pub fn local(&self, frame: &Bound<'py, PyAny>, target: &Bound<'py, PyAny>) -> Option<String> {
        let code = self.read("FrameType.f_code", frame)?;
        // A class body runs in whatever its metaclass prepared, whose code would run.
        if !self.is_optimized(&code) {
            return None;
        }
        let value = self.read("CellType.cell_contents", target).unwrap_or_else(|| target.clone());
        let locals = self.read("FrameType.f_locals", frame)?;
        if let Ok(locals) = locals.cast::<PyDict>() {
            return entries(locals).find(|(_, held)| held.is(&value)).and_then(|(name, _)| exact_text(&name));
        }
        // Since Python 3.13 it is a proxy, which is asked for one exact name after another.
        ["CodeType.co_varnames", "CodeType.co_cellvars", "CodeType.co_freevars"]
            .iter()
            .flat_map(|names| self.names(&code, names))
            .find(|name| locals.get_item(name).is_ok_and(|held| held.is(&value)))
    }

    /// The values of all variables of a frame of a function.
    pub fn locals(&self, frame: &Bound<'py, PyAny>) -> Vec<Bound<'py, PyAny>> {
        if let Some(copy) = self.copied_locals(frame) {
            return entries(&copy).map(|(_, value)| value).collect();
        }
        let code = self.read("FrameType.f_code", frame).filter(|code| self.is_optimized(code));
        let (Some(code), Some(locals)) = (code, self.read("FrameType.f_locals", frame)) else {
            return Vec::new();
        };
        ["CodeType.co_varnames", "CodeType.co_cellvars", "CodeType.co_freevars"]
            .iter()
            .flat_map(|names| self.names(&code, names))
            .filter_map(|name| locals.get_item(name).ok())
            .collect()
    }

    /// The dict into which Python up to 3.12 copies the variables of a function's frame.
    pub fn copied_locals(&self, frame: &Bound<'py, PyAny>) -> Option<Bound<'py, PyDict>> {
        let code = self.read("FrameType.f_code", frame)?;
        if !self.is_optimized(&code) {
            return None;
        }
        self.read("FrameType.f_locals", frame)?.cast_into_exact::<PyDict>().ok()
    }

    fn is_optimized(&self, code: &Bound<'py, PyAny>) -> bool {
        self.number("CodeType.co_flags", code).is_some_and(|flags| flags & CO_OPTIMIZED != 0)
    }

    /// The dict that holds an object's attributes. Where Python 3.11 and later keep the values without
    /// a dict, this makes one, so it is only for what is shown.
    pub fn dict(&self, object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyDict>> {
        // SAFETY: the function only reads where the type says that the dict is.
        let dict = unsafe {
            Bound::from_owned_ptr_or_opt(
                self.py,
                ffi::PyObject_GenericGetDict(object.as_ptr(), std::ptr::null_mut()),
            )
        };
        match dict {
            Some(dict) => dict.cast_into::<PyDict>().ok(),
            None => {
                self.forget_error();
                None
            }
        }
    }

    /// The qualified name of a type, with its module unless that is builtins.
    ///
    /// # Safety
    /// `class` must be a live type.
    pub unsafe fn type_name(&self, class: *mut ffi::PyTypeObject) -> String {
        // SAFETY: the caller vouches for the type.
        let class = unsafe { self.borrow(class.cast()) };
        let name = self.text("type.__qualname__", &class).unwrap_or_else(|| "?".to_owned());
        match self.text("type.__module__", &class) {
            Some(module) if module != "builtins" => format!("{module}.{name}"),
            _ => name,
        }
    }

    /// The classes in which attributes of an object's class are looked up.
    pub fn classes(&self, class: &Bound<'py, PyAny>) -> Vec<Bound<'py, PyAny>> {
        let order = self.read("type.__mro__", class);
        order.and_then(|order| Some(order.cast::<PyTuple>().ok()?.iter().collect())).unwrap_or_default()
    }

    /// The name of the slot by which `object` refers to `target`: one of `__slots__`, or a member of a
    /// class written in C. Members are read from memory, where other descriptors would run code.
    pub fn slot(&self, object: &Bound<'py, PyAny>, target: &Bound<'py, PyAny>) -> Option<String> {
        for class in self.classes(object.get_type().as_any()) {
            let Some(dict) = self.dict(&class) else { continue };
            let found = entries(&dict).find(|(_, member)| {
                member.get_type().is(&self.member_descriptor)
                    && apply(member, object).is_some_and(|value| value.is(target))
            });
            if let Some((name, _)) = found {
                return exact_text(&name);
            }
        }
        None
    }

    fn forget_error(&self) {
        drop(PyErr::take(self.py));
    }
}

fn key(class: &str, name: &str) -> &'static str {
    // There are a few dozen of them, made once.
    static KEYS: std::sync::Mutex<Option<HashMap<String, &'static str>>> = std::sync::Mutex::new(None);
    let mut keys = KEYS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    keys.get_or_insert_with(HashMap::new)
        .entry(format!("{class}.{name}"))
        .or_insert_with_key(|key| Box::leak(key.clone().into_boxed_str()))
}

/// Applies a descriptor of a class written in C to an object. One that is of another class is
/// refused by the descriptor itself.
pub fn apply<'py>(descriptor: &Bound<'py, PyAny>, object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    // SAFETY: the slot holds a function of this type or null, and gets live objects.
    unsafe {
        let slot = ffi::PyType_GetSlot(ffi::Py_TYPE(descriptor.as_ptr()), ffi::Py_tp_descr_get);
        let get = std::mem::transmute::<*mut std::ffi::c_void, Option<ffi::descrgetfunc>>(slot)?;
        let value = get(descriptor.as_ptr(), object.as_ptr(), ffi::Py_TYPE(object.as_ptr()).cast());
        let value = Bound::from_owned_ptr_or_opt(object.py(), value);
        if value.is_none() {
            drop(PyErr::take(object.py()));
        }
        value.filter(|value| !value.is_none())
    }
}

/// The text of a string whose class is `str` itself.
pub fn exact_text(value: &Bound<'_, PyAny>) -> Option<String> {
    Some(value.cast_exact::<PyString>().ok()?.to_string_lossy().into_owned())
}

/// The entries of a dict, or of a subclass's underlying dict, in order. It must not change meanwhile.
pub fn entries<'a, 'py>(
    dict: &'a Bound<'py, PyDict>,
) -> impl Iterator<Item = (Bound<'py, PyAny>, Bound<'py, PyAny>)> + 'a {
    let mut position: ffi::Py_ssize_t = 0;
    std::iter::from_fn(move || {
        let (mut key, mut value) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the dict is live, and the function sets both pointers to what the dict holds when
        // it answers that there is an entry.
        unsafe {
            let found: c_int =
                ffi::PyDict_Next(dict.as_ptr(), &raw mut position, &raw mut key, &raw mut value);
            (found != 0).then(|| {
                (Bound::from_borrowed_ptr(dict.py(), key), Bound::from_borrowed_ptr(dict.py(), value))
            })
        }
    })
}
