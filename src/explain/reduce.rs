//! The minimal case: made as simple as it can be while it still leaks, written as a file, and run from that file.

use std::io;
use std::path::{Path, PathBuf};

use pep440_rs::Version;
use serde_json::{Value, json};
use torchleak_protocol::Device;

use super::conditions::Switch;
use super::effect::Leak;
use super::minimal::minimise;
use super::{Bench, ExplainError};
use crate::case::{Case, CaseError, Document, Verdict};
use crate::environment::Environment;
use crate::interrupt;

/// A case that leaks and cannot be made simpler by any switch that was tried.
#[derive(Debug)]
pub struct Minimal {
    pub path: PathBuf,
    pub yaml: String,
    /// What running the file came to.
    pub verdict: Option<Verdict>,
    pub reason: String,
    pub retained: Option<u64>,
    /// Whether that is the leak of the case it was made of.
    pub leaks: bool,
}

/// Keys that no run depends on and that a reader needs.
const KEPT: [&str; 2] = ["device", "upstream"];

/// Checks that a case can be written to that path, whose name it takes.
///
/// # Errors
/// The file's name is no name of a case, or it has no folder.
pub fn check(case: &Case, document: &Document, path: &Path) -> Result<(), ExplainError> {
    case.with_document(&named(document.clone(), path))?;
    // A relative path of one part has an empty parent.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match folder.metadata() {
        Ok(found) if !found.is_dir() => Err(io::ErrorKind::NotADirectory.into()),
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    }
    .map_err(|source| ExplainError::Write { path: path.to_owned(), source })
}

/// Makes the case minimal. None if an interruption came first.
pub fn reduce(
    case: &Case,
    document: Document,
    simplifications: &[(&'static str, &Switch)],
    leak: &Leak,
    path: &Path,
    bench: &mut Bench<'_>,
) -> Result<Option<Minimal>, ExplainError> {
    let simplified = |choice: &[usize]| {
        let mut simpler = document.clone();
        choice.iter().for_each(|one| simplifications[*one].1.turn(&mut simpler));
        named(simpler, path)
    };
    let made = minimise(simplifications.len(), |choices| {
        let documents: Vec<Document> = choices.iter().map(|choice| simplified(choice)).collect();
        still_leak(case, &documents, leak, bench)
    })?;
    if interrupt::requested() {
        return Ok(None);
    }
    let mut smallest = without_defaults(case, simplified(&made), bench.options.device)?;
    describe(&mut smallest, case, leak, bench.environment);
    let yaml = smallest.text()?;
    std::fs::write(path, &yaml).map_err(|source| ExplainError::Write { path: path.to_owned(), source })?;
    let outcome = bench.run(&[Case::load(path)?])?.remove(0);
    if interrupt::requested() {
        return Ok(None);
    }
    let shown = leak.beside(&outcome);
    Ok(Some(Minimal {
        path: path.to_owned(),
        yaml,
        leaks: leak.stays(&shown),
        verdict: shown.verdict,
        reason: shown.reason,
        retained: shown.retained,
    }))
}

/// Runs documents beside each other and says which have the leak. After an interruption none has.
fn still_leak(
    case: &Case,
    documents: &[Document],
    leak: &Leak,
    bench: &mut Bench<'_>,
) -> Result<Vec<bool>, ExplainError> {
    if interrupt::requested() {
        return Ok(vec![false; documents.len()]);
    }
    let cases: Vec<Option<Case>> =
        documents.iter().map(|document| case.with_document(document).ok()).collect();
    let mut outcomes = bench.run(&cases.iter().flatten().cloned().collect::<Vec<_>>())?.into_iter();
    let answers = cases.iter().map(|case| {
        let outcome = case.as_ref().and_then(|_| outcomes.next());
        outcome.is_some_and(|outcome| leak.stays(&leak.beside(&outcome)))
    });
    Ok(answers.collect())
}

/// The document with the name that a case in that file has.
fn named(mut document: Document, path: &Path) -> Document {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    document.set("name", json!(stem));
    document
}

/// The document without the keys that say what holds anyway.
fn without_defaults(case: &Case, mut document: Document, device: Device) -> Result<Document, CaseError> {
    let meaning = case.with_document(&document)?.resolved(device);
    for path in document.paths().into_iter().filter(|path| !KEPT.contains(&path.as_str())) {
        let mut shorter = document.clone();
        shorter.remove(&path);
        if case.with_document(&shorter).is_ok_and(|case| case.resolved(device) == meaning) {
            document = shorter;
        }
    }
    Ok(document)
}

/// Says in the case where it comes from, and expects what was seen there and nowhere else.
fn describe(document: &mut Document, case: &Case, leak: &Leak, environment: &Environment) {
    let torch = &environment.facts.torch;
    let summary = format!(
        "What still leaks of {} when everything is simplified that can be, as `torchleak explain` found on torch {torch}.",
        case.name(),
    );
    document.set("summary", json!(summary));
    let mut expected = json!({"verdict": leak.own.verdict});
    if let Ok(version) = torch.parse::<Version>() {
        expected["torch"] = Value::String(format!("=={}", version.without_local()));
    }
    document.set("expect", json!([expected]));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Catalog, HEADLINE};

    #[test]
    fn what_holds_anyway_is_left_out_and_the_case_trains_the_same() {
        let case = Catalog::shipped().unwrap().get(HEADLINE).unwrap().clone();
        let document = case.document(Device::Cpu).unwrap();
        let shorter = without_defaults(&case, document, Device::Cpu).unwrap();
        for path in [
            "steps",
            "warmup",
            "dtype",
            "optimizer",
            "checkpoint/early_stop",
            "checkpoint/policy",
            "compile/disable/site",
        ] {
            assert_eq!(shorter.get(path), None, "{path} holds anyway");
        }
        for path in
            ["upstream", "model/kv_heads", "checkpoint/mode", "compile/disable/api", "retains/rng_states"]
        {
            assert!(shorter.get(path).is_some(), "{path} is needed");
        }
        let again = case.with_document(&shorter).unwrap();
        assert_eq!(again.resolved(Device::Cpu), case.resolved(Device::Cpu));
    }

    #[test]
    fn a_file_that_can_hold_no_case_is_refused() {
        let case = Catalog::shipped().unwrap().get(HEADLINE).unwrap().clone();
        let document = case.document(Device::Cpu).unwrap();
        assert!(check(&case, &document, Path::new("smaller-1.yaml")).is_ok());
        for name in
            ["", "..", "With Spaces.yaml", "-.yaml", "nowhere/smaller.yaml", "Cargo.toml/smaller.yaml"]
        {
            assert!(check(&case, &document, Path::new(name)).is_err(), "{name}");
        }
    }
}
