//! What the probe reports about garbage: which cycles keep which tensors alive.
//!
//! Nothing here holds an address, and no value that the program computed unless it was asked for.

use serde::{Deserialize, Serialize};

/// The garbage of one collection, explained.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CycleReport {
    /// Garbage objects that were examined.
    pub objects: u64,
    /// References among them, each as often as its holder has it.
    pub edges: u64,
    /// Objects that lead to a tensor; the tensors themselves are among them.
    pub leading: u64,
    /// Different pairs of a leading object and a leading object that it refers to.
    pub leading_edges: u64,
    /// Tensors among the objects.
    pub tensors: u64,
    /// Bytes of their storages, each counted once.
    pub tensor_bytes: u64,
    /// Strongly connected components with a cycle that lead to a tensor.
    pub components: u64,
    /// Those components, alike ones merged, by bytes. It holds the most important ones only.
    pub findings: Vec<Finding>,
    /// Findings that were left out of `findings`.
    pub findings_left_out: u64,
    /// Bytes of tensors that no cycle of Python objects leads to: what holds them is not garbage any
    /// more, or is in C++.
    pub unexplained_bytes: u64,
    pub seconds: CycleSeconds,
}

/// How long each part of a diagnosis took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CycleSeconds {
    /// Walking all references.
    pub traverse: f64,
    /// Components, cycles and paths.
    pub components: f64,
    /// Reading tensors and names of what is shown.
    pub names: f64,
}

/// Components that are alike, such as those of a model's layers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The same for every layer, step and process: types, names of edges and of functions.
    pub signature: String,
    /// How many components are alike.
    pub count: u64,
    /// Objects in one component. Where alike components differ in size, the smallest.
    pub objects: u64,
    /// A shortest cycle; the last hop's edge leads to the first hop's node.
    pub cycle: Vec<Hop>,
    /// The tensors that are nearer to this cycle than to any other, by bytes. It is empty for a
    /// component that leads to tensors only through another component.
    pub groups: Vec<TensorGroup>,
    /// Bytes of the storages of those tensors over all components, each storage counted once, and none that
    /// something alive uses too.
    pub exclusive_bytes: u64,
    /// Index into `cycle` of the edge to remove: one that lies in mutable state, such as an
    /// attribute or the entry of a dict. Without one the cycle is in closures and frames only.
    pub breaking_edge: Option<usize>,
    /// Whether removing that edge leaves no other cycle in the component.
    pub breaking_edge_suffices: bool,
    /// Whether these components lead to tensors of other findings too, so that breaking the other
    /// cycle alone does not free them.
    pub feeds_others: bool,
}

/// A node of a path and the edge by which it holds the next one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hop {
    pub node: Node,
    pub edge: Edge,
}

/// Tensors that are alike and are held alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TensorGroup {
    /// A shortest path from a node of the cycle; the last hop's edge leads to the tensor. It is empty
    /// where the tensor is itself a node of the cycle.
    pub path: Vec<Hop>,
    pub tensor: TensorInfo,
    /// Over all components of the finding.
    pub count: u64,
    /// Bytes of their storages over all components, each storage counted once.
    pub bytes: u64,
}

/// A Python object as a reader knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    pub kind: NodeKind,
    /// Qualified with its module, except for builtins.
    pub type_name: String,
    /// The qualified name of a function, frame, module, type or generator.
    pub name: Option<String>,
    /// `file:line` of what has code: where a function begins, where a frame stands.
    pub location: Option<String>,
    /// The length of a container.
    pub length: Option<u64>,
    /// Only when values were asked for.
    pub value: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeKind {
    Function,
    Method,
    Frame,
    Cell,
    Dict,
    List,
    Tuple,
    Set,
    Module,
    Type,
    Instance,
    Tensor,
    Generator,
    Coroutine,
    Traceback,
    Exception,
    Partial,
    Weakref,
    AutogradNode,
    Other,
}

/// A reference as a reader of the source would write it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Edge {
    pub kind: EdgeKind,
    /// `.name` of an attribute, `['key']`, `[3]`, or the bare name of a variable.
    pub label: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EdgeKind {
    /// An attribute in an object's own dict, a module's or a class's.
    Attribute,
    /// The value of a dict's entry.
    Item,
    /// The position in a list or tuple.
    Index,
    /// The key of a dict's entry, or the member of a set.
    Key,
    /// A variable that a closure captured.
    Closure,
    /// The default of a parameter.
    Default,
    /// The default of a keyword-only parameter.
    KwDefault,
    /// The globals of a function or frame.
    Globals,
    /// `__self__` of a bound method.
    #[serde(rename = "self")]
    SelfOf,
    /// `__func__` of a bound method and its like.
    Function,
    /// A local variable of a frame, generator or coroutine.
    Local,
    /// The class of an instance.
    Type,
    /// An attribute in `__slots__`, or a member of a type written in C.
    Slot,
    /// A base class or the method resolution order.
    Base,
    /// What a weak reference calls when its object dies.
    WeakrefCallback,
    /// The dict of an object as such.
    Dict,
    /// What a `functools.partial` calls and passes.
    Wrapped,
    /// The next frame, traceback or exception of a chain.
    Chain,
    /// Held in C or C++, where it has no name that Python knows.
    Internal,
}

impl EdgeKind {
    /// Whether the edge lies in state that a program can change from outside.
    pub fn is_mutable(self) -> bool {
        matches!(self, Self::Attribute | Self::Item | Self::Slot | Self::Dict)
    }
}

/// What a tensor is, without its values.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TensorInfo {
    /// The class, where it is not `torch.Tensor`.
    pub class: Option<String>,
    /// Absent for a subclass with a `__torch_dispatch__` of its own, whose code could run.
    pub shape: Option<Vec<u64>>,
    pub dtype: String,
    pub device: String,
    /// Bytes of the storage.
    pub bytes: u64,
    pub requires_grad: bool,
    /// The name of the autograd node that made it.
    pub grad_fn: Option<String>,
    /// Whether another tensor among the objects uses the same storage.
    pub shares_storage: bool,
    /// Whether something alive uses the storage too, so that to free the tensor frees nothing.
    #[serde(default)]
    pub storage_is_live: bool,
}
