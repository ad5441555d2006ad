//! Sizes as people write them: `4KiB`, `12GiB`, or a plain number of bytes.

use std::fmt;

use bytesize::ByteSize;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Visitor};

use super::error::with_hint;

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

/// The largest size a case may name. It is far above any machine and far below where the parser,
/// which goes through a floating-point number, would begin to round.
const LARGEST: u64 = 1 << 50;

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", ByteSize(self.0).display().iec())
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A size is read as text even when it is a bare integer, so that both spellings meet the
        // same parser and the same message.
        deserializer.deserialize_str(SizeVisitor)
    }
}

struct SizeVisitor;

impl Visitor<'_> for SizeVisitor {
    type Value = Bytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size such as `4KiB`, `12GiB` or a number of bytes")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Bytes, E> {
        let refused = |why: &str| {
            E::custom(with_hint(
                format!("`{text}` is not a size: {why}"),
                "write `4KiB`, `12GiB` or a number of bytes",
            ))
        };
        // Overflow and rounding would otherwise pass silently: the parser saturates.
        match text.parse::<ByteSize>() {
            Ok(ByteSize(bytes)) if bytes <= LARGEST => Ok(Bytes(bytes)),
            Ok(_) => Err(refused("it is above 1 PiB")),
            Err(_) => Err(refused("a number with an optional unit was expected")),
        }
    }
}

impl JsonSchema for Bytes {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Bytes".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A number of bytes, or a size such as `4KiB` or `12GiB`.",
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": "^[0-9.]+ *([kKMGTP]i?)?B?$"}
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str) -> Result<u64, String> {
        serde_yaml::from_str::<Bytes>(yaml).map(|bytes| bytes.0).map_err(|error| error.to_string())
    }

    #[test]
    fn sizes_are_exact_bytes() {
        assert_eq!(read("4KiB"), Ok(4096));
        assert_eq!(read("12GiB"), Ok(12 << 30));
        assert_eq!(read("4096"), Ok(4096));
        assert_eq!(read("1 PiB"), Ok(LARGEST));
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["-1", "12 bananas", "99999999999999999999GiB", "''", ".nan", "[1]"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
