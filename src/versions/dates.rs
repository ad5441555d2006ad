//! Ranges of dates, as in `nightly:2025-05-01..2025-06-10`.

use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;

use super::source_error::SourceError;

/// Dates from a first to a last one, both included; an end that is not there is open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DateRange {
    /// The first date.
    pub first: Option<Date>,
    /// The last date.
    pub last: Option<Date>,
}

impl DateRange {
    /// Whether a date is in it.
    pub fn contains(&self, date: Date) -> bool {
        self.first.is_none_or(|first| first <= date) && self.last.is_none_or(|last| date <= last)
    }
}

/// Reads `FIRST..LAST`, `FIRST..`, `..LAST`, one date, or nothing, which is all dates. A date is `2025-05-27` or
/// `20250527`.
impl FromStr for DateRange {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Self, SourceError> {
        let bad = |problem: String| SourceError::BadRange { given: text.to_owned(), problem };
        let end = |end: &str| match end.trim() {
            "" => Ok(None),
            end => date(end).map(Some).ok_or_else(|| bad(format!("`{end}` is no date"))),
        };
        let range = match text.split_once("..") {
            Some((first, last)) => Self { first: end(first)?, last: end(last)? },
            None => Self { first: end(text)?, last: end(text)? },
        };
        match range {
            Self { first: Some(first), last: Some(last) } if first > last => {
                Err(bad("its first date is after its last".to_owned()))
            }
            range => Ok(range),
        }
    }
}

impl fmt::Display for DateRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.first, self.last) {
            (Some(first), Some(last)) if first == last => write!(f, "{first}"),
            (first, last) => {
                first.iter().try_for_each(|date| write!(f, "{date}"))?;
                f.write_str("..")?;
                last.iter().try_for_each(|date| write!(f, "{date}"))
            }
        }
    }
}

/// Reads a date as people or as nightlies write it.
pub(super) fn date(text: &str) -> Option<Date> {
    let digits = text.replace('-', "");
    let is_whole = digits.len() == 8 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_dashed = text.len() == 10 && text.as_bytes()[4] == b'-' && text.as_bytes()[7] == b'-';
    if !is_whole || !(is_dashed || text.len() == 8) {
        return None;
    }
    Date::new(digits[..4].parse().ok()?, digits[4..6].parse().ok()?, digits[6..].parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("2025-05-01..2025-06-10", "2025-05-01..2025-06-10")]
    #[case("20250501..20250610", "2025-05-01..2025-06-10")]
    #[case(" 2025-05-01 .. ", "2025-05-01..")]
    #[case("..2025-06-10", "..2025-06-10")]
    #[case("2025-05-27", "2025-05-27")]
    #[case("2025-05-27..2025-05-27", "2025-05-27")]
    #[case("..", "..")]
    #[case("", "..")]
    fn a_range_is_read_as_it_is_shown(#[case] text: &str, #[case] shown: &str) {
        assert_eq!(text.parse::<DateRange>().unwrap().to_string(), shown);
    }

    #[rstest]
    #[case("2025-06-10..2025-05-01", "after")]
    #[case("2025-02-30", "2025-02-30")]
    #[case("may..", "may")]
    #[case("2025-05-01...2025-06-10", ".2025-06-10")]
    #[case("2025-5-1", "2025-5-1")]
    #[case("20-25-0527", "no date")]
    #[case("é025-05-1", "no date")]
    fn what_is_no_range_names_the_culprit(#[case] text: &str, #[case] culprit: &str) {
        let error = text.parse::<DateRange>().unwrap_err();
        assert!(error.is_usage() && error.hint().is_some());
        assert!(error.to_string().contains(culprit), "{error}");
    }

    #[test]
    fn both_ends_belong_to_a_range() {
        let range: DateRange = "2025-05-01..2025-05-03".parse().unwrap();
        let within = |text| range.contains(date(text).unwrap());
        assert!(within("20250501") && within("2025-05-03"));
        assert!(!within("2025-04-30") && !within("2025-05-04"));
    }

    proptest! {
        #[test]
        fn any_text_is_a_range_or_an_error(text in "\\PC{0,30}") {
            let _ = text.parse::<DateRange>();
        }
    }
}
