//! The messages of `torchleak watch`: what a watched script's processes are told and what they report.
//!
//! A process reads its [`WatchSpec`] from a file and writes [`WatchEvent`]s to a file of its own, one JSON
//! line at a time, so that what it measured is kept whatever ends it.

use serde::{Deserialize, Serialize};

use crate::{Census, Collected, CycleReport, Failure, Memory, RetentionReport};

/// What the processes of a watched script do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchSpec {
    /// The folder for the files of events.
    pub events: String,
    pub mode: WatchMode,
    pub boundary: Boundary,
    /// Steps at the beginning that are measured and not judged by.
    pub warmup: u32,
    /// Steps between two collections: those of a round under `compare`, torchtitan's `gc_freq` under
    /// `periodic`.
    pub every: u32,
    /// The script is stopped after so many steps.
    pub steps: Option<u32>,
    /// The ranks that report cycles; all of them where it is absent.
    pub ranks: Option<Vec<u32>>,
    /// Whether workers of a DataLoader are watched too; a step of theirs is a batch.
    pub workers: bool,
    /// Whether reports may show strings and numbers of the program.
    pub show_values: bool,
}

/// What is done after each step besides reading the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WatchMode {
    /// Nothing: automatic collections are counted.
    Observe,
    /// Automatic collection is off; a full collect and a report of cycles after each step.
    Debug,
    /// Automatic collection is off; rounds of steps without collection, each ended by a collect to a
    /// fixpoint.
    Compare,
    /// Automatic collection is off; a collect of generation 1 every so many steps, as torchtitan does.
    Periodic,
}

/// What ends a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Boundary {
    /// A step of the optimizer with this index, in the order in which optimizers first step.
    Optimizer { index: u32 },
    /// Every so many steps of the first optimizer.
    Every { steps: u32 },
    /// The end of a call of `function` in `module`; the function may be a method, as `Class.method`.
    Call { module: String, function: String },
    /// So many seconds.
    Time { seconds: f64 },
}

/// One line of a watched process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum WatchEvent {
    /// This interpreter cannot be watched, and ran as it would have without torchleak.
    Unwatched {
        pid: u32,
        python: String,
        reason: String,
    },
    /// torch was imported.
    Imported(Box<WatchFacts>),
    /// The first step is over.
    Began(Box<WatchBegan>),
    Step(Box<WatchStep>),
    /// What a full collect found with `gc.DEBUG_SAVEALL`.
    Garbage(Box<WatchGarbage>),
    /// Whether a planted cycle was detected in this process.
    Control {
        detected: bool,
        reason: String,
    },
    /// Something that was asked for cannot be done.
    Note {
        message: String,
    },
    /// The script is being stopped because it has made as many steps as were asked for.
    Stopped {
        steps: u32,
    },
    /// The interpreter exits in the ordinary way, with the exception that ended it if one did.
    Ended {
        steps: u32,
        failure: Option<Failure>,
    },
}

/// A process that imported torch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchFacts {
    pub pid: u32,
    /// The process that started it.
    pub parent: u32,
    /// The interpreter.
    pub executable: String,
    /// Full version string of the interpreter.
    pub python: String,
    pub platform: String,
    pub torch: String,
    /// The commit that torch was built from.
    pub torch_commit: Option<String>,
    /// `gc.isenabled()` when torch was imported.
    pub gc_enabled: bool,
    /// `gc.get_threshold()`.
    pub gc_threshold: Vec<i64>,
    /// As in [`crate::ArmFacts`].
    pub allocator_settings: Vec<String>,
}

/// A process that makes steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchBegan {
    pub pid: u32,
    pub rank: u32,
    pub world_size: u32,
    /// The number of a DataLoader's worker.
    pub worker: Option<u32>,
    /// `cpu`, or the accelerator's name.
    pub device_name: String,
    /// Total memory of the device (of the machine, on CPU) in bytes.
    pub device_memory: Option<u64>,
    /// The class of the optimizer whose steps are counted, or what is counted instead.
    pub steps_of: String,
    /// `gc.isenabled()` as the script left it.
    pub gc_enabled: bool,
}

/// One step of a watched process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchStep {
    /// Counted from 1.
    pub step: u32,
    /// Wall time since the last step, without what watching cost; the first has none before it.
    pub seconds: Option<f64>,
    /// Counters after the step and before any collection that torchleak makes. Peaks are those of the
    /// process, because resetting them would change what the script sees.
    #[serde(flatten)]
    pub memory: Memory,
    /// Collections since the last step that torchleak did not make.
    pub automatic: Vec<AutomaticCollections>,
    /// What torchleak's own collection did, if one was due.
    pub collected: Option<Collected>,
    /// Wall time that watching took after the step before this one.
    pub watch_seconds: f64,
}

/// Collections of one generation that Python or the script made during a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct AutomaticCollections {
    pub generation: u8,
    pub collections: u64,
    /// Objects that were collected.
    pub objects: u64,
    /// Objects that were found and could not be collected.
    pub uncollectable: u64,
    pub seconds: f64,
    /// Bytes by which the judged counter fell, for the oldest generation: the others are collected too
    /// often to ask each time.
    pub freed: Option<i64>,
}

/// The garbage of one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchGarbage {
    /// The step after which it was found.
    pub step: u32,
    /// How many steps had been made since the last full collection.
    pub over_steps: u32,
    /// Objects in garbage.
    pub objects: u64,
    /// Tensors in garbage whose storage nothing outside the garbage uses.
    pub census: Census,
    /// Tensors in garbage that share their storage with a live tensor.
    pub shared: Census,
    /// Which cycles keep those tensors. Absent where no tensor is in garbage.
    pub cycles: Option<CycleReport>,
    /// What holds the storages that an earlier step made and that live on although everything was
    /// collected, if it was asked.
    pub retained: Option<RetentionReport>,
    /// Wall time of all of this.
    pub seconds: f64,
    /// Live storages that Python's collector can reach, in whatever memory they are, after the collect.
    #[serde(default)]
    pub live: Census,
}
