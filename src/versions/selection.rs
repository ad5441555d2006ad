//! Which versions a person means: `2.6.0,2.8.0..2.15.0`, `>=2.8,<2.12`, `latest`, `nightly:2025-05-01..2025-06-10`.

use std::fmt;
use std::str::FromStr;

use pep440_rs::Version;

use super::dates::DateRange;
use super::releases::Releases;
use super::source_args::IndexArgs;
use super::{Source, SourceError};
use crate::cache::Cache;
use crate::case::Range;
use crate::environment::{EnvironmentError, Managed, Progress, Releases as Listed, python_minor};

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
        return Ok(Item::Between(end(first)?, end(last)?));
    }
    version(part).map(Item::Exactly)
}

fn version(text: &str) -> Result<Version, String> {
    text.trim().parse().map_err(|_| {
        format!(
            "`{text}` is no version: write a release such as 2.13.0, a range such as 2.8.0..2.15.0 or >=2.8, latest, or \
             nightly:2025-05-01..2025-06-10"
        )
    })
}

impl Selection {
    /// The sources of what is selected for one interpreter: the releases, and the nightlies of each range.
    ///
    /// # Errors
    /// An index cannot be asked, or nothing on it fits.
    pub fn sources(
        &self,
        template: &Managed,
        index: &IndexArgs,
        cache: &Cache,
        progress: &dyn Progress,
    ) -> Result<Vec<Box<dyn Source>>, SourceError> {
        let releases = self.releases(template, cache, progress)?;
        let mut sources: Vec<Box<dyn Source>> = Vec::new();
        if !releases.is_empty() {
            sources.push(Box::new(Releases::named(&releases, template, cache)?));
        }
        for item in &self.items {
            if let Item::Nightlies(dates) = item {
                sources.push(Box::new(index.nightlies(*dates, template, cache, progress)?));
            }
        }
        Ok(sources)
    }

    /// The releases that are selected. The index is asked only where a range does not say itself what is in it.
    fn releases(
        &self,
        template: &Managed,
        cache: &Cache,
        progress: &dyn Progress,
    ) -> Result<Vec<Version>, EnvironmentError> {
        let mut found: Vec<Version> = self.items.iter().flat_map(Item::named).collect();
        if self.items.iter().all(|item| item.is_known()) {
            return Ok(found);
        }
        progress.begin("asking which releases of torch there are");
        let listed =
            Listed::newest_first(template, python_minor(template)?, cache, progress).and_then(|listed| {
                let mut seen: Vec<Version> = Vec::new();
                for version in listed {
                    let version = version?;
                    if !self.items.iter().any(|item| item.may_go_below(&version, seen.is_empty())) {
                        break;
                    }
                    seen.push(version);
                }
                Ok(seen)
            });
        progress.end();
        let listed = listed?;
        let is_selected =
            |place: usize, version: &Version| self.items.iter().any(|item| item.has(place, version));
        found.extend(
            listed
                .iter()
                .enumerate()
                .filter(|(place, version)| is_selected(*place, version))
                .map(|(_, version)| version.clone()),
        );
        Ok(found)
    }
}

impl Item {
    /// The versions that are part of it whatever the index says.
    fn named(&self) -> Vec<Version> {
        match self {
            Self::Exactly(version) => vec![version.clone()],
            _ => Vec::new(),
        }
    }

    fn is_known(&self) -> bool {
        matches!(self, Self::Exactly(_) | Self::Nightlies(_))
    }

    /// Whether a listing, the newest first, has to go on to this version. Of specifiers it is not known where they end.
    fn may_go_below(&self, version: &Version, is_newest: bool) -> bool {
        match self {
            Self::Exactly(_) | Self::Nightlies(_) => false,
            Self::Latest => is_newest,
            Self::Between(first, _) => first.as_ref().is_none_or(|first| version >= first),
            Self::Within(range) => range.lowest().is_none_or(|lowest| *version >= lowest),
        }
    }

    /// Whether the release at this place of the listing, the newest first, is part of it.
    fn has(&self, place: usize, version: &Version) -> bool {
        match self {
            Self::Exactly(_) | Self::Nightlies(_) => false,
            Self::Latest => place == 0,
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
    use rstest::rstest;

    use super::*;

    fn has(text: &str, version: &str) -> bool {
        let selection: Selection = text.parse().unwrap();
        let version = version.parse().unwrap();
        selection.items.iter().any(|item| item.has(3, &version) || item.named().contains(&version))
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
        let selection: Selection = "latest".parse().unwrap();
        let version = "2.15.0".parse().unwrap();
        assert!(selection.items[0].has(0, &version) && !selection.items[0].has(1, &version));
        assert!(
            selection.items[0].may_go_below(&version, true)
                && !selection.items[0].may_go_below(&version, false)
        );
    }

    #[rstest]
    #[case("2.8..", "2.7.1")]
    #[case(">=2.8,<2.12", "2.7.1")]
    #[case("~=2.8", "2.7.1")]
    fn a_listing_ends_below_the_lowest_version_that_is_selected(#[case] text: &str, #[case] below: &str) {
        let selection: Selection = text.parse().unwrap();
        assert!(!selection.items[0].may_go_below(&below.parse().unwrap(), false), "{text}");
    }

    #[rstest]
    #[case("", "missing")]
    #[case("2.6.0,,2.8.0", "missing")]
    #[case("2.6.0;2.8.0", "is no version")]
    #[case("newest", "latest")]
    #[case("2.8.0..later", "is no version")]
    #[case(">=two", "not a range")]
    #[case("nightly:yesterday", "yesterday")]
    #[case("nightlyish", "nightlyish")]
    fn what_means_nothing_is_refused_with_what_to_write(#[case] text: &str, #[case] says: &str) {
        let error = text.parse::<Selection>().unwrap_err();
        assert!(error.contains(says), "{error}");
    }

    #[test]
    fn a_nightly_without_dates_is_every_nightly() {
        assert_eq!("nightly".parse::<Selection>().unwrap().items, [Item::Nightlies(DateRange::default())]);
    }
}
