//! The arms of a case: one run each, under one collection policy.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use torchleak_protocol::{Collection, Policy};

/// One arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Arm {
    /// The collector never runs.
    Uncollected,
    /// A collect after each step.
    Collected { generation: u8 },
    /// A collect once every `gc_freq` steps, as torchtitan does.
    Periodic { gc_freq: u32, generation: u8 },
}

/// The generation of a full collect.
const FULL: u8 = 2;

/// The generation that torchtitan collects, and how often.
const TITAN: (u32, u8) = (50, 1);

/// The arms of a case that names none: what a verdict needs.
pub fn default_arms() -> Vec<Arm> {
    vec![Arm::Uncollected, Arm::Collected { generation: FULL }]
}

impl Arm {
    /// Whether this is the arm that a verdict compares with `uncollected`.
    pub fn collects_fully(self) -> bool {
        self == Self::Collected { generation: FULL }
    }

    /// The arm as the worker wants it.
    pub fn policy(self) -> Policy {
        match self {
            Self::Uncollected => Policy::Uncollected,
            Self::Collected { generation } => Policy::Collected(Collection { generation }),
            Self::Periodic { gc_freq, generation } => Policy::Periodic { every: gc_freq, generation },
        }
    }
}

impl fmt::Display for Arm {
    /// The arm's name in tables and in JSON, unique within a case.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Uncollected => f.pad("uncollected"),
            Self::Collected { generation: FULL } => f.pad("collected"),
            Self::Collected { generation } => f.pad(&format!("collected-gen{generation}")),
            Self::Periodic { gc_freq, generation } if generation == TITAN.1 => {
                f.pad(&format!("periodic-{gc_freq}"))
            }
            Self::Periodic { gc_freq, generation } => f.pad(&format!("periodic-{gc_freq}-gen{generation}")),
        }
    }
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Uncollected,
    Collected,
    Periodic,
}

#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CollectedKeys {
    /// Generation to collect; 2 is a full collect.
    #[serde(default = "full")]
    #[schemars(range(max = 2))]
    generation: u8,
}

#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PeriodicKeys {
    /// Steps from one collect to the next.
    #[serde(default = "titan_freq")]
    #[schemars(range(min = 1))]
    gc_freq: u32,
    /// Generation to collect.
    #[serde(default = "titan_generation")]
    #[schemars(range(max = 2))]
    generation: u8,
}

fn full() -> u8 {
    FULL
}

fn titan_freq() -> u32 {
    TITAN.0
}

fn titan_generation() -> u8 {
    TITAN.1
}

impl<'de> Deserialize<'de> for Arm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A derived enum would accept either `- collected` or `- collected: {...}`, not both, and an
        // untagged one would lose line and column.
        deserializer.deserialize_any(ArmVisitor)
    }
}

struct ArmVisitor;

impl<'de> Visitor<'de> for ArmVisitor {
    type Value = Arm;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`uncollected`, `collected` or `periodic`, alone or with options")
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<Arm, E> {
        Ok(match Kind::deserialize(de::value::StrDeserializer::new(word))? {
            Kind::Uncollected => Arm::Uncollected,
            Kind::Collected => Arm::Collected { generation: FULL },
            Kind::Periodic => Arm::Periodic { gc_freq: TITAN.0, generation: TITAN.1 },
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Arm, A::Error> {
        let Some(kind) = map.next_key::<Kind>()? else {
            return Err(de::Error::invalid_length(0, &self));
        };
        let arm = match kind {
            Kind::Uncollected => {
                map.next_value::<Nothing>()?;
                Arm::Uncollected
            }
            Kind::Collected => {
                let CollectedKeys { generation } = map.next_value()?;
                Arm::Collected { generation }
            }
            Kind::Periodic => {
                let PeriodicKeys { gc_freq, generation } = map.next_value()?;
                Arm::Periodic { gc_freq, generation }
            }
        };
        match map.next_key::<Kind>()? {
            None => Ok(arm),
            Some(_) => Err(de::Error::custom(super::error::with_hint(
                "one entry of the list names two arms",
                "begin the second one with a dash of its own",
            ))),
        }
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

impl JsonSchema for Arm {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Arm".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let collected = generator.subschema_for::<CollectedKeys>();
        let periodic = generator.subschema_for::<PeriodicKeys>();
        let one = |name: &str, keys: Schema| {
            json_schema!({
                "type": "object",
                "properties": {name: keys},
                "required": [name],
                "additionalProperties": false
            })
        };
        json_schema!({
            "description": "An arm by name, alone or with options.",
            "anyOf": [
                {"enum": ["uncollected", "collected", "periodic"]},
                one("collected", collected),
                one("periodic", periodic)
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str) -> Result<Vec<Arm>, String> {
        serde_yaml::from_str(yaml).map_err(|error| error.to_string())
    }

    #[test]
    fn an_arm_is_a_word_or_a_word_with_options() {
        let arms = read(
            "[uncollected, collected, collected: {generation: 1}, periodic: {gc_freq: 5, generation: 0}]",
        );
        let arms = arms.unwrap();
        let names: Vec<_> = arms.iter().map(Arm::to_string).collect();
        assert_eq!(names, ["uncollected", "collected", "collected-gen1", "periodic-5-gen0"]);
        assert_eq!(read("[periodic]").unwrap(), [Arm::Periodic { gc_freq: 50, generation: 1 }]);
    }

    #[test]
    fn anything_else_is_refused() {
        for yaml in [
            "[colected]",
            "[{}]",
            "[collected: {gen: 1}]",
            "[{collected: {}, periodic: {}}]",
            "[7]",
            "[[collected]]",
        ] {
            assert!(read(yaml).is_err(), "{yaml}");
        }
    }
}
