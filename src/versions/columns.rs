//! The columns of a matrix: each selected version under each interpreter.

use pep440_rs::Version;

use super::source_args::IndexArgs;
use super::{Candidate, Releases, Selection, Source, SourceError};
use crate::cache::Cache;
use crate::environment::{EnvironmentError, Managed, Progress, python_minor};

/// One version under one interpreter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Which of the sources it is of.
    pub source: usize,
    pub candidate: Candidate,
    /// The Python's minor version (of 3).
    pub python_minor: u32,
}

/// Columns, interpreter by interpreter and the oldest version first, with where they come from.
#[derive(Default)]
pub struct Columns {
    pub sources: Vec<Box<dyn Source>>,
    pub columns: Vec<Column>,
}

impl std::fmt::Debug for Columns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Columns").field("columns", &self.columns).finish_non_exhaustive()
    }
}

impl Columns {
    /// What is selected, once for each of `templates`, which name the interpreters. A release that a range has for one
    /// of them is a column for the others too, where it says that there is no build for them.
    ///
    /// # Errors
    /// An index cannot be asked, or nothing on it fits.
    pub fn new(
        selection: &Selection,
        templates: &[Managed],
        index: &IndexArgs,
        cache: &Cache,
        progress: &dyn Progress,
    ) -> Result<Self, SourceError> {
        let listings = listings(selection, templates, cache, progress)?;
        let in_ranges: Vec<Version> =
            listings.iter().flat_map(|listed| selection.in_ranges(listed)).cloned().collect();
        let mut found = Self::default();
        for (template, listed) in templates.iter().zip(&listings) {
            let minor = python_minor(template)?;
            let mut sources: Vec<Box<dyn Source>> = Vec::new();
            let releases: Vec<Version> = selection.named(listed).chain(&in_ranges).cloned().collect();
            if !releases.is_empty() {
                sources.push(Box::new(Releases::named(&releases, template, cache)?));
            }
            for dates in selection.nightlies() {
                sources.push(Box::new(index.nightlies(dates, template, cache, progress)?));
            }
            found.add(sources, minor);
        }
        Ok(found)
    }

    /// Adds what the sources of one interpreter have, in the order of versions.
    fn add(&mut self, sources: Vec<Box<dyn Source>>, python_minor: u32) {
        let first = self.sources.len();
        let mut columns: Vec<Column> = Vec::new();
        for (place, source) in sources.iter().enumerate() {
            let columns_of = source.candidates().iter().map(|candidate| Column {
                source: first + place,
                candidate: candidate.clone(),
                python_minor,
            });
            columns.extend(columns_of);
        }
        // Nightlies come before the release that they lead to. What is no version stays where it is.
        let version = |column: &Column| column.candidate.label.parse::<Version>().ok();
        if columns.iter().all(|column| version(column).is_some()) {
            columns.sort_by_key(version);
        }
        for column in columns {
            // Ranges may overlap, and a Python may be named twice.
            let is_same = |known: &Column| known.candidate.identity == column.candidate.identity;
            if !self.columns.iter().any(is_same) {
                self.columns.push(column);
            }
        }
        self.sources.extend(sources);
    }
}

/// What the index lists for each interpreter, the newest first.
fn listings(
    selection: &Selection,
    templates: &[Managed],
    cache: &Cache,
    progress: &dyn Progress,
) -> Result<Vec<Vec<Version>>, EnvironmentError> {
    let mut listings = Vec::new();
    let mut nothing_fits = None;
    for template in templates {
        match selection.listed(template, cache, progress) {
            Ok(listed) => listings.push(listed),
            // The releases that others have say so for this one.
            Err(error) if error.is_no_build() => {
                listings.push(Vec::new());
                nothing_fits = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    match nothing_fits {
        Some(error) if listings.iter().all(Vec::is_empty) => Err(error),
        _ => Ok(listings),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::{Environment, EnvironmentArgs};
    use crate::versions::Unavailable;

    struct Fixed(Vec<Candidate>);

    impl Source for Fixed {
        fn candidates(&self) -> &[Candidate] {
            &self.0
        }

        fn environment(&self, _: &Candidate, _: &dyn Progress) -> Result<Environment, Unavailable> {
            Err(Unavailable::Broken("it is only listed here".to_owned()))
        }

        fn replay(&self, _: &Candidate) -> Vec<String> {
            Vec::new()
        }
    }

    fn source(labels: &[&str], python: u32) -> Box<dyn Source> {
        let candidate = |label: &&str| Candidate {
            label: (*label).to_owned(),
            identity: format!("{label} {python}"),
            commit: None,
            note: None,
        };
        Box::new(Fixed(labels.iter().map(candidate).collect()))
    }

    fn labels(columns: &Columns) -> Vec<(usize, &str, u32)> {
        let columns = columns.columns.iter();
        columns.map(|one| (one.source, one.candidate.label.as_str(), one.python_minor)).collect()
    }

    #[test]
    fn versions_of_several_sources_are_in_one_order_and_each_once() {
        let mut columns = Columns::default();
        let nightlies = ["2.8.0.dev20250501+cpu", "2.8.0.dev20250502+cpu"];
        columns.add(
            vec![source(&["2.7.1", "2.8.0"], 11), source(&nightlies, 11), source(&nightlies[1..], 11)],
            11,
        );
        columns.add(vec![source(&["2.7.1"], 12)], 12);
        columns.add(vec![source(&["2.7.1"], 12)], 12);
        assert_eq!(
            labels(&columns),
            [
                (0, "2.7.1", 11),
                (1, nightlies[0], 11),
                (1, nightlies[1], 11),
                (0, "2.8.0", 11),
                (3, "2.7.1", 12)
            ]
        );
        assert_eq!(columns.sources.len(), 5);
    }

    #[test]
    fn named_versions_are_columns_of_every_python_without_any_index() {
        let folder = tempfile::tempdir().unwrap();
        let templates = ["3.11", "3.12"].map(|python| {
            let args = EnvironmentArgs { python_version: Some(python.into()), ..Default::default() };
            Managed::template(&args).unwrap()
        });
        let selection: Selection = "2.13.0,2.6.0,2.6".parse().unwrap();
        let cache = Cache::at(folder.path());
        let index = IndexArgs::default();
        let found =
            Columns::new(&selection, &templates, &index, &cache, &crate::environment::Silent).unwrap();
        assert_eq!(
            labels(&found),
            [(0, "2.6.0", 11), (0, "2.13.0", 11), (1, "2.6.0", 12), (1, "2.13.0", 12)]
        );
        assert!(found.columns[0].candidate.identity.starts_with("torch-2.6.0-py3.11-"));
        assert!(!cache.environments().exists(), "nothing is made before it is needed");
    }
}
