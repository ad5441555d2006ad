//! Which part of a list of cases or cells one of several machines runs.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Part `part` of `of`, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Partition {
    pub part: usize,
    pub of: usize,
}

impl Default for Partition {
    /// The only part.
    fn default() -> Self {
        Self { part: 1, of: 1 }
    }
}

impl Partition {
    /// What this part takes of a list. Neighbours stay together, because cells that follow each other share an
    /// environment, and no part takes over one more than another.
    pub fn range(self, length: usize) -> Range<usize> {
        // The product may not fit, whatever numbers a person or a document gives.
        let begin = |part: usize| (length as u128 * part as u128 / self.of.max(1) as u128) as usize;
        let end = self.part.min(self.of);
        begin(end.saturating_sub(1))..begin(end)
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "part {} of {}", self.part, self.of)
    }
}

impl FromStr for Partition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers =
            text.split_once('/').and_then(|(part, of)| Some((part.parse().ok()?, of.parse().ok()?)));
        match numbers {
            Some((part, of)) if 0 < part && part <= of => Ok(Self { part, of }),
            _ => Err("write the part and how many there are, such as 1/4 to 4/4".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    proptest! {
        #[test]
        fn every_item_is_in_exactly_one_part_and_parts_are_equal_but_for_one(length in 0..500_usize, of in 1..40_usize) {
            let parts: Vec<Range<usize>> = (1..=of).map(|part| Partition { part, of }.range(length)).collect();
            prop_assert_eq!(parts.iter().cloned().flatten().collect::<Vec<_>>(), (0..length).collect::<Vec<_>>());
            let sizes = || parts.iter().map(ExactSizeIterator::len);
            prop_assert!(sizes().max().unwrap() - sizes().min().unwrap() <= 1);
        }

        #[test]
        fn no_numbers_of_a_document_panic(part: usize, of: usize, length: usize) {
            let range = Partition { part, of }.range(length);
            prop_assert!(range.start <= range.end && range.end <= length);
        }

        #[test]
        fn any_text_is_a_part_or_says_what_to_write(text in "[0-9/ -]{0,12}|\\PC{0,8}") {
            match text.parse::<Partition>() {
                Ok(Partition { part, of }) => prop_assert!(0 < part && part <= of),
                Err(error) => prop_assert!(error.contains("1/4")),
            }
        }
    }

    #[rstest]
    #[case("0/4")]
    #[case("5/4")]
    #[case("1/0")]
    #[case("1")]
    #[case("1/4/4")]
    #[case("99999999999999999999999/2")]
    fn what_is_no_part_is_refused(#[case] text: &str) {
        assert!(text.parse::<Partition>().is_err(), "{text}");
    }
}
