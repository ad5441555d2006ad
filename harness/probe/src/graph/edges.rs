//! How one object refers to the next, in the words of a program.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use torchleak_protocol::{Edge, EdgeKind, NodeKind};

use super::nodes::{frame_of, value};
use super::read::{Readers, entries, exact_text};

/// An edge, and how many references it stands for: a function, its closure, a cell and the value are
/// one step for a reader.
pub type Step = (Edge, usize);

/// Names the references of a path.
pub struct Namer<'a, 'py> {
    pub readers: &'a Readers<'py>,
    pub show_values: bool,
}

impl<'py> Namer<'_, 'py> {
    /// The edge from the first object of `path`, of kind `kind`, towards the last; there are at least
    /// two objects.
    pub fn step(&self, kind: NodeKind, path: &[Bound<'py, PyAny>]) -> Step {
        let (source, target) = (&path[0], &path[1]);
        let found = match kind {
            NodeKind::Dict => self.entry(source, target).map(one),
            NodeKind::List | NodeKind::Tuple => position(source, target).map(|index| one(indexed("", index))),
            NodeKind::Set => Some(one(edge(EdgeKind::Key, "{...}"))),
            NodeKind::Function => self.function(path),
            NodeKind::Cell => Some(one(edge(EdgeKind::Closure, ".cell_contents"))),
            NodeKind::Method => self.first_of(
                source,
                target,
                &[("MethodType.__self__", EdgeKind::SelfOf), ("MethodType.__func__", EdgeKind::Function)],
            ),
            NodeKind::Frame => self.frame(source, target),
            NodeKind::Generator | NodeKind::Coroutine => self.generator(path),
            NodeKind::Traceback => self.first_of(
                source,
                target,
                &[("TracebackType.tb_frame", EdgeKind::Chain), ("TracebackType.tb_next", EdgeKind::Chain)],
            ),
            NodeKind::Exception => self
                .first_of(
                    source,
                    target,
                    &[
                        ("BaseException.__traceback__", EdgeKind::Attribute),
                        ("BaseException.__context__", EdgeKind::Attribute),
                        ("BaseException.__cause__", EdgeKind::Attribute),
                    ],
                )
                .or_else(|| self.inside(path, "BaseException.args", EdgeKind::Attribute, ".args")),
            NodeKind::Partial => self
                .first_of(source, target, &[("partial.func", EdgeKind::Wrapped)])
                .or_else(|| self.inside(path, "partial.args", EdgeKind::Wrapped, ".args"))
                .or_else(|| self.inside(path, "partial.keywords", EdgeKind::Wrapped, ".keywords")),
            NodeKind::Weakref => {
                self.first_of(source, target, &[("ReferenceType.__callback__", EdgeKind::WeakrefCallback)])
            }
            NodeKind::Type => self.class(path),
            _ => None,
        };
        found.or_else(|| self.attribute(path)).unwrap_or_else(|| one(edge(EdgeKind::Internal, "?")))
    }

    /// The first of some members that is the target.
    fn first_of(
        &self,
        source: &Bound<'py, PyAny>,
        target: &Bound<'py, PyAny>,
        members: &[(&str, EdgeKind)],
    ) -> Option<Step> {
        members
            .iter()
            .find(|(name, _)| self.readers.read(name, source).is_some_and(|value| value.is(target)))
            .map(|(name, kind)| one(edge(*kind, &format!(".{}", name.rsplit('.').next().unwrap_or(name)))))
    }

    /// A tuple or dict that belongs to the source, together with the entry of it that follows.
    fn inside(&self, path: &[Bound<'py, PyAny>], member: &str, kind: EdgeKind, label: &str) -> Option<Step> {
        if !self.readers.read(member, &path[0])?.is(&path[1]) {
            return None;
        }
        let Some(next) = path.get(2) else { return Some(one(edge(kind, label))) };
        let inner = match position(&path[1], next) {
            Some(index) => format!("[{index}]"),
            None => self.entry(&path[1], next)?.label,
        };
        Some((edge(kind, &format!("{label}{inner}")), 2))
    }

    fn function(&self, path: &[Bound<'py, PyAny>]) -> Option<Step> {
        let (source, target) = (&path[0], &path[1]);
        let code = self.readers.read("FunctionType.__code__", source);
        let is = |name: &str| self.readers.read(name, source).is_some_and(|value| value.is(target));
        if is("FunctionType.__closure__") {
            let Some(cell) = path.get(2) else { return Some(one(edge(EdgeKind::Closure, ".__closure__"))) };
            let index = position(target, cell)?;
            let names = self.readers.names(&code?, "CodeType.co_freevars");
            let name = names.get(index).map_or("?", String::as_str);
            return Some((edge(EdgeKind::Closure, name), if path.len() > 3 { 3 } else { 2 }));
        }
        if is("FunctionType.__defaults__") {
            let Some(next) = path.get(2) else { return Some(one(edge(EdgeKind::Default, ".__defaults__"))) };
            let index = position(target, next)?;
            let parameters = self.readers.parameters(&code?);
            // Defaults belong to the last parameters.
            let count = target.cast::<PyTuple>().ok()?.len();
            let name = (parameters.len() + index).checked_sub(count).and_then(|at| parameters.get(at));
            return Some((edge(EdgeKind::Default, name.map_or("?", String::as_str)), 2));
        }
        if is("FunctionType.__kwdefaults__") {
            let Some(next) = path.get(2) else {
                return Some(one(edge(EdgeKind::KwDefault, ".__kwdefaults__")));
            };
            let name = name_in(target.cast::<PyDict>().ok()?, next)?;
            return Some((edge(EdgeKind::KwDefault, &name), 2));
        }
        if is("FunctionType.__globals__") {
            return Some(one(edge(EdgeKind::Globals, ".__globals__")));
        }
        self.first_of(source, target, &[("BuiltinFunctionType.__self__", EdgeKind::SelfOf)])
    }

    fn frame(&self, source: &Bound<'py, PyAny>, target: &Bound<'py, PyAny>) -> Option<Step> {
        self.first_of(
            source,
            target,
            &[("FrameType.f_back", EdgeKind::Chain), ("FrameType.f_globals", EdgeKind::Globals)],
        )
        .or_else(|| Some(one(edge(EdgeKind::Local, &self.readers.local(source, target)?))))
    }

    fn generator(&self, path: &[Bound<'py, PyAny>]) -> Option<Step> {
        let (source, target) = (&path[0], &path[1]);
        let frame = frame_of(self.readers, source)?;
        if frame.is(target) {
            // Python 3.10 keeps the variables in the frame, later ones in the generator itself.
            let Some(next) = path.get(2) else { return Some(one(edge(EdgeKind::Internal, "frame"))) };
            return self.frame(target, next).map(|(edge, _)| (edge, 2));
        }
        // What is awaited lies on the frame's stack and has no name of its own.
        let local = self.readers.local(&frame, target).map(|name| one(edge(EdgeKind::Local, &name)));
        local.or_else(|| {
            self.first_of(
                source,
                target,
                &[
                    ("GeneratorType.gi_yieldfrom", EdgeKind::Chain),
                    ("CoroutineType.cr_await", EdgeKind::Chain),
                    ("AsyncGeneratorType.ag_await", EdgeKind::Chain),
                ],
            )
        })
    }

    fn class(&self, path: &[Bound<'py, PyAny>]) -> Option<Step> {
        let (source, target) = (&path[0], &path[1]);
        for name in ["__mro__", "__bases__"] {
            let value = self.readers.read(&format!("type.{name}"), source);
            if value.is_some_and(|value| value.is(target)) {
                return Some(match path.get(2) {
                    None => one(edge(EdgeKind::Base, &format!(".{name}"))),
                    Some(_) => (edge(EdgeKind::Base, &format!(".{name}")), 2),
                });
            }
        }
        let is_base = self.readers.classes(source).iter().skip(1).any(|base| base.is(target));
        is_base.then(|| one(edge(EdgeKind::Base, ".__base__")))
    }

    /// An attribute of any object: in its dict, in a slot, or its class.
    fn attribute(&self, path: &[Bound<'py, PyAny>]) -> Option<Step> {
        let (source, target) = (&path[0], &path[1]);
        if source.get_type().as_any().is(target) {
            return Some(one(edge(EdgeKind::Type, ".__class__")));
        }
        if let Some(dict) = self.readers.dict(source) {
            if dict.is(target) {
                return Some(match path.get(2) {
                    None => one(edge(EdgeKind::Dict, ".__dict__")),
                    Some(next) => (edge(EdgeKind::Attribute, &format!(".{}", name_in(&dict, next)?)), 2),
                });
            }
            // Python 3.11 and later may keep the values without a dict.
            if let Some(name) = name_in(&dict, target) {
                return Some(one(edge(EdgeKind::Attribute, &format!(".{name}"))));
            }
        }
        self.readers.slot(source, target).map(|name| one(edge(EdgeKind::Slot, &format!(".{name}"))))
    }

    /// The entry of a dict whose value or key is the target.
    fn entry(&self, dict: &Bound<'py, PyAny>, target: &Bound<'py, PyAny>) -> Option<Edge> {
        let dict = dict.cast::<PyDict>().ok()?;
        if let Some((key, _)) = entries(dict).find(|(_, value)| value.is(target)) {
            return Some(edge(EdgeKind::Item, &format!("[{}]", self.key(&key))));
        }
        let is_key = entries(dict).any(|(key, _)| key.is(target));
        is_key.then(|| edge(EdgeKind::Key, "key"))
    }

    /// A key as a reader may see it: names are shown, other values only by what they are.
    fn key(&self, key: &Bound<'py, PyAny>) -> String {
        if let Some(text) = exact_text(key)
            && is_name(&text)
        {
            return format!("'{text}'");
        }
        if self.show_values
            && let Some(value) = value(key)
        {
            return value;
        }
        if let Ok(text) = key.cast::<PyString>() {
            return format!("str of {}", text.to_string_lossy().chars().count());
        }
        // SAFETY: the type of a live object is live.
        unsafe { self.readers.type_name(key.get_type().as_type_ptr()) }
    }
}

fn edge(kind: EdgeKind, label: &str) -> Edge {
    Edge { kind, label: label.to_owned() }
}

fn one(edge: Edge) -> Step {
    (edge, 1)
}

fn indexed(prefix: &str, index: usize) -> Edge {
    edge(EdgeKind::Index, &format!("{prefix}[{index}]"))
}

/// Where a list or tuple holds the target. Lengths and items are those of the base class.
fn position(sequence: &Bound<'_, PyAny>, target: &Bound<'_, PyAny>) -> Option<usize> {
    if let Ok(list) = sequence.cast::<PyList>() {
        return list.iter().position(|item| item.is(target));
    }
    sequence.cast::<PyTuple>().ok()?.iter_borrowed().position(|item| item.is(target))
}

/// The name under which a namespace holds the target.
fn name_in(dict: &Bound<'_, PyDict>, target: &Bound<'_, PyAny>) -> Option<String> {
    entries(dict).find(|(_, value)| value.is(target)).and_then(|(key, _)| exact_text(&key))
}

/// Whether a key is a name in a program, dotted or not, rather than data.
fn is_name(text: &str) -> bool {
    text.len() <= 80
        && text
            .split('.')
            .all(|part| !part.is_empty() && part.chars().all(|c| c == '_' || c.is_ascii_alphanumeric()))
        && text.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic())
}
