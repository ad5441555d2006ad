//! What the probe reports about tensors that no collection frees: what holds them.

use serde::{Deserialize, Serialize};

use crate::graph::{Hop, TensorInfo};

/// Live tensors and what keeps them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RetentionReport {
    /// Objects that were examined: all that the interpreter has.
    pub objects: u64,
    /// Storages that were asked about: those of live tensors, less the ones known from before.
    pub storages: u64,
    /// Bytes of those storages.
    pub bytes: u64,
    /// Alike ones merged, by bytes.
    pub retentions: Vec<Retention>,
    /// How many more there are.
    pub retentions_left_out: u64,
    pub seconds: f64,
}

/// Storages that are held alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Retention {
    /// The same for every layer, step and process.
    pub signature: String,
    pub root: Root,
    /// From the root; the last hop's edge leads to the tensor. It is empty where the tensor itself is
    /// held from outside of Python.
    pub path: Vec<Hop>,
    /// The tensor of the storage that is nearest to a root.
    pub tensor: TensorInfo,
    /// Storages that are held so.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Why the first object of a path is alive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Root {
    pub kind: RootKind,
    /// For a reader.
    pub description: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RootKind {
    /// A module that is imported.
    Module,
    /// A frame that runs.
    Frame,
    /// A class that was not made inside a function.
    Type,
    /// What the interpreter keeps for a thread: thread-local and context variables, the exception
    /// being handled.
    Thread,
    /// A node of an autograd graph, in C++. It was found there.
    Autograd,
    /// The object has more references than all Python objects account for. C or C++ has them, or the
    /// evaluation of an expression that is not finished.
    Cpp,
    /// Nothing holds it but a cycle, so it is garbage that the next collection finds.
    Garbage,
}
