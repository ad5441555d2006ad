//! The predicted retention: which tensors stay alive after a step, in exact bytes.

use std::{collections::BTreeMap, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Visitor};
use torchleak_protocol::{Device, Dtype};

use super::{error::with_hint, suggest};

/// Bytes of one state of the CPU's random generator (`torch.get_rng_state()`).
pub const CPU_RNG_STATE: u64 = 5056;

/// Bytes of one state of a CUDA generator (`torch.cuda.get_rng_state()`): seed and offset. The tensor
/// that holds it lives on the host.
pub const CUDA_RNG_STATE: u64 = 16;

/// `retains:`.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Retains {
    /// Tensors on the device that trains.
    #[serde(default)]
    pub tensors: Vec<Tensor>,
    /// Checkpointed calls per layer and step whose random generator states are kept: one CPU state of
    /// 5056 bytes each, and on CUDA one more of 16 bytes.
    #[serde(default)]
    pub rng_states: u64,
}

/// A kind of tensor that is kept.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tensor {
    /// What it is, in words.
    pub name: String,
    /// Its shape, each extent a product of dimensions and numbers, such as `batch*seq`.
    pub shape: Vec<Extent>,
    /// Its type. Default: that of the model.
    pub dtype: Option<TensorDtype>,
    /// Whether it is kept once per layer or once per step.
    pub per: Per,
    /// How many of them. Default: 1.
    pub count: Option<u64>,
    /// What holds it: whether a collect finds it as a tensor in garbage. Default: `python`.
    #[serde(default)]
    pub held_by: HeldBy,
}

/// What holds a retained tensor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, JsonSchema)]
pub enum HeldBy {
    /// A Python object that the collector can walk: the tensor itself is among the garbage.
    #[default]
    #[serde(rename = "python")]
    Python,
    /// C++, such as an autograd node or a saved variable, or a storage without a tensor: no tensor of
    /// Python's is among the garbage, and only the allocator shows the bytes.
    #[serde(rename = "c++")]
    Cpp,
}

/// How often a tensor is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Per {
    /// `count` of them for each layer, at each step.
    Layer,
    /// `count` of them at each step.
    Step,
}

/// The type of a retained tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TensorDtype {
    Float64,
    Float32,
    Float16,
    Bfloat16,
    Int64,
    Int32,
    Uint8,
    Bool,
}

impl TensorDtype {
    /// Bytes of one element.
    pub fn size(self) -> u64 {
        match self {
            Self::Float64 | Self::Int64 => 8,
            Self::Float32 | Self::Int32 => 4,
            Self::Float16 | Self::Bfloat16 => 2,
            Self::Uint8 | Self::Bool => 1,
        }
    }

    /// The name that torch gives it, without `torch.`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Float64 => "float64",
            Self::Float32 => "float32",
            Self::Float16 => "float16",
            Self::Bfloat16 => "bfloat16",
            Self::Int64 => "int64",
            Self::Int32 => "int32",
            Self::Uint8 => "uint8",
            Self::Bool => "bool",
        }
    }
}

impl From<Dtype> for TensorDtype {
    fn from(dtype: Dtype) -> Self {
        match dtype {
            Dtype::Float32 => Self::Float32,
            Dtype::Bfloat16 => Self::Bfloat16,
            Dtype::Float64 => Self::Float64,
        }
    }
}

/// One extent of a shape: a product of named dimensions and numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent(Vec<Factor>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Factor {
    Number(u64),
    Dim(String),
}

impl Extent {
    /// The extent's size.
    ///
    /// # Errors
    ///
    /// A name that is no dimension here, or a product above 2^64. The text is a message, and below its
    /// first line a hint.
    fn size(&self, dims: &BTreeMap<String, u64>) -> Result<u64, String> {
        self.0.iter().try_fold(1_u64, |product, factor| {
            let size = match factor {
                Factor::Number(number) => *number,
                Factor::Dim(name) => *dims.get(name).ok_or_else(|| unknown_dimension(name, dims))?,
            };
            product.checked_mul(size).ok_or_else(too_large)
        })
    }
}

fn unknown_dimension(name: &str, dims: &BTreeMap<String, u64>) -> String {
    let names: Vec<&str> = dims.keys().map(String::as_str).collect();
    let hint = if names.is_empty() {
        "a program case writes numbers, or declares its dimensions in `dims:`".to_owned()
    } else {
        suggest::choices(name, &names)
    };
    with_hint(format!("`{name}` is not a dimension of this case"), hint)
}

fn too_large() -> String {
    with_hint(
        "the predicted retention does not fit into 64 bits",
        "check the sizes; bytes are exact up to 2^64",
    )
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, factor) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("*")?;
            }
            match factor {
                Factor::Number(number) => write!(f, "{number}")?,
                Factor::Dim(name) => f.write_str(name)?,
            }
        }
        Ok(())
    }
}

/// Whether `name` can name a dimension.
pub(super) fn is_dimension(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.len() <= 40
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

impl<'de> Deserialize<'de> for Extent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(ExtentVisitor)
    }
}

struct ExtentVisitor;

