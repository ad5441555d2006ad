//! Nightlies of a package index, by date.

use jiff::civil::Date;
use pep440_rs::Version;

use super::candidate::{Candidate, Source, Unavailable};
use super::dates::{DateRange, date};
use super::source_error::SourceError;
use super::wheel_commits::{self, Known};
use crate::cache::Cache;
use crate::environment::{self, Environment, Managed, Progress, Request, is_ready};
use crate::index::{Client, File, IndexUrl, Machine, WheelName, files, in_parallel, satisfies};

/// The nightlies of an index that fit an interpreter, by date, the oldest first. Dates in a row that are of one commit
/// are one candidate, the first of them.
#[derive(Debug)]
pub struct Nightlies {
    candidates: Vec<Candidate>,
    builds: Vec<Build>,
    merged: Vec<Merged>,
    cache: Cache,
}

/// What belongs to the candidate of the same number.
#[derive(Debug)]
struct Build {
    nightly: Nightly,
    managed: Managed,
    gone: Option<String>,
}

/// A nightly on an index.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Nightly {
    date: Date,
    version: Version,
    file: File,
}

/// A nightly that is no candidate, because another one is of the same commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    /// The version that is left out.
    pub label: String,
    /// The candidate that stands for it.
    pub into: String,
    /// The commit of both.
    pub commit: String,
    date: Date,
}

impl Nightlies {
    /// Reads the index. `template` says everything about the environments but their torch; its backend is that of the
    /// index, so it is not asked of uv again.
    ///
    /// # Errors
    /// The index cannot be read, or it has nothing that fits.
    pub fn new(
        index: &IndexUrl,
        range: DateRange,
        python_minor: u32,
        template: &Managed,
        cache: &Cache,
        progress: &dyn Progress,
    ) -> Result<Self, SourceError> {
        let read = read(index, range, python_minor, cache, progress);
        // On every way out, or a spinner would go on over the error.
        progress.end();
        let (nightlies, known) = read?;
        Ok(Self::of(nightlies, known, index, python_minor, template, cache))
    }

    fn of(
        nightlies: Vec<Nightly>,
        known: Vec<Known>,
        index: &IndexUrl,
        python_minor: u32,
        template: &Managed,
        cache: &Cache,
    ) -> Self {
        let mut found = Self { candidates: vec![], builds: vec![], merged: vec![], cache: cache.clone() };
        for (nightly, known) in nightlies.into_iter().zip(known) {
            let label = nightly.version.to_string();
            let last = found.candidates.last();
            if let (Some(commit), Some(last)) = (&known.commit, last)
                && last.commit.as_ref() == Some(commit)
            {
                let (into, commit) = (last.label.clone(), commit.clone());
                found.merged.push(Merged { label, into, commit, date: nightly.date });
                continue;
            }
            let mut managed = Managed {
                torch: nightly.version.clone(),
                python_minor: Some(python_minor),
                torch_backend: None,
                ..template.clone()
            };
            managed.extra_index_urls.insert(0, index.with_credentials().to_owned());
            let identity = managed.key(python_minor);
            found.candidates.push(Candidate { label, identity, commit: known.commit, note: None });
            found.builds.push(Build { nightly, managed, gone: known.gone });
        }
        found
    }

    /// The nightlies that are no candidates, because others stand for them.
    pub fn merged(&self) -> &[Merged] {
        &self.merged
    }

    fn build(&self, candidate: &Candidate) -> Option<&Build> {
        let at = self.candidates.iter().position(|one| one.label == candidate.label)?;
        self.builds.get(at)
    }
}

impl Source for Nightlies {
    fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// The candidate that a date, or a version with or without its local part, means. One that was left out for its
    /// commit means the candidate that stands for it.
    fn find(&self, given: &str) -> Option<String> {
        let given = given.trim();
        let wanted: Option<Version> = given.parse().ok();
        let day = date(given);
        let means = |label: &str, of: Date| {
            day == Some(of)
                || label.parse().is_ok_and(|version: Version| {
                    wanted.as_ref().is_some_and(|wanted| {
                        version == *wanted
                            || (wanted.local().is_empty() && version.without_local() == *wanted)
                    })
                })
        };
        let merged = self.merged.iter().find(|merged| means(&merged.label, merged.date));
        let direct = self.candidates.iter().zip(&self.builds);
        let found = direct.clone().find(|(candidate, build)| means(&candidate.label, build.nightly.date));
        found.map(|(candidate, _)| &candidate.label).or(merged.map(|merged| &merged.into)).cloned()
    }

