//! What a case is expected to show, for which torch.
//!
//! Ranges are PEP 440 specifiers, but they are matched by plain PEP 440 *order*. The specifier rules
//! of package installers differ in three ways that would be wrong here:
//! - `<2.8` refuses `2.8.0.dev20250527` for an installer, because nobody who asks for "below 2.8"
//!   wants a preview of 2.8. A leak does not care: that nightly comes before 2.8.0.
//! - `>2.8` refuses `2.8.0.post1` for an installer; it comes after 2.8.0 all the same.
//! - a local part (`+cu128`) makes a version larger than the same version without it, so `<=2.8.0`
//!   would refuse `2.8.0+cu128`. It names a build and not a release, and is dropped first.
//!
//! The equality operators (`==`, `!=`, both with `.*`, and `~=`) keep their installer meaning.

use std::{fmt, str::FromStr};

use pep440_rs::{Operator, Version, VersionSpecifier, VersionSpecifiers};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Serialize,
    de::{self, Deserializer},
};
use torchleak_protocol::Device;

use super::error::with_hint;

/// What a case showed, or is expected to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The uncollected arm grows as predicted, and collecting frees it.
    Reproduced,
    /// Neither arm grows, and the positive control was detected.
    Fixed,
    /// Bytes are kept once, and not at every step.
    OneOff,
    /// The case grows, and no collect frees it.
    Uncollectable,
    /// What was measured does not decide.
    Inconclusive,
    /// The case could not be run to its end.
    Error,
}

impl Verdict {
    /// Whether the verdict says something about the leak.
    pub fn is_conclusive(self) -> bool {
        !matches!(self, Self::Inconclusive | Self::Error)
    }

    /// The word for this verdict in case files, on the screen and in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::Fixed => "fixed",
            Self::OneOff => "one-off",
            Self::Uncollectable => "uncollectable",
            Self::Inconclusive => "inconclusive",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `pad` honours a width, which tables use.
        f.pad(self.word())
    }
}

/// One line of `expect:`. Every condition it names must hold.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// Range of torch versions, such as `>=2.6,<2.8`. Any version when absent.
    pub torch: Option<Range>,
    /// Range of Python versions, such as `>=3.12`. Any version when absent.
    pub python: Option<Range>,
    /// Any device when absent.
    pub device: Option<Device>,
    /// The verdict expected there.
    pub verdict: Verdict,
}

impl Expectation {
    /// Whether this line speaks about that environment.
    pub fn matches(&self, torch: &Version, python: &Version, device: Device) -> bool {
        self.torch.as_ref().is_none_or(|range| range.contains(torch))
            && self.python.as_ref().is_none_or(|range| range.contains(python))
            && self.device.is_none_or(|wanted| wanted == device)
    }

    /// Whether this line speaks about every environment.
    pub fn is_catch_all(&self) -> bool {
        self.torch.is_none() && self.python.is_none() && self.device.is_none()
    }

    /// The conditions in words, `any torch` when there are none.
    pub fn conditions(&self) -> String {
        let mut words = Vec::new();
        if let Some(torch) = &self.torch {
            words.push(format!("torch {torch}"));
        }
        if let Some(python) = &self.python {
            words.push(format!("python {python}"));
        }
        if let Some(device) = self.device {
            words.push(match device {
                Device::Cpu => "on cpu".to_owned(),
                Device::Cuda => "on cuda".to_owned(),
            });
        }
        if words.is_empty() { "any torch".to_owned() } else { words.join(", ") }
    }
}

/// A range of versions, matched by order (see the module's comment).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range(VersionSpecifiers);

impl Range {
    /// The lowest version that can lie in it, where one of its specifiers says so.
    pub fn lowest(&self) -> Option<Version> {
        let bounds = self.0.iter().filter(|specifier| {
            use Operator::{Equal, EqualStar, ExactEqual, GreaterThan, GreaterThanEqual, TildeEqual};
            matches!(
                specifier.operator(),
                EqualStar | ExactEqual | Equal | GreaterThan | GreaterThanEqual | TildeEqual
            )
        });
        // All must hold, so the highest bound counts.
        bounds.map(|specifier| specifier.version().clone()).max()
    }

    /// Whether `version`, without its local part, lies in this range.
    pub fn contains(&self, version: &Version) -> bool {
        let version = version.clone().without_local();
        self.0.iter().all(|specifier| holds(specifier, &version))
    }
}

