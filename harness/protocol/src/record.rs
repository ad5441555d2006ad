//! What is measured: one record a step. Integers are bytes unless a name says otherwise.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{CycleReport, RetentionReport};

/// Memory counters of one process at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Bytes that the C allocator has handed out: glibc `mallinfo2`'s `uordblks + hblkhd`. Absent
    /// where the platform has no such counter. Objects of 512 bytes and less that Python makes
    /// live in arenas of its own and are not part of it.
    pub in_use: Option<u64>,
    /// Resident set size. It is recorded, never judged by: it holds freed pages too.
    pub rss: Option<u64>,
    /// The highest resident set size since the step began.
    pub peak_rss: Option<u64>,
    /// The accelerator's caching allocator, on CUDA only.
    pub device: Option<DeviceMemory>,
}

/// Counters of `torch.cuda.memory_stats`, the field names shortened.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceMemory {
    /// `allocated_bytes.all.current`: what verdicts are judged by.
    pub allocated: u64,
    /// `active_bytes.all.current`.
    pub active: u64,
    /// `reserved_bytes.all.current`: held from the driver, used or not. Never judged by.
    pub reserved: u64,
    /// `allocated_bytes.all.peak` since the step began.
    pub peak_allocated: u64,
    /// `reserved_bytes.all.peak` since the step began.
    pub peak_reserved: u64,
    /// `num_alloc_retries` since the process began.
    pub alloc_retries: u64,
    /// `num_ooms` since the process began.
    pub ooms: u64,
}

/// Tensors found by a walk over Python objects, per device (`cpu`, `cuda:0`).
pub type Census = BTreeMap<String, Storages>;

/// Tensors of one device, each storage counted once by its data pointer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Storages {
    /// How many tensor objects were met.
    pub tensors: u64,
    /// How many different storages they use.
    pub storages: u64,
    /// Bytes of those storages.
    pub bytes: u64,
}

/// One training step of one arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Counted from 1.
    pub step: u32,
    /// Absent when the program gives none or it is not finite.
    pub loss: Option<f64>,
    /// `nan`, `inf` or `-inf` where the loss is not finite, which JSON has no number for.
    pub loss_is: Option<String>,
    /// The L2 norm over all gradients, before the optimizer's step.
    pub grad_norm: Option<f64>,
    /// Wall time of the step, without what the measurement costs.
    pub seconds: f64,
    /// Tokens trained in the step, where the program has tokens.
    pub tokens: Option<u64>,
    /// After the step and before any collection that the arm asks for.
    #[serde(flatten)]
    pub memory: Memory,
    /// Live tensors that Python's collector tracks, after the collection if there was one.
    pub census: Census,
    /// What the arm's forced collection did, if it was due at this step.
    pub collected: Option<Collected>,
    /// Collections during the step that torchleak did not ask for: the program turned the collector
    /// on or called it.
    pub foreign_collections: u64,
}

/// One forced collection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Collected {
    /// The generation that was collected.
    pub generation: u8,
    /// Unreachable objects that `gc.collect` reported, over all passes.
    pub objects: u64,
    /// Passes until one found nothing: a finalizer can release more on the next pass.
    pub passes: u32,
    /// Wall time of all passes.
    pub seconds: f64,
    /// Counters after the collection.
    pub memory: Memory,
}

/// What a full collect found with `gc.DEBUG_SAVEALL`, after one step of a diagnosis run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GarbageRecord {
    /// Counted from 1.
    pub step: u32,
    /// The loss, which must equal that of the measured arms.
    pub loss: Option<f64>,
    /// As in [`StepRecord`].
    pub loss_is: Option<String>,
    /// As in [`StepRecord`].
    pub foreign_collections: u64,
    /// Objects in `gc.garbage`.
    pub objects: u64,
    /// Tensors in garbage whose storage nothing outside the garbage uses.
    pub census: Census,
    /// Tensors in garbage that share their storage with a live tensor: freeing them frees nothing.
    pub shared: Census,
    /// Which cycles keep those tensors. Absent where no tensor is in garbage.
    pub cycles: Option<CycleReport>,
    /// What holds the storages that an earlier step made and that live on although everything was
    /// collected. Only the last step asks, and it is absent where there are none.
    pub retained: Option<RetentionReport>,
}

/// What a full collect found with `gc.DEBUG_SAVEALL` after several steps without one. It has also what the program
/// itself holds until its next step, which is in the garbage of no single one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RoundGarbage {
    /// The last of the steps, counted from 1.
    pub step: u32,
    /// How many steps there were.
    pub over_steps: u32,
    /// Which cycles keep tensors in it. Absent where no tensor is in garbage.
    pub cycles: Option<CycleReport>,
}

/// What torch's own `torch.utils.viz._cycles` says of the garbage of one further step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TorchCycles {
    /// The lines that it logs, `warn_tensor_cycles` on CUDA and the same code with a filter for CPU
    /// tensors on the CPU.
    pub lines: Vec<String>,
    /// The graph that `create_graph` makes: what leads to a tensor.
    pub nodes: Vec<TorchNode>,
    /// The name of the page that `to_html` made, in the arm's artifacts folder.
    pub html: Option<String>,
}

/// A node of torch's graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TorchNode {
    pub label: String,
    /// Whether it is a tensor.
    pub root: bool,
    /// What it refers to: the reference's label and the other node's index.
    pub references: Vec<(String, usize)>,
}