impl Visitor<'_> for ExtentVisitor {
    type Value = Extent;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number or a product of dimensions such as `batch*seq`")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Extent, E> {
        let factor = |part: &str| {
            let part = part.trim();
            if is_dimension(part) {
                return Ok(Factor::Dim(part.to_owned()));
            }
            let digits = part.bytes().all(|byte| byte.is_ascii_digit());
            part.parse().ok().filter(|_| digits).map(Factor::Number).ok_or_else(|| {
                E::custom(with_hint(
                    format!("`{text}` is not an extent: `{part}` is neither a dimension nor a number"),
                    "write a product such as `batch*seq` or `4*dim`",
                ))
            })
        };
        text.split('*').map(factor).collect::<Result<_, E>>().map(Extent)
    }
}

impl JsonSchema for Extent {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Extent".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A number, or a product of dimensions and numbers such as `batch*seq`.",
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": "^ *([a-z][a-z0-9_]*|[0-9]+) *(\\* *([a-z][a-z0-9_]*|[0-9]+) *)*$"}
            ]
        })
    }
}

/// What a case is predicted to retain per step, in bytes, once warm.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Prediction {
    /// Bytes of tensors on the device that trains.
    pub device_bytes: u64,
    /// Bytes of tensors on the host. On the CPU they come out of the same memory as `device_bytes`.
    pub host_bytes: u64,
    /// The part of `device_bytes` that C++ holds, so that it is not among the tensors in garbage.
    pub cpp_bytes: u64,
    /// The kinds of tensors that make up both.
    pub terms: Vec<Term>,
}

impl Prediction {
    /// Bytes on the device and on the host together, as a collect frees them.
    pub fn total_bytes(&self) -> u64 {
        // `Retains::evaluate` has checked this very sum.
        self.device_bytes.saturating_add(self.host_bytes)
    }
}

/// One kind of tensor in a [`Prediction`].
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Term {
    pub name: String,
    pub shape: Vec<u64>,
    pub dtype: &'static str,
    /// Tensors per step.
    pub count: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    pub held_by: HeldBy,
}

/// Why a prediction cannot be evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Index of the tensor to blame; none for `rng_states` and for sums.
    pub tensor: Option<usize>,
    /// A message, and below its first line a hint.
    pub message: String,
}

impl Retains {
    /// The prediction in bytes.
    ///
    /// # Errors
    ///
    /// Unknown dimensions and sizes above 2^64.
    pub fn evaluate(
        &self,
        dims: &BTreeMap<String, u64>,
        dtype: Dtype,
        device: Device,
    ) -> Result<Prediction, Fault> {
        let mut terms = Vec::new();
        let (mut device_bytes, mut cpp_bytes) = (0_u64, 0_u64);
        for (index, tensor) in self.tensors.iter().enumerate() {
            let blame = |message| Fault { tensor: Some(index), message };
            let term = tensor.term(dims, dtype).map_err(blame)?;
            device_bytes = device_bytes.checked_add(term.bytes).ok_or_else(|| blame(too_large()))?;
            if term.held_by == HeldBy::Cpp {
                // It cannot overflow where the sum of all has not.
                cpp_bytes += term.bytes;
            }
            terms.push(term);
        }
        let blame = |message| Fault { tensor: None, message };
        let mut host_bytes = 0_u64;
        for (name, size) in [("CPU RNG state", CPU_RNG_STATE), ("CUDA RNG state", CUDA_RNG_STATE)] {
            let absent = self.rng_states == 0 || (size == CUDA_RNG_STATE && device == Device::Cpu);
            if absent {
                continue;
            }
            let count = per(Per::Layer, self.rng_states, dims).map_err(blame)?;
            let bytes = count.checked_mul(size).ok_or_else(|| blame(too_large()))?;
            host_bytes = host_bytes.checked_add(bytes).ok_or_else(|| blame(too_large()))?;
            let (name, shape, held_by) = (name.to_owned(), vec![size], HeldBy::Python);
            terms.push(Term { name, shape, dtype: "uint8", count, bytes, held_by });
        }
        device_bytes.checked_add(host_bytes).ok_or_else(|| blame(too_large()))?;
        Ok(Prediction { device_bytes, host_bytes, cpp_bytes, terms })
    }
}

impl Tensor {
    fn term(&self, dims: &BTreeMap<String, u64>, model: Dtype) -> Result<Term, String> {
        let dtype = self.dtype.unwrap_or(model.into());
        let shape = self.shape.iter().map(|extent| extent.size(dims)).collect::<Result<Vec<_>, _>>()?;
        let count = per(self.per, self.count.unwrap_or(1), dims)?;
        let bytes = shape
            .iter()
            .chain([&dtype.size(), &count])
            .try_fold(1_u64, |product, factor| product.checked_mul(*factor))
            .ok_or_else(too_large)?;
        if bytes == 0 {
            return Err(with_hint(format!("`{}` has 0 bytes", self.name), "leave out what is not kept"));
        }
        let (name, dtype, held_by) = (self.name.clone(), dtype.name(), self.held_by);
        Ok(Term { name, shape, dtype, count, bytes, held_by })
    }
}

fn per(per: Per, count: u64, dims: &BTreeMap<String, u64>) -> Result<u64, String> {
    match per {
        Per::Step => Ok(count),
        Per::Layer => match dims.get("layers") {
            Some(layers) => layers.checked_mul(count).ok_or_else(too_large),
            None => Err(with_hint(
                "this case has no layers to count by",
                "a program case says `per: step`, or declares `dims: {layers: N}`",
            )),
        },
    }
}
