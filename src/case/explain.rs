//! The YAML parser's errors in the words of case files.

use serde_yaml::{Error, Location, MessageFormatter, UserMessageFormatter};

use super::{
    check::limits,
    error::{Position, Problem},
    suggest,
};

/// Everything that one error of the parser says. Never empty.
pub fn explain(error: &Error, text: &str) -> Vec<Problem> {
    match error.without_snippet() {
        Error::ValidationError { issues, locations, .. } => issues
            .iter()
            .map(|issue| {
                let at = locations.locations_for(&issue.path).and_then(|at| at.primary_location());
                Problem::from_text(issue.message.as_deref().unwrap_or(&issue.code)).at(position(at))
            })
            .collect(),
        Error::ValidationErrors { errors, .. } => {
            errors.iter().flat_map(|error| explain(error, text)).collect()
        }
        Error::AliasError { error, locations, .. } => explain(error, text)
            .into_iter()
            .map(|problem| {
                // What is wrong may be fine elsewhere: the place to change is where the alias is used.
                let used = position(locations.primary_location());
                let line = locations.defined_location.line();
                let hint = format!("the value comes from the anchor on line {line}");
                let hint = problem.hint.as_ref().map_or(hint.clone(), |old| format!("{old}; {hint}"));
                problem.at(used).hint(hint)
            })
            .collect(),
        other => {
            let at = position(other.location());
            vec![describe(other, at.and_then(|at| key_before(text, at))).at(at)]
        }
    }
}

/// The key is the one whose value is to blame, where there is one.
fn describe(error: &Error, key: Option<&str>) -> Problem {
    let a_case = "a case begins with `name:`, `summary:` and `model:` or `program:`; see docs/case-format.md";
    match error {
        Error::SerdeUnknownField { field, expected, .. } => {
            Problem::new(format!("unknown key `{field}`")).hint(suggest::choices(field, expected))
        }
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            Problem::new(format!("unknown word `{variant}`")).hint(suggest::choices(variant, expected))
        }
        Error::SerdeMissingField { field, .. } => Problem::new(format!("the key `{field}` is missing"))
            .hint("docs/case-format.md describes every key"),
        Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().unwrap_or("a key");
            Problem::new(format!("`{key}` is written twice")).hint("keep one of the two")
        }
        Error::SerdeInvalidType { unexpected, expected, .. }
        | Error::SerdeInvalidValue { unexpected, expected, .. } => {
            Problem::new(format!("found {unexpected} where {expected} was expected"))
        }
        Error::InvalidScalar { ty, .. } => {
            let limits = key.filter(|_| *ty == "u32").and_then(limits);
            let kind = limits.map_or_else(|| kind(ty), |limits| format!("a whole number from {limits}"));
            Problem::new(format!("this is not {kind}"))
        }
        Error::Unexpected { expected, .. } => {
            Problem::new(format!("found something else where {} was expected", kind(expected)))
        }
        Error::NullIntoString { .. } => Problem::new("the value is missing").hint("write it after the colon"),
        Error::Eof { .. } => Problem::new("the file holds no case").hint(a_case),
        Error::MultipleDocuments { .. } => {
            Problem::new("a second document begins here").hint("write one case per file, without `---`")
        }
        Error::UnknownAnchor { .. } => {
            Problem::new("this alias has no anchor").hint("define it before with `&name`")
        }
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. }
        | Error::AliasReplayCounterOverflow { .. } => {
            Problem::new(format!("the file is too large once it is expanded: {}", own_words(error)))
                .hint("a case is a page of YAML; aliases that multiply one another are refused")
        }
        Error::Message { msg, .. } | Error::SerdeVariantId { msg, .. } => Problem::from_text(msg),
        // What remains is almost always found by the scanner, a little after the cause.
        _ => Problem::new(own_words(error))
            .hint("check brackets, quotes and indentation here and on the line above"),
    }
}

/// The key that stands before a value on its line; a missing value begins with the key's own colon.
fn key_before(text: &str, value: Position) -> Option<&str> {
    let line = text.get(..value.offset)?.rsplit('\n').next()?;
    let before = line.trim_end();
    before.strip_suffix(':').unwrap_or(before).rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next()
}

fn own_words(error: &Error) -> String {
    UserMessageFormatter.format_message(error).into_owned()
}

/// The parser's name of a type in words.
fn kind(ty: &str) -> String {
    let bits = |unsigned: bool, bits: u32| {
        let low = if unsigned { "0" } else { "a negative number" };
        match bits {
            8..=32 if unsigned => format!("a whole number from 0 to {}", (1_u64 << bits) - 1),
            _ => format!("a whole number from {low} on"),
        }
    };
    match ty {
        "u8" => bits(true, 8),
        "u32" => bits(true, 32),
        "u64" => bits(true, 64),
        "boolean" => "`true` or `false`".to_owned(),
        "mapping start" => "a mapping (`key: value`)".to_owned(),
        "sequence start" => "a list".to_owned(),
        "string scalar" | "scalar" => "a single value".to_owned(),
        other => other.to_owned(),
    }
}

fn position(location: Option<Location>) -> Option<Position> {
    let location = location.filter(|location| *location != Location::UNKNOWN)?;
    let span = location.span();
    let bytes = |value: Option<u64>| value.and_then(|value| usize::try_from(value).ok()).unwrap_or(0);
    Some(Position {
        line: location.line(),
        column: location.column(),
        offset: bytes(span.byte_offset()),
        length: bytes(span.byte_len()),
    })
}
