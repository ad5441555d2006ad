//! The shipped cases, and finding a case by its name or path.

use std::path::Path;

use include_dir::{Dir, include_dir};

use super::{
    Case, Origin,
    error::{CaseError, Problem},
    load, suggest,
};

static SHIPPED: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/cases");

/// The case that runs when none is named.
pub const HEADLINE: &str = "sac-disable-recompute";

/// A set of cases that can be looked up by name.
#[derive(Debug, Clone)]
pub struct Catalog {
    cases: Vec<Case>,
}

impl Catalog {
    /// The cases inside the binary, in the order of their names.
    ///
    /// # Errors
    ///
    /// Only in a build whose own case files are bad; a test keeps such a build from existing.
    pub fn shipped() -> Result<Self, CaseError> {
        let mut files: Vec<_> = SHIPPED
            .files()
            .filter(|file| file.path().extension().is_some_and(|ending| ending == "yaml"))
            .collect();
        files.sort_by_key(|file| file.path());
        let cases = files.into_iter().map(|file| {
            let shown = format!("cases/{}", file.path().display());
            let stem = file.path().file_stem().map(|stem| stem.to_string_lossy().into_owned());
            load::parse(&shown, file.contents(), stem, Origin::Shipped, shipped_program)
        });
        Ok(Self { cases: cases.collect::<Result<_, _>>()? })
    }

    /// All cases.
    pub fn cases(&self) -> &[Case] {
        &self.cases
    }

    /// The cases that `run --all` runs.
    pub fn always(&self) -> impl Iterator<Item = &Case> {
        self.cases.iter().filter(|case| case.spec.when == super::When::Always)
    }

    /// The case of that name.
    ///
    /// # Errors
    ///
    /// There is none; the error suggests the closest name.
    pub fn get(&self, name: &str) -> Result<&Case, CaseError> {
        self.cases.iter().find(|case| case.name() == name).ok_or_else(|| {
            let names: Vec<&str> = self.cases.iter().map(Case::name).collect();
            let problem = Problem::new("there is no case of that name");
            CaseError::new(name, None, vec![problem.hint(suggest::choices(name, &names))])
        })
    }

    /// The case that a command-line argument means: a path if it contains a separator or ends in
    /// `.yaml` or `.yml`, else a name.
    ///
    /// # Errors
    ///
    /// Unknown names, and whatever [`Case::load`] finds.
    pub fn find(&self, argument: &str) -> Result<Case, CaseError> {
        let is_path = argument.contains(std::path::is_separator)
            || argument.ends_with(".yaml")
            || argument.ends_with(".yml");
        if is_path { Case::load(Path::new(argument)) } else { self.get(argument).cloned() }
    }

    /// The cases that the arguments mean, in their order. A case that is named twice runs once.
    ///
    /// # Errors
    ///
    /// What [`Catalog::find`] finds, and two different files that hold cases of one name: results are
    /// kept by name.
    pub fn select<S: AsRef<str>>(&self, arguments: &[S]) -> Result<Vec<Case>, CaseError> {
        let mut chosen: Vec<(&str, Case)> = Vec::new();
        for argument in arguments {
            let argument = argument.as_ref();
            let case = self.find(argument)?;
            match chosen.iter().find(|(_, other)| other.name() == case.name()) {
                None => chosen.push((argument, case)),
                Some((_, other)) if other.origin == case.origin => {}
                Some((before, _)) => {
                    let problem = Problem::new(format!("the name `{}` is taken by `{before}`", case.name()))
                        .hint("results are kept by name: rename one of the two, or run them one after the other")
                        .at(load::key(&case.source, "name"));
                    return Err(CaseError::new(argument, Some(&case.source), vec![problem]));
                }
            }
        }
        Ok(chosen.into_iter().map(|(_, case)| case).collect())
    }
}

fn shipped_program(name: &str) -> Result<String, Problem> {
    SHIPPED
        .get_file(name)
        .and_then(|file| file.contents_utf8())
        .map(str::to_owned)
        .ok_or_else(|| Problem::new(format!("the program `{name}` is not among the shipped files")))
}
