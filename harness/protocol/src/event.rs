//! What a worker tells the orchestrator.

use serde::{Deserialize, Serialize};

use crate::{GarbageRecord, RoundGarbage, Start, StepRecord, TorchCycles};

/// One line from a worker host, about itself and its children.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum HostEvent {
    /// The host listens.
    Ready { pid: u32, python: String },
    /// torch is imported; it happens once, before the first forked arm.
    Imported { seconds: f64, torch: String, frozen_objects: u64, threads: u32 },
    /// torch could not be imported. The host exits after this line.
    ImportFailed(Failure),
    /// The child of an arm runs. `start` differs from what was asked where a fork was not safe,
    /// and `reason` then says why.
    Started { arm: u64, pid: u32, start: Start, reason: Option<String> },
    /// The child of an arm is gone. Exactly one of the two is present.
    Exited { arm: u64, code: Option<i32>, signal: Option<i32> },
}

/// One line from the child of an arm, or from one of its ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ArmEvent {
    /// The program is set up and the first step follows.
    Began(Box<ArmFacts>),
    Step(Box<StepRecord>),
    Garbage(Box<GarbageRecord>),
    /// The arm gives up. It exits after this line.
    Failed(Failure),
    /// Whether a planted cycle was detected in this very process. Only ranks say so: an arm that the
    /// host has started alone is vouched for by the host's own control.
    Control {
        detected: bool,
        reason: String,
    },
    /// All steps are done.
    Ended {
        steps: u32,
    },
    /// A rank is gone before its end, as torchrun has noticed. Exactly one of `code` and `signal` is
    /// present. Only the launcher of ranks says so.
    Lost {
        rank: u32,
        code: Option<i32>,
        signal: Option<i32>,
    },
    /// What several further steps leave together. It comes after the end of a diagnosis run whose last step
    /// left no memory in garbage, so that no verdict depends on it.
    Round(Box<RoundGarbage>),
    /// What torch's own code says of the garbage of one more step. It comes after the end of a
    /// diagnosis run, so that no verdict depends on it.
    TorchCycles(Box<TorchCycles>),
}

/// What the numbers of an arm depend on, recorded by the arm itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArmFacts {
    /// Full version string of the interpreter.
    pub python: String,
    pub torch: String,
    /// The commit that torch was built from.
    pub torch_commit: Option<String>,
    /// `cpu`, or the accelerator's name.
    pub device_name: String,
    /// Total memory of the device (of the machine, on CPU) in bytes.
    pub device_memory: Option<u64>,
    /// `gc.isenabled()` while steps are measured.
    pub gc_enabled: bool,
    /// `gc.get_freeze_count()`: objects of the host's imports that no collection visits.
    pub frozen_objects: u64,
    /// `torch.get_num_threads()`.
    pub threads: u32,
    /// Environment variables that set an allocator (`PYTORCH_CUDA_ALLOC_CONF`, `MALLOC_ARENA_MAX`,
    /// `GLIBC_TUNABLES`, ...), as `NAME=value`.
    pub allocator_settings: Vec<String>,
    /// Memory before the first step.
    pub memory: crate::Memory,
    /// Floating-point operations per trained token by torchtitan's formula, where known.
    pub flops_per_token: Option<f64>,
}

/// Why an arm or a host gave up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub kind: FailureKind,
    /// One line.
    pub message: String,
    /// The last lines of the Python traceback, if there is one.
    pub traceback: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The program or torch raised an exception.
    Exception,
    /// An allocation failed: `torch.OutOfMemoryError`, `MemoryError`, or the CPU allocator.
    OutOfMemory,
    /// The arm asks for what this torch or machine does not have.
    Unsupported,
}
