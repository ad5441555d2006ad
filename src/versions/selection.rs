//! Which versions a person means: `2.6.0,2.8.0..2.15.0`, `>=2.8,<2.12`, `latest`, `nightly:2025-05-01..2025-06-10`.

use std::fmt;
use std::str::FromStr;

use pep440_rs::Version;

use super::SourceError;
use super::dates::DateRange;
use crate::cache::Cache;
use crate::case::Range;
use crate::environment::{
    EnvironmentError, Managed, Progress, Releases as Listed, parse_torch, python_minor,
};

/// Versions of torch, as a person wrote them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    items: Vec<Item>,
    text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Item {
    /// This version, whether the index has it or not.
    Exactly(Version),
    /// Releases from one version to another, both included.
    Between(Option<Version>, Option<Version>),
    /// Releases within specifiers such as `>=2.8,<2.12`.
    Within(Range),
    /// The newest release.
    Latest,
    /// Nightlies of these dates.
    Nightlies(DateRange),
}

impl FromStr for Selection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut items = Vec::new();
        let mut specifiers: Vec<&str> = Vec::new();
        for part in text.split(',').map(str::trim) {
            // Specifiers that follow each other are one range, as they are everywhere else.
            if part.starts_with(['<', '>', '=', '!', '~']) {
                specifiers.push(part);
                continue;
            }
            items.extend(within(&mut specifiers)?);
            items.push(item(part)?);
        }
        items.extend(within(&mut specifiers)?);
        Ok(Self { items, text: text.to_owned() })
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn within(specifiers: &mut Vec<&str>) -> Result<Option<Item>, String> {
    if specifiers.is_empty() {
        return Ok(None);
    }
    let range = std::mem::take(specifiers).join(",");
    range.parse().map(|range| Some(Item::Within(range)))
}

fn item(part: &str) -> Result<Item, String> {
    if part.is_empty() {
        return Err("a version is missing: write them as 2.6.0,2.8.0..2.15.0".to_owned());
    }
    if part == "latest" {
        return Ok(Item::Latest);
    }
    let nightlies = if part == "nightly" { Some("..") } else { part.strip_prefix("nightly:") };
    if let Some(dates) = nightlies {
        return dates.parse().map(Item::Nightlies).map_err(|error: SourceError| error.to_string());
    }
    if let Some((first, last)) = part.split_once("..") {
        let end = |text: &str| (!text.is_empty()).then(|| version(text)).transpose();
        let (first, last) = (end(first)?, end(last)?);
        if first.as_ref().zip(last.as_ref()).is_some_and(|(first, last)| first > last) {
            return Err(format!("the range `{part}` ends before it begins: write the older version first"));
        }
        return Ok(Item::Between(first, last));
    }
    version(part).map(Item::Exactly)
}

fn version(text: &str) -> Result<Version, String> {
    parse_torch(text).map_err(|_| {
        format!(
            "`{text}` is no version: write a release such as 2.13.0, a range such as 2.8.0..2.15.0 or >=2.8, latest, or \
             nightly:2025-05-01..2025-06-10"
        )
    })
}

impl Selection {
    /// The nightlies that are selected, range by range.
    pub(super) fn nightlies(&self) -> impl Iterator<Item = DateRange> + '_ {
        self.items.iter().filter_map(|item| match item {
            Item::Nightlies(dates) => Some(*dates),
            _ => None,
        })
    }

    /// The releases that are selected whatever the index says, and the newest of the listing if it is.
    pub(super) fn named<'a>(&'a self, listed: &'a [Version]) -> impl Iterator<Item = &'a Version> {
        self.items.iter().filter_map(|item| match item {
            Item::Exactly(version) => Some(version),
            Item::Latest => listed.first(),
            _ => None,
        })
    }

    /// The releases of a listing that lie in ranges.
    pub(super) fn in_ranges<'a>(&'a self, listed: &'a [Version]) -> impl Iterator<Item = &'a Version> {
        listed.iter().filter(|version| self.items.iter().any(|item| item.has(version)))
    }

    /// The releases of the index for the interpreter, the newest first, as far down as it matters. The index is asked
    /// only where the selection does not say itself what is in it.
    ///
    /// # Errors
    /// The index cannot be asked, or it has no torch for the interpreter.
    pub(super) fn listed(
        &self,
        template: &Managed,
        cache: &Cache,
        progress: &dyn Progress,
    ) -> Result<Vec<Version>, EnvironmentError> {
        if self.items.iter().all(Item::is_known) {
            return Ok(Vec::new());
        }
        let minor = python_minor(template)?;
        progress.begin(&format!("asking which releases of torch there are for Python 3.{minor}"));
        let listed = self.ask(template, minor, cache, progress);
        progress.end();
        listed
    }

    fn ask(
        &self,
        template: &Managed,
        minor: u32,
        cache: &Cache,
        progress: &dyn Progress,
    ) -> Result<Vec<Version>, EnvironmentError> {
        let mut seen: Vec<Version> = Vec::new();
        for version in Listed::newest_first(template, minor, cache, progress)? {
            let version = version?;
            // Each release is a question of its own, so none is asked for in vain.
            let goes_on = self.items.iter().any(|item| item.goes_below(&version));
            seen.push(version);
            if !goes_on {
                break;
            }
        }
        Ok(seen)
    }
}

