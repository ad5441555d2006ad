//! What is said about one object.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use torchleak_protocol::{Node, NodeKind};

use super::read::{Readers, entries, exact_text};
use super::types::TypeFacts;

/// Describes an object whose type is known.
pub fn describe<'py>(
    readers: &Readers<'py>,
    facts: &TypeFacts,
    object: &Bound<'py, PyAny>,
    show_values: bool,
) -> Node {
    Node {
        kind: facts.kind,
        type_name: facts.name.clone(),
        name: name(readers, facts.kind, object),
        location: location(readers, facts.kind, object),
        length: length(object),
        value: if show_values { value(object) } else { None },
    }
}

/// The value of a number or string, whose class is Python's own so that its text is made in C.
pub fn value(object: &Bound<'_, PyAny>) -> Option<String> {
    let is_plain = object.is_exact_instance_of::<PyString>()
        || object.is_exact_instance_of::<PyInt>()
        || object.is_exact_instance_of::<PyFloat>()
        || object.is_exact_instance_of::<PyBool>();
    if is_plain { Some(object.repr().ok()?.to_string_lossy().into_owned()) } else { None }
}

fn name<'py>(readers: &Readers<'py>, kind: NodeKind, object: &Bound<'py, PyAny>) -> Option<String> {
    match kind {
        NodeKind::Function => readers
            .text("FunctionType.__qualname__", object)
            .or_else(|| readers.text("BuiltinFunctionType.__name__", object)),
        NodeKind::Method => name(readers, NodeKind::Function, &readers.read("MethodType.__func__", object)?),
        NodeKind::Frame => readers.code_name(&readers.read("FrameType.f_code", object)?),
        NodeKind::Generator | NodeKind::Coroutine => readers
            .text("GeneratorType.__qualname__", object)
            .or_else(|| readers.text("CoroutineType.__qualname__", object))
            .or_else(|| readers.text("AsyncGeneratorType.__qualname__", object)),
        NodeKind::Partial => name(readers, NodeKind::Function, &readers.read("partial.func", object)?),
        NodeKind::Module => {
            let dict = readers.dict(object)?;
            let named = entries(&dict).find(|(key, _)| exact_text(key).as_deref() == Some("__name__"))?;
            exact_text(&named.1)
        }
        // SAFETY: an object of this kind is a live type.
        NodeKind::Type => Some(unsafe { readers.type_name(object.as_ptr().cast()) }),
        _ => None,
    }
}

/// Where the code of an object begins, or stands where it runs or has stopped.
fn location<'py>(readers: &Readers<'py>, kind: NodeKind, object: &Bound<'py, PyAny>) -> Option<String> {
    let (code, line) = match kind {
        NodeKind::Function => {
            let code = readers.code(object)?;
            let line = readers.first_line(&code);
            (code, line)
        }
        NodeKind::Method => {
            return location(readers, NodeKind::Function, &readers.read("MethodType.__func__", object)?);
        }
        NodeKind::Partial => {
            return location(readers, NodeKind::Function, &readers.read("partial.func", object)?);
        }
        NodeKind::Frame => (readers.code(object)?, readers.frame_line(object)),
        NodeKind::Generator | NodeKind::Coroutine => {
            let code = readers.code(object)?;
            let line = frame_of(readers, object)
                .and_then(|frame| readers.frame_line(&frame))
                .or_else(|| readers.first_line(&code));
            (code, line)
        }
        NodeKind::Traceback => {
            let frame = readers.read("TracebackType.tb_frame", object)?;
            (readers.code(&frame)?, readers.traceback_line(object))
        }
        _ => return None,
    };
    let file = readers.file(&code)?;
    Some(line.map_or_else(|| file.clone(), |line| format!("{file}:{line}")))
}

/// The frame of a generator or coroutine that has not ended.
pub fn frame_of<'py>(readers: &Readers<'py>, object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    ["GeneratorType.gi_frame", "CoroutineType.cr_frame", "AsyncGeneratorType.ag_frame"]
        .iter()
        .find_map(|name| readers.read(name, object))
}

/// Entries of a container, counted by its base class and not by a `__len__` of its own.
fn length(object: &Bound<'_, PyAny>) -> Option<u64> {
    let length = if let Ok(dict) = object.cast::<PyDict>() {
        // SAFETY: a live dict; the function reads its counter.
        unsafe { ffi::PyDict_Size(dict.as_ptr()) }
    } else if let Ok(list) = object.cast::<PyList>() {
        // SAFETY: a live list; the function reads its counter.
        unsafe { ffi::PyList_Size(list.as_ptr()) }
    } else if let Ok(tuple) = object.cast::<PyTuple>() {
        // SAFETY: a live tuple; the function reads its counter.
        unsafe { ffi::PyTuple_Size(tuple.as_ptr()) }
    } else {
        // SAFETY: a live object. PySet_Size reads the counter of a set and refuses all else.
        let length = unsafe { ffi::PySet_Size(object.as_ptr()) };
        if length < 0 {
            drop(PyErr::take(object.py()));
        }
        length
    };
    u64::try_from(length).ok()
}
