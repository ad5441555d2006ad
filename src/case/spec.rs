//! The keys of a case file. `docs/case-format.md` documents them for people.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use torchleak_protocol::{Device, Dtype, Input, Optimizer, Parallel, Start};

use super::{
    arms::{Arm, default_arms},
    expect::Expectation,
    model::{Model, On},
    reference::Reference,
    retains::Retains,
    size::Bytes,
    train::{CheckpointSection, CompileSection},
};

/// A case file as it is written. [`super::Case::resolved`] gives it with its defaults filled in and
/// `on:` applied.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "torchleak case")]
pub struct Spec {
    /// The file's name without its ending: small letters, digits and dashes.
    #[schemars(regex(pattern = "^[a-z0-9][a-z0-9-]*$"))]
    pub name: String,
    /// What is held by what, in a sentence or a few.
    pub summary: String,
    /// Upstream issues and pull requests, such as `pytorch/pytorch#153300`.
    #[serde(default)]
    pub upstream: Vec<Reference>,
    /// When the case runs.
    #[serde(default)]
    pub when: When,
    /// A Python file beside this one that defines `setup(ctx)` and `step(state)`. It takes the place
    /// of `model`, `input`, `optimizer`, `checkpoint` and `compile`.
    pub program: Option<String>,
    /// Dimensions that a `program` case names in `retains`.
    #[serde(default)]
    pub dims: BTreeMap<String, u64>,
    /// The model.
    pub model: Option<Model>,
    /// The size of one batch.
    pub input: Option<Input>,
    /// Type of weights and activations.
    #[serde(default)]
    pub dtype: Dtype,
    /// The device the case is about.
    #[serde(default)]
    pub device: DeviceChoice,
    /// Training steps, warm-up included.
    #[serde(default = "default_steps")]
    #[schemars(range(min = 3, max = 10_000))]
    pub steps: u32,
    /// Steps at the beginning that are not judged.
    #[serde(default = "default_warmup")]
    pub warmup: u32,
    /// Seed of weights and data.
    #[serde(default)]
    pub seed: u64,
    /// Threads of one operator on the CPU.
    #[serde(default = "default_threads")]
    #[schemars(range(min = 1, max = 1024))]
    pub threads: u32,
    /// Processes that train together, started by the environment's own torchrun.
    #[serde(default = "default_ranks")]
    #[schemars(range(min = 1, max = 64))]
    pub ranks: u32,
    /// How the model is spread over the ranks.
    #[serde(default)]
    pub parallel: Parallel,
    /// The optimizer.
    #[serde(default)]
    pub optimizer: Optimizer,
    /// Activation checkpointing.
    pub checkpoint: Option<CheckpointSection>,
    /// torch.compile and its disable decorator.
    pub compile: Option<CompileSection>,
    /// The arms. `uncollected` and a full `collected` are needed for a verdict.
    #[serde(default = "default_arms")]
    pub arms: Vec<Arm>,
    /// Whether torch is imported before the case starts.
    #[serde(default)]
    pub imports: Imports,
    /// What is predicted to be retained. Without it a verdict goes without a prediction.
    pub retains: Option<Retains>,
    /// The expected verdicts; the first line that matches wins.
    pub expect: Vec<Expectation>,
    /// Growth in bytes per step that still counts as flat. Default: the verdict's own.
    pub tolerance: Option<Bytes>,
    /// What one arm needs at its peak, on the device it trains on.
    pub memory: Option<Bytes>,
    /// Sections that one device replaces.
    #[serde(default)]
    pub on: On,
}

fn default_steps() -> u32 {
    6
}

fn default_warmup() -> u32 {
    2
}

fn default_threads() -> u32 {
    1
}

fn default_ranks() -> u32 {
    1
}

/// When a case runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum When {
    /// With `run --all` and when it is named.
    #[default]
    Always,
    /// As `always`, but of all only with `run --all --slow`: it compiles, or imports torch anew.
    Slow,
    /// Only when it is named.
    Named,
}

/// The device a case is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DeviceChoice {
    /// CUDA where there is one, else the CPU.
    #[default]
    Auto,
    Cpu,
    Cuda,
}

impl DeviceChoice {
    /// Whether a case with this choice can run there.
    pub fn allows(self, device: Device) -> bool {
        match self {
            Self::Auto => true,
            Self::Cpu => device == Device::Cpu,
            Self::Cuda => device == Device::Cuda,
        }
    }

    /// Every device a case with this choice can run on.
    pub fn devices(self) -> impl Iterator<Item = Device> {
        [Device::Cpu, Device::Cuda].into_iter().filter(move |device| self.allows(*device))
    }
}

/// Whether torch is imported before the case starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Imports {
    /// torch and torch._dynamo are imported.
    #[default]
    Warm,
    /// A fresh interpreter, for cases in which the import itself is the matter.
    Cold,
}

impl Imports {
    /// How the arm's process comes to be.
    pub fn start(self) -> Start {
        match self {
            Self::Warm => Start::Fork,
            Self::Cold => Start::Spawn,
        }
    }
}
