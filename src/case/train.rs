//! How the block is trained: activation checkpointing, and torch.compile with its disable decorator.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use torchleak_protocol::{Activation, Checkpoint, CheckpointMode, Compile, DisableApi, DisableSite};

/// `checkpoint:`.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckpointSection {
    /// How much of the block is recomputed.
    pub mode: CheckpointMode,
    /// What selective checkpointing saves. Default: `every-second-mm`.
    pub policy: Option<Policy>,
    /// End the recompute at the last tensor that is needed. Default: true.
    pub early_stop: Option<bool>,
    /// Save the random generators' states at each checkpointed call. Default: true.
    pub preserve_rng_state: Option<bool>,
}

impl CheckpointSection {
    /// The section as the worker wants it.
    pub fn filled(&self) -> Checkpoint {
        Checkpoint {
            mode: self.mode,
            policy: self.policy.as_ref().map_or(Activation::EverySecondMm, |policy| policy.0.clone()),
            early_stop: self.early_stop.unwrap_or(true),
            preserve_rng_state: self.preserve_rng_state.unwrap_or(true),
        }
    }
}

/// `checkpoint.policy`: a word or a list of operator names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy(pub Activation);

const POLICIES: &[&str] = &["every-second-mm", "all-mm"];

impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PolicyVisitor)
    }
}

struct PolicyVisitor;

impl<'de> Visitor<'de> for PolicyVisitor {
    type Value = Policy;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`every-second-mm`, `all-mm` or a list of operator names")
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<Policy, E> {
        match word {
            "every-second-mm" => Ok(Policy(Activation::EverySecondMm)),
            "all-mm" => Ok(Policy(Activation::AllMm)),
            _ => Err(E::unknown_variant(word, POLICIES)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Policy, A::Error> {
        let mut ops = Vec::new();
        while let Some(op) = list.next_element()? {
            ops.push(op);
        }
        Ok(Policy(Activation::Ops(ops)))
    }
}

impl JsonSchema for Policy {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Policy".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "`every-second-mm` as torchtitan has it, `all-mm`, or operator names such as `aten.mm.default`.",
            "anyOf": [
                {"enum": POLICIES},
                {"type": "array", "minItems": 1, "items": {"type": "string", "pattern": "^\\w+\\.\\w+\\.\\w+$"}}
            ]
        })
    }
}

/// `compile:`.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompileSection {
    /// The decorator under test: `none`, or which and where.
    #[serde(default)]
    pub disable: Disable,
    /// The torch.compile backend for the block, or `none`.
    #[serde(default)]
    pub block: Backend,
}

impl CompileSection {
    /// The section as the worker wants it.
    pub fn filled(&self) -> Compile {
        Compile {
            disable: self.disable.0.map(|at| at.api),
            site: self.disable.0.map(|at| at.site).unwrap_or_default(),
            block: self.block.0.clone(),
        }
    }
}

/// `compile.disable`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Disable(pub Option<DisableAt>);

/// Which decorator, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DisableAt {
    /// The decorator.
    pub api: DisableApi,
    /// The function it is put on. Default: `recompute-fn`.
    #[serde(default)]
    pub site: DisableSite,
}

impl<'de> Deserialize<'de> for Disable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DisableVisitor)
    }
}

struct DisableVisitor;

impl<'de> Visitor<'de> for DisableVisitor {
    type Value = Disable;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`none` or the keys `api` and `site`")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Disable, E> {
        Ok(Disable(None))
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<Disable, E> {
        match word {
            "none" => Ok(Disable(None)),
            // The decorator's name alone is clear enough.
            _ => {
                let api = DisableApi::deserialize(word.into_deserializer())?;
                Ok(Disable(Some(DisableAt { api, site: DisableSite::default() })))
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Disable, A::Error> {
        DisableAt::deserialize(de::value::MapAccessDeserializer::new(map)).map(|at| Disable(Some(at)))
    }
}

impl JsonSchema for Disable {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Disable".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let at = generator.subschema_for::<DisableAt>();
        let api = generator.subschema_for::<DisableApi>();
        json_schema!({"anyOf": [{"enum": ["none", null]}, api, at]})
    }
}

/// `compile.block`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Backend(pub Option<String>);

impl<'de> Deserialize<'de> for Backend {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = Option::<String>::deserialize(deserializer)?;
        Ok(Self(name.filter(|name| name != "none")))
    }
}

impl JsonSchema for Backend {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Backend".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "`none`, or a torch.compile backend such as `eager`, `aot_eager` or `inductor`.",
            "type": ["string", "null"],
            "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"
        })
    }
}