fn holds(specifier: &VersionSpecifier, version: &Version) -> bool {
    match specifier.operator() {
        Operator::LessThan => version < specifier.version(),
        Operator::LessThanEqual => version <= specifier.version(),
        Operator::GreaterThan => version > specifier.version(),
        Operator::GreaterThanEqual => version >= specifier.version(),
        _ => specifier.contains(version),
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A bare number is the commonest slip, and the parser's own words for it are about operators.
        if text.parse::<Version>().is_ok() {
            return Err(with_hint(
                format!("`{text}` is a version, not a range of versions"),
                format!("write `>={text}` for that version and later, or `=={text}` for that version alone"),
            ));
        }
        let hint = "a PEP 440 range, for example `>=2.6,<2.8`";
        let specifiers = VersionSpecifiers::from_str(text).map_err(|error| {
            // The parser's message has a drawing below its first line.
            let error = error.to_string();
            let first = error.lines().next().unwrap_or_default().trim_end_matches(':');
            let first = first.trim_start_matches("Failed to parse version: ");
            with_hint(format!("`{text}` is not a range of versions: {first}"), hint)
        })?;
        if specifiers.is_empty() {
            return Err(with_hint("an empty range of versions", "leave the key out for any version"));
        }
        if let Some(local) = specifiers.iter().find(|specifier| !specifier.version().local().is_empty()) {
            return Err(with_hint(
                format!("`{local}` names a local version, which is never compared"),
                "leave out the part from the `+` on",
            ));
        }
        Ok(Self(specifiers))
    }
}

impl<'de> Deserialize<'de> for Range {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Range {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Range".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A PEP 440 range of versions such as `>=2.6,<2.8`.",
            "type": "string",
            "pattern": "^ *(~=|===?|!=|<=?|>=?)"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within(range: &str, version: &str) -> bool {
        range.parse::<Range>().unwrap().contains(&version.parse().unwrap())
    }

    #[test]
    fn a_nightly_comes_before_its_release_and_after_the_one_before() {
        let nightly = "2.8.0.dev20250527+cu128";
        assert!(within(">=2.6", nightly));
        assert!(within(">2.7.1", nightly));
        assert!(within("<2.8", nightly), "an installer would refuse this");
        assert!(within("<2.8.0", nightly));
        assert!(!within(">=2.8", nightly));
        assert!(within(">=2.8.0.dev20250501,<2.8.0.dev20250601", nightly));
        assert!(!within(">=2.8.0.dev20250528", nightly));
        assert!(within("==2.8.*", nightly), "a wildcard covers the previews of its releases");
        assert!(within("<2.8", "2.8.0rc1"));
        assert!(within("<2.9", "2.9.0a0+gitabc1234"));
    }

    #[test]
    fn the_local_part_never_counts() {
        assert!(within("<=2.8.0", "2.8.0+cu128"));
        assert!(within("==2.8.0", "2.8.0+cpu"));
        assert!(!within(">2.8.0", "2.8.0+cu128"));
        assert!(within("<2.8.0", "2.7.1+cu126"));
        assert!(!within("!=2.8", "2.8.0+cpu"));
    }

    #[test]
    fn versions_compare_as_numbers() {
        assert!(within(">=2.6", "2.13.0"));
        assert!(!within("<2.6", "2.13.0"));
        assert!(within("~=2.8", "2.15.0"));
        assert!(!within("~=2.8", "3.0"));
        assert!(within(">2.8", "2.8.0.post1"));
    }

    #[test]
    fn bad_ranges_say_what_to_write() {
        let message = |text: &str| text.parse::<Range>().unwrap_err();
        assert!(message("2.6").contains("`>=2.6`"));
        assert!(message("=>2.6").contains("not a range"));
        assert!(message("==2.8.0+cu128").contains("`+`"));
        assert!(message("").contains("empty"));
        assert!(message(">=banana").contains("not a range"));
    }

    #[test]
    fn verdict_words_are_the_serde_names() {
        for verdict in [
            Verdict::Reproduced,
            Verdict::Fixed,
            Verdict::OneOff,
            Verdict::Uncollectable,
            Verdict::Inconclusive,
            Verdict::Error,
        ] {
            assert_eq!(serde_json::to_value(verdict).unwrap(), verdict.word());
        }
    }
}
