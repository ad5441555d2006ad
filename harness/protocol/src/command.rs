//! What the orchestrator asks of a worker host.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One line to a worker host. The end of the stream asks it to end its children and exit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// Starts one arm. Descriptors come with the line: the write ends of its event pipes
    /// ([`ArmSpec::event_pipes`]) and of the pipe for what its processes print.
    Run(Box<ArmSpec>),
}

/// One arm, as the worker needs it: every default is filled in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArmSpec {
    /// Names the arm in [`crate::HostEvent`]s; unique for one host.
    pub arm: u64,
    /// The case's name, for messages.
    pub case: String,
    pub policy: Policy,
    pub start: Start,
    /// Processes that train together, started by torchrun; 1 is a process without it.
    pub ranks: u32,
    pub program: Program,
    pub device: Device,
    pub steps: u32,
    pub seed: u64,
    /// Threads of one operator (`torch.set_num_threads`).
    pub threads: u32,
    /// Limit of the child's address space in bytes (`RLIMIT_AS`), CPU only.
    pub memory_limit: Option<u64>,
    /// The folder for what the arm leaves besides its events. Without one it leaves nothing.
    pub artifacts: Option<String>,
    /// Whether values that the program computed may be shown in a diagnosis.
    pub show_values: bool,
    /// The program that trains the arm in the place of an interpreter: the native control. It gets the command and the
    /// event pipe as a spawned interpreter does.
    pub executable: Option<String>,
}

impl ArmSpec {
    /// How many pipes the arm's events come through: one for each rank and, where there are several, a
    /// last one for their launcher.
    pub fn event_pipes(&self) -> u32 {
        if self.ranks > 1 { self.ranks + 1 } else { 1 }
    }
}

/// When an arm collects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Policy {
    /// The collector is disabled and never called.
    Uncollected,
    /// The collector is disabled and called after each step, until a pass finds nothing.
    Collected(Collection),
    /// The collector is disabled and called once every `every` steps, as torchtitan does.
    Periodic { every: u32, generation: u8 },
    /// The diagnosis run: a full collect with garbage saved after each step. Memory is not measured.
    Garbage,
}

/// Which generation a collecting arm collects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collection {
    pub generation: u8,
}

/// How the child comes to be. Ranks are always fresh interpreters; theirs says what is imported first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// Forked from the host, which has imported torch and torch._dynamo. A rank imports them itself.
    Fork,
    /// A fresh interpreter in which nothing of torch is imported yet.
    Spawn,
}

/// What is trained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Program {
    Llama3(Box<Block>),
    /// A Python file that defines `setup(ctx)` and `step(state)`.
    File {
        path: String,
        dtype: Dtype,
        /// Dimensions by name, as the case declares them.
        dims: BTreeMap<String, u64>,
    },
    /// The positive control: each step leaves one cycle that holds one tensor of `bytes` bytes.
    PlantedCycle {
        bytes: u64,
    },
}

/// The llama3 program: model, data, optimizer and what is done to the block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Block {
    pub model: Llama3,
    pub input: Input,
    pub dtype: Dtype,
    pub optimizer: Optimizer,
    pub checkpoint: Checkpoint,
    pub compile: Compile,
    pub parallel: Parallel,
}

/// The size of a llama3 model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Llama3 {
    pub layers: u32,
    pub dim: u32,
    pub heads: u32,
    pub kv_heads: u32,
    pub head_dim: u32,
    pub ffn_dim: u32,
    /// One block applied `layers` times.
    pub share_weights: bool,
    /// Size of the vocabulary of an embedding and an output head. Without it the input is already
    /// `[batch, seq, dim]` and the loss is the mean square of the output.
    pub vocab: Option<u32>,
}

/// The size of one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Sequences per step.
    pub batch: u32,
    /// Tokens per sequence.
    pub seq: u32,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    #[default]
    Float32,
    Bfloat16,
    Float64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    Cpu,
    Cuda,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Optimizer {
    #[default]
    Sgd,
    Adamw,
}

/// How the model is spread over the ranks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Parallel {
    /// Each rank trains a model of its own.
    #[default]
    None,
    /// `DistributedDataParallel`.
    Ddp,
    /// `fully_shard` on each block and on the whole.
    Fsdp2,
}

/// How the block is checkpointed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    pub mode: CheckpointMode,
    pub policy: Activation,
    pub early_stop: bool,
    pub preserve_rng_state: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CheckpointMode {
    /// No activation checkpointing.
    #[default]
    None,
    /// Everything inside the block is recomputed.
    Full,
    /// A policy decides which operators' outputs are saved.
    Selective,
}

/// Which outputs selective activation checkpointing saves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// Every second matrix multiplication, beginning with the first, as torchtitan has it.
    EverySecondMm,
    /// Every matrix multiplication.
    AllMm,
    /// Operators by name, for example `aten.mm.default`.
    Ops(Vec<String>),
}

/// What is done with torch.compile and its disable decorator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compile {
    pub disable: Option<DisableApi>,
    pub site: DisableSite,
    /// The torch.compile backend for the block, if it is compiled.
    pub block: Option<Backend>,
}

/// A torch.compile backend by name (`eager`, `aot_eager`, `inductor`).
pub type Backend = String;

/// Which decorator is put on the disable site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DisableApi {
    #[serde(rename = "torch._disable_dynamo")]
    Private,
    #[serde(rename = "torch.compiler.disable")]
    Public,
}

/// Where the decorator is put.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DisableSite {
    /// The closure that a non-reentrant checkpoint makes at every call: what PR 153300 changed.
    #[default]
    RecomputeFn,
    /// The block's forward, one function for the whole run.
    BlockForward,
}
