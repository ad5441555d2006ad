//! What stands before a line's own words: who wrote it, and when.
//!
//! Every step line comes through here, so this looks at bytes where a pattern would be shorter.

use super::event::Rank;

/// The longest name of a role.
const LONGEST_ROLE: usize = 24;

/// How many bytes before `step:` a moment can begin.
const FARTHEST: usize = 256;

/// A prefix in a line.
#[derive(Debug, PartialEq)]
pub struct Prefix {
    pub rank: Rank,
    /// Where it is.
    pub start: usize,
    pub end: usize,
}

/// All prefixes of a line: `[rank3]:` as torchrun writes it, at its beginning with the label of `srun --label` before it.
pub fn prefixes(line: &str) -> impl Iterator<Item = Prefix> {
    line.match_indices("]:").filter_map(|(at, _)| {
        // No further back than a prefix is long, so that a line full of brackets takes no time.
        let earliest = at.saturating_sub(LONGEST_ROLE + 8);
        let open = earliest + line.as_bytes()[earliest..at].iter().rposition(|byte| *byte == b'[')?;
        let name = &line[open + 1..at];
        let role = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let is_role = |c: char| c.is_ascii_alphabetic() || matches!(c, '_' | '.' | '-');
        if role.len() > LONGEST_ROLE || !role.chars().all(is_role) {
            return None;
        }
        let number = short_number(&name[role.len()..])?;
        let (task, start) = task(&line[..open]).map_or((None, open), |task| (Some(task), 0));
        let end = at + 2;
        let end = if line[end..].starts_with(' ') { end + 1 } else { end };
        Some(Prefix { rank: Rank { task, role: role.to_owned(), number }, start, end })
    })
}

/// The label of a task, if that is all that a line has before its prefix.
fn task(before: &str) -> Option<u32> {
    short_number(before.trim_start_matches([' ', '\t']).trim_end_matches(' ').strip_suffix(':')?)
}

/// A number of up to 7 digits.
fn short_number(text: &str) -> Option<u32> {
    let is_short = (1..=7).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_short { text.parse().ok() } else { None }
}

/// The last moment that a text names, such as `2025-05-28 21:13:37,816`, in seconds. Logs have no time zone, so a day of a
/// clock change is off by an hour.
pub fn moment(text: &str) -> Option<f64> {
    const LENGTH: usize = "2025-05-28 21:13:37".len();
    let bytes = &text.as_bytes()[text.len().saturating_sub(FARTHEST)..];
    (0..=bytes.len().checked_sub(LENGTH)?).rev().find_map(|start| {
        let part = &bytes[start..start + LENGTH];
        let is_moment = part[4] == b'-'
            && part[7] == b'-'
            && matches!(part[10], b' ' | b'T')
            && part[13] == b':'
            && part[16] == b':';
        if is_moment { read_moment(part, &bytes[start + LENGTH..]) } else { None }
    })
}

fn read_moment(part: &[u8], after: &[u8]) -> Option<f64> {
    let number = |from: usize, to: usize| {
        part[from..to].iter().try_fold(0_i16, |number, byte| {
            byte.is_ascii_digit().then(|| number * 10 + i16::from(byte - b'0'))
        })
    };
    let small = |from: usize| number(from, from + 2).and_then(|value| i8::try_from(value).ok());
    let date = jiff::civil::Date::new(number(0, 4)?, small(5)?, small(8)?).ok()?;
    let time = jiff::civil::Time::new(small(11)?, small(14)?, small(17)?, 0).ok()?;
    let whole = jiff::tz::Offset::UTC.to_timestamp(date.to_datetime(time)).ok()?.as_second();
    let mut fraction = 0.0;
    if let Some((b'.' | b',', digits)) = after.split_first() {
        let mut weight = 0.1;
        for digit in digits.iter().take(9).take_while(|digit| digit.is_ascii_digit()) {
            fraction += weight * f64::from(digit - b'0');
            weight /= 10.0;
        }
    }
    Some(whole as f64 + fraction)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("[rank0]:step", Some((None, "rank", 0)))]
    #[case("[default12]: step", Some((None, "default", 12)))]
    #[case("[3]:step", Some((None, "", 3)))]
    #[case("  17: [rank0]:step", Some((Some(17), "rank", 0)))]
    #[case("17:[rank0]:step", Some((Some(17), "rank", 0)))]
    #[case("[titan]:step", None)]
    #[case("[rank99999999]:step", None)]
    #[case("[ra\u{e9}nk1]:step", None)]
    #[case("[a b1]:step", None)]
    #[case("rank1]:step", None)]
    #[case("]:]:[[]:", None)]
    fn prefixes_are_found(#[case] line: &str, #[case] expected: Option<(Option<u32>, &str, u32)>) {
        let found = prefixes(line).next().map(|found| found.rank);
        let expected = expected.map(|(task, role, number)| Rank { task, role: role.to_owned(), number });
        assert_eq!(found, expected);
    }

    #[rstest]
    #[case("1970-01-02 00:00:01,500 - root", Some(86_401.5))]
    #[case("1970-01-01T00:00:02Z", Some(2.0))]
    #[case("1970-01-01 00:00:02 and 1970-01-01 00:00:03.25", Some(3.25))]
    #[case("1970-13-01 00:00:02", None)]
    #[case("197\u{e9}-01-01 00:00:02", None)]
    #[case("1970-01-01", None)]
    fn the_last_moment_counts(#[case] text: &str, #[case] expected: Option<f64>) {
        assert_eq!(moment(text), expected);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "([\\[\\]:0-9 a-zé.,T-]|1970-01-01 00:00:0){0,40}") {
            let _ = moment(&text);
            for found in prefixes(&text) {
                prop_assert!(found.start < found.end && text.is_char_boundary(found.end));
            }
        }
    }
}
