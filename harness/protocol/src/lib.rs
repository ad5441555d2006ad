//! The messages between the orchestrator and a worker, as serde types.
//!
//! Both ends are compiled from this crate: the orchestrator and the native control link it, and in
//! Python the probe is the only writer of messages. They can therefore not drift apart. The wire format is one
//! JSON document a line.
//!
//! Data flows in two directions. [`Command`] goes to a worker *host*, the process that imports
//! torch once and makes one child per arm. [`HostEvent`] comes back from the host about its
//! children, and [`ArmEvent`] comes from each child over a pipe of its own.

mod command;
mod event;
mod graph;
mod record;
mod retention;
mod watch;

pub use command::{
    Activation, ArmSpec, Backend, Block, Checkpoint, CheckpointMode, Collection, Command, Compile, Device,
    DisableApi, DisableSite, Dtype, Input, Llama3, Optimizer, Parallel, Policy, Program, Start,
};
pub use event::{ArmEvent, ArmFacts, Failure, FailureKind, HostEvent};
pub use graph::{
    CycleReport, CycleSeconds, Edge, EdgeKind, Finding, Hop, Node, NodeKind, TensorGroup, TensorInfo,
};
pub use record::{
    Census, Collected, DeviceMemory, GarbageRecord, Memory, RoundGarbage, StepRecord, Storages, TorchCycles,
    TorchNode,
};
pub use retention::{Retention, RetentionReport, Root, RootKind};
pub use watch::{
    AutomaticCollections, Boundary, WatchBegan, WatchEvent, WatchFacts, WatchGarbage, WatchMode, WatchSpec,
    WatchStep,
};
