//! What a line of a torchtitan log says, as far as memory is concerned.

/// A point that a training step's line gives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    pub step: u32,
    /// Peak reserved memory since the line before, in bytes. The log rounds it to 0.01 GiB.
    pub memory: f64,
    /// The same as a part of the device's memory, in percent.
    pub percent: Option<f64>,
    /// Tokens per second and device.
    pub tps: Option<f64>,
    /// When it was written, in seconds since an epoch that all lines of a log share.
    pub at: Option<f64>,
}

/// One thing that a line says.
#[derive(Debug, Clone, PartialEq)]
pub enum Event<'a> {
    /// A training step's line.
    Step(Point),
    /// `[GC] <reason> took N seconds`.
    Collected { reason: &'a str, seconds: f64 },
    /// `CUDA Memory changed during GC, N bytes freed.`
    Freed(i64),
    /// The file in which `warn_tensor_cycles` has drawn a cycle.
    CycleFile(&'a str),
    /// `No CUDA Tensors found in garbage`.
    NoTensors,
    /// The device's memory, in bytes.
    Capacity(f64),
    /// The allocator had to give its cached memory back and try again; so often in all.
    Retries(u64),
    /// An out-of-memory error.
    OutOfMemory,
    /// A number that the log tells of the model or of the training.
    Fact(Fact, u64),
    /// A line that looks like a step's and cannot be read: torn, or absurd.
    Unreadable,
}

/// What a number is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact {
    Layers,
    Dim,
    LocalBatch,
    SequenceLength,
    TotalSteps,
}

/// The process that wrote a line, as far as the line says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank {
    /// The task's label, where `srun --label` put one before the line.
    pub task: Option<u32>,
    /// The role that torchrun knows it by: torchtitan calls it `rank`, torchrun itself `default`.
    pub role: String,
    pub number: u32,
}

impl std::fmt::Display for Rank {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(task) = self.task {
            write!(out, "task {task} ")?;
        }
        match self.role.as_str() {
            "" | "rank" => write!(out, "rank {}", self.number),
            role => write!(out, "{role}{}", self.number),
        }
    }
}