    fn environment(
        &self,
        candidate: &Candidate,
        progress: &dyn Progress,
    ) -> Result<Environment, Unavailable> {
        let unknown = || Unavailable::Broken(format!("{} is none of these nightlies", candidate.label));
        let build = self.build(candidate).ok_or_else(unknown)?;
        match &build.gone {
            // What was installed while it was there can still be used.
            Some(gone) if !is_ready(&candidate.identity, &self.cache) => {
                Err(Unavailable::Broken(format!("its wheel is listed and gone: {gone}")))
            }
            _ => {
                let request = Request::Managed(build.managed.clone());
                Ok(environment::resolve_request(&request, &self.cache, progress)?)
            }
        }
    }

    fn replay(&self, candidate: &Candidate) -> Vec<String> {
        self.build(candidate).map(|build| build.managed.options()).unwrap_or_default()
    }
}

fn read(
    index: &IndexUrl,
    range: DateRange,
    python_minor: u32,
    cache: &Cache,
    progress: &dyn Progress,
) -> Result<(Vec<Nightly>, Vec<Known>), SourceError> {
    let client = Client::new(Some(index));
    progress.begin(&format!("reading the index {index}"));
    // On another thread, so that Ctrl-C is heard while a server is silent.
    let asking = (client.clone(), index.clone());
    let listed = in_parallel(vec![asking], |(client, index)| files(client, index, "torch"), |_| {})?;
    let listed = listed.into_iter().next().unwrap_or_else(|| Ok(Vec::new()))?;
    let nightlies = select(&listed, &index.to_string(), &Machine::this(python_minor), range)?;
    let wheels = nightlies.iter().map(|nightly| nightly.file.url.clone()).collect();
    let known = wheel_commits::read(&client, wheels, cache, progress)?;
    Ok((nightlies, known))
}

/// The nightlies among the files that fit the machine and the dates, one for each version, by date.
fn select(
    listed: &[File],
    place: &str,
    machine: &Machine<'_>,
    range: DateRange,
) -> Result<Vec<Nightly>, SourceError> {
    let named = listed.iter().filter(|file| !file.yanked).filter_map(|file| {
        let name = WheelName::parse(&file.name).ok().filter(|name| name.project == "torch")?;
        let date = date(&name.version.dev()?.to_string())?;
        Some((name, date, file))
    });
    let named: Vec<_> = named.collect();
    if named.is_empty() {
        return Err(SourceError::NoNightlies { index: place.to_owned() });
    }
    let mut fitting: Vec<Nightly> = named
        .iter()
        .filter(|(name, _, file)| {
            name.fits(machine) && satisfies(file.requires_python.as_deref(), machine.python_minor)
        })
        .map(|(name, date, file)| Nightly {
            date: *date,
            version: name.version.clone(),
            file: (*file).clone(),
        })
        .collect();
    // The first of a version on the page stays: the order of the page is kept among equals.
    fitting.sort_by(|a, b| (a.date, &a.version).cmp(&(b.date, &b.version)));
    fitting.dedup_by(|a, b| a.version == b.version);
    let (Some(first), Some(last)) = (fitting.first(), fitting.last()) else {
        return Err(no_build(place, machine, named.iter().map(|(name, ..)| name)));
    };
    let none = SourceError::NoneInRange {
        place: place.to_owned(),
        range: range.to_string(),
        first: first.date.to_string(),
        last: last.date.to_string(),
    };
    fitting.retain(|nightly| range.contains(nightly.date));
    if fitting.is_empty() { Err(none) } else { Ok(fitting) }
}

/// The error that says which Pythons there are builds for.
pub(super) fn no_build<'a>(
    place: &str,
    machine: &Machine<'_>,
    names: impl Iterator<Item = &'a WheelName>,
) -> SourceError {
    let here = names.filter(|name| name.fits_platform(machine));
    let pythons: std::collections::BTreeSet<(u32, String)> =
        here.flat_map(WheelName::python_versions).collect();
    let pythons: Vec<String> = pythons.into_iter().map(|(_, shown)| shown).collect();
    let kind = format!("{} {}", machine.os, machine.arch);
    let there = if pythons.is_empty() {
        format!("none for {kind} at all")
    } else {
        format!("builds for Python {}", pythons.join(", "))
    };
    let wanted = format!("Python 3.{} on {kind}", machine.python_minor);
    SourceError::NoBuild { place: place.to_owned(), wanted, there }
}

#[cfg(test)]
#[path = "nightlies_tests.rs"]
mod tests;