impl Item {
    fn is_known(&self) -> bool {
        matches!(self, Self::Exactly(_) | Self::Nightlies(_))
    }

    /// Whether a listing, the newest first, that came to this version may hold more of it. Of some specifiers it is not
    /// known where they end.
    fn goes_below(&self, version: &Version) -> bool {
        match self {
            Self::Exactly(_) | Self::Nightlies(_) | Self::Latest => false,
            Self::Between(first, _) => first.as_ref().is_none_or(|first| version > first),
            Self::Within(range) => range.lowest().is_none_or(|lowest| *version > lowest),
        }
    }

    /// Whether it is a range that this release lies in.
    fn has(&self, version: &Version) -> bool {
        match self {
            Self::Exactly(_) | Self::Nightlies(_) | Self::Latest => false,
            Self::Between(first, last) => {
                first.as_ref().is_none_or(|first| version >= first)
                    && last.as_ref().is_none_or(|last| version <= last)
            }
            Self::Within(range) => range.contains(version),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn has(text: &str, version: &str) -> bool {
        let selection: Selection = text.parse().unwrap();
        let listed = ["99.0".parse().unwrap(), version.parse().unwrap()];
        selection.named(&listed).chain(selection.in_ranges(&listed)).any(|found| *found == listed[1])
    }

    #[rstest]
    #[case("2.6.0", "2.6.0", "2.6.1")]
    #[case("2.8.0..2.15.0", "2.15.0", "2.15.1")]
    #[case("2.8.0..2.15.0", "2.8.0", "2.7.1")]
    #[case("2.8..", "99.0", "2.7.1")]
    #[case("..2.8", "1.13", "2.8.1")]
    #[case(">=2.8", "2.13.0", "2.7.1")]
    #[case(">=2.8,<2.12", "2.11.0", "2.12.0")]
    #[case("2.6.0, >=2.8, <2.12, 2.15.0", "2.15.0", "2.7.0")]
    fn a_selection_has_what_it_says(#[case] text: &str, #[case] within: &str, #[case] without: &str) {
        assert!(has(text, within), "{text} {within}");
        assert!(!has(text, without), "{text} {without}");
    }

    #[test]
    fn latest_is_the_newest_release_alone() {
        assert!(has("2.6.0,latest", "2.6.0") && !has("latest", "2.15.0"));
        let selection: Selection = "latest".parse().unwrap();
        let listed = ["2.15.0", "2.14.0"].map(|version| version.parse().unwrap());
        assert_eq!(selection.named(&listed).collect::<Vec<_>>(), [&listed[0]]);
        assert!(!selection.items[0].goes_below(&listed[0]));
    }

    #[rstest]
    #[case("2.8..", "2.8.1", "2.8.0")]
    #[case("2.8..2.12", "2.15.0", "2.7.1")]
    #[case(">=2.8,<2.12", "2.15.0", "2.8.0")]
    #[case("~=2.8", "2.9.0", "2.8.0")]
    #[case("==2.8.*", "2.8.1", "2.8.0")]
    fn a_listing_ends_at_the_lowest_version_that_is_selected(
        #[case] text: &str,
        #[case] above: &str,
        #[case] last: &str,
    ) {
        let selection: Selection = text.parse().unwrap();
        let goes_on = |version: &str| selection.items[0].goes_below(&version.parse().unwrap());
        assert!(goes_on(above) && !goes_on(last), "{text}");
    }

    #[rstest]
    #[case("..2.8")]
    #[case("<2.8")]
    #[case("..")]
    fn a_listing_without_a_lowest_version_goes_to_its_end(#[case] text: &str) {
        assert!(text.parse::<Selection>().unwrap().items[0].goes_below(&"0.1".parse().unwrap()));
    }

    #[rstest]
    #[case("", "missing")]
    #[case("2.6.0,,2.8.0", "missing")]
    #[case("2.6.0;2.8.0", "is no version")]
    #[case("newest", "latest")]
    #[case("2.8.0..later", "is no version")]
    #[case("2.15.0..2.8.0", "older version first")]
    #[case(">=two", "not a range")]
    #[case("nightly:yesterday", "yesterday")]
    #[case("nightlyish", "nightlyish")]
    fn what_means_nothing_is_refused_with_what_to_write(#[case] text: &str, #[case] says: &str) {
        let error = text.parse::<Selection>().unwrap_err();
        assert!(error.contains(says), "{error}");
    }

    proptest! {
        #[test]
        fn any_text_is_a_selection_or_says_why_not(text in "[0-9a-z.,<>=~!: *-]{0,40}|\\PC{0,20}") {
            match text.parse::<Selection>() {
                Ok(selection) => prop_assert!(!selection.items.is_empty() && selection.to_string() == text),
                Err(error) => prop_assert!(!error.is_empty()),
            }
        }
    }

    #[test]
    fn a_nightly_without_dates_is_every_nightly() {
        assert_eq!("nightly".parse::<Selection>().unwrap().items, [Item::Nightlies(DateRange::default())]);
    }
}
