//! References to upstream issues and pull requests.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer};

use super::error::with_hint;

/// An issue or pull request, written `owner/repository#number`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// For example `pytorch/pytorch`.
    pub repository: String,
    pub number: u32,
}

impl Reference {
    /// The page of the issue. GitHub forwards it to the pull request where it is one.
    pub fn url(&self) -> String {
        format!("https://github.com/{}/issues/{}", self.repository, self.number)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.repository, self.number)
    }
}

fn parse(text: &str) -> Option<Reference> {
    let (repository, number) = text.split_once('#')?;
    let (owner, name) = repository.split_once('/')?;
    let plain = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
    };
    // `parse` alone would accept a sign.
    let digits = number.bytes().all(|byte| byte.is_ascii_digit());
    (plain(owner) && plain(name) && digits)
        .then(|| Some(Reference { repository: repository.to_owned(), number: number.parse().ok()? }))?
}

impl<'de> Deserialize<'de> for Reference {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse(&text).ok_or_else(|| {
            de::Error::custom(with_hint(
                format!("`{text}` is not a reference to an issue"),
                "write `owner/repository#number`, for example `pytorch/pytorch#153300`",
            ))
        })
    }
}

impl JsonSchema for Reference {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Reference".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "An issue or pull request, `owner/repository#number`.",
            "type": "string",
            "pattern": "^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+#[0-9]+$"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_knows_its_page() {
        let reference = parse("pytorch/pytorch#153300").unwrap();
        assert_eq!(reference.url(), "https://github.com/pytorch/pytorch/issues/153300");
        assert_eq!(reference.to_string(), "pytorch/pytorch#153300");
    }

    #[test]
    fn what_names_no_issue_is_refused() {
        for text in
            ["", "#1", "pytorch#1", "pytorch/pytorch", "a/b#", "a/b#x", "a/b#+1", "a/b/c#1", "a b/c#1"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
