//! The sizes of a case: the model, its input, and their replacement per device.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use torchleak_protocol::{Device, Dtype, Input, Llama3};

use super::{retains::Retains, size::Bytes, spec::Spec};

/// Which kind of block `model:` describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BlockKind {
    /// RMSNorm, rotary embedding, grouped-query causal attention, SwiGLU; no biases.
    Llama3,
}

/// `model:`, a stack of equal blocks.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The kind of block.
    pub block: BlockKind,
    /// Blocks applied one after the other.
    #[schemars(range(min = 1, max = 1024))]
    pub layers: u32,
    /// Width of the residual stream, in elements.
    #[schemars(range(min = 1, max = 131_072))]
    pub dim: u32,
    /// Query heads of attention.
    #[schemars(range(min = 1, max = 4096))]
    pub heads: u32,
    /// Key and value heads of attention. They divide `heads`. Default: `heads`.
    #[schemars(range(min = 1, max = 4096))]
    pub kv_heads: Option<u32>,
    /// Width of one head, in elements; even, for the rotary embedding. Default: `dim / heads`.
    #[schemars(range(min = 2, max = 8192))]
    pub head_dim: Option<u32>,
    /// Width of the feed-forward layer, in elements.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub ffn_dim: u32,
    /// One block applied `layers` times, instead of `layers` blocks.
    #[serde(default)]
    pub share_weights: bool,
    /// Size of the vocabulary of an embedding and an output head. Default: neither, and the input is
    /// `[batch, seq, dim]` already.
    #[schemars(range(min = 1, max = 4_194_304))]
    pub vocab: Option<u32>,
}

impl Model {
    /// Width of one head; 0 where `heads` is 0, which a checked case excludes.
    pub fn head_dim(&self) -> u32 {
        self.head_dim.unwrap_or_else(|| self.dim.checked_div(self.heads).unwrap_or(0))
    }

    /// The model as the worker wants it, with every default filled in.
    pub fn llama3(&self) -> Llama3 {
        Llama3 {
            layers: self.layers,
            dim: self.dim,
            heads: self.heads,
            kv_heads: self.kv_heads.unwrap_or(self.heads),
            head_dim: self.head_dim(),
            ffn_dim: self.ffn_dim,
            share_weights: self.share_weights,
            vocab: self.vocab,
        }
    }
}

/// `on:`, whole sections that one device replaces.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct On {
    pub cpu: Option<Replacement>,
    pub cuda: Option<Replacement>,
}

impl On {
    /// What the device replaces, if anything.
    pub fn device(&self, device: Device) -> Option<&Replacement> {
        match device {
            Device::Cpu => self.cpu.as_ref(),
            Device::Cuda => self.cuda.as_ref(),
        }
    }
}

/// Sections that take the place of the case's own on one device. A section is replaced as a whole;
/// nothing is merged inside it, so that what runs can be read in one place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Replacement {
    pub model: Option<Model>,
    pub input: Option<Input>,
    pub dtype: Option<Dtype>,
    pub steps: Option<u32>,
    pub threads: Option<u32>,
    pub memory: Option<Bytes>,
    pub retains: Option<Retains>,
}

/// The sections that hold on one device.
#[derive(Debug, Clone, Copy)]
pub struct Sections<'a> {
    pub model: Option<&'a Model>,
    pub input: Option<Input>,
    pub dtype: Dtype,
    pub steps: u32,
    pub threads: u32,
    pub memory: Option<Bytes>,
    pub retains: Option<&'a Retains>,
}

impl<'a> Sections<'a> {
    /// The case's sections with those of `on:` in their place.
    pub fn of(spec: &'a Spec, device: Device) -> Self {
        let on = spec.on.device(device);
        Self {
            model: on.and_then(|on| on.model.as_ref()).or(spec.model.as_ref()),
            input: on.and_then(|on| on.input).or(spec.input),
            dtype: on.and_then(|on| on.dtype).unwrap_or(spec.dtype),
            steps: on.and_then(|on| on.steps).unwrap_or(spec.steps),
            threads: on.and_then(|on| on.threads).unwrap_or(spec.threads),
            memory: on.and_then(|on| on.memory).or(spec.memory),
            retains: on.and_then(|on| on.retains.as_ref()).or(spec.retains.as_ref()),
        }
    }

    /// The dimensions that `retains:` may name, with their sizes.
    pub fn dims(&self, declared: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
        let mut dims = declared.clone();
        let mut name = |name: &str, size: u32| dims.insert(name.to_owned(), u64::from(size));
        if let Some(model) = self.model {
            let model = model.llama3();
            name("layers", model.layers);
            name("dim", model.dim);
            name("heads", model.heads);
            name("kv_heads", model.kv_heads);
            name("head_dim", model.head_dim);
            name("ffn_dim", model.ffn_dim);
            if let Some(vocab) = model.vocab {
                name("vocab", vocab);
            }
        }
        if let Some(input) = self.input {
            name("batch", input.batch);
            name("seq", input.seq);
        }
        dims
    }
}
