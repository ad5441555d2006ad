//! What other machines found: the documents of matrices, and run folders.

use std::fs;
use std::path::{Path, PathBuf};

use pep440_rs::Version;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use torchleak_protocol::Device;

use super::{Cell, Columns};
use crate::case::{Case, Partition, Verdict};
use crate::environment::Facts;
use crate::explain;

/// How deep below a folder that is named run folders and documents are looked for.
const DEPTH: u32 = 8;

/// Which cells of which matrix a document was to hold.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Share {
    /// Equal for the parts of one matrix: a hash over its cases and environments, in their order.
    pub matrix: String,
    #[serde(flatten)]
    pub partition: Partition,
    /// How many cells the whole matrix has.
    pub cells: usize,
}

impl Share {
    /// What a machine takes of a matrix.
    pub fn new(partition: Partition, cases: &[Case], columns: &Columns) -> Self {
        let mut hash = Sha256::new();
        cases.iter().for_each(|case| hash.update(case.content_hash()));
        columns.columns.iter().for_each(|column| hash.update(&column.candidate.identity));
        let matrix = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Self { matrix, partition, cells: cases.len() * columns.columns.len() }
    }
}

/// The cells of one document, or of one run folder.
#[derive(Debug, Clone)]
pub struct Part {
    pub path: PathBuf,
    /// What a document was to hold; a run folder is no part of anything.
    pub share: Option<Share>,
    pub cells: Vec<Cell>,
}

/// Why something cannot be joined.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    #[error("`{}` cannot be read", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("`{}` is no document of a matrix", path.display())]
    NoDocument { path: PathBuf, source: serde_json::Error },
    #[error("the run folder `{}` is not whole", path.display())]
    NoRun { path: PathBuf, source: std::io::Error },
    #[error("there is neither a run folder nor a document of a matrix in `{}`", path.display())]
    Nothing { path: PathBuf },
}

impl PartError {
    /// What the user can try.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Read { .. } => {
                "name files and folders that were copied from the machines that ran the parts"
            }
            Self::NoDocument { .. } => {
                "name what `torchleak matrix --format json` printed; a part whose machine was stopped has no document, \
                 and its run folders can be named instead"
            }
            Self::NoRun { .. } => "copy the whole folder, or run the case again",
            Self::Nothing { .. } => "name the folder that `--runs` named, or the documents themselves",
        }
    }
}

/// What is read of a document.
#[derive(Deserialize)]
struct Document {
    schema: Schema,
    #[serde(default)]
    partition: Option<Share>,
    cells: Vec<Cell>,
}

/// The only schema there is; another number is refused.
#[derive(Deserialize)]
#[serde(try_from = "u64")]
struct Schema;

impl TryFrom<u64> for Schema {
    type Error = String;

    fn try_from(number: u64) -> Result<Self, String> {
        if number == 1 { Ok(Self) } else { Err(format!("schema {number} is unknown to this torchleak")) }
    }
}

/// Reads what the paths name, and what is below those that are folders. What lies in a folder and cannot be read is told
/// beside it, because the other parts count nevertheless.
///
/// # Errors
/// A file that is named cannot be read, or a folder that is named has nothing to join.
pub fn read_parts(paths: &[PathBuf]) -> Result<(Vec<Part>, Vec<PartError>), PartError> {
    let (mut parts, mut problems) = (Vec::new(), Vec::new());
    for path in paths {
        if path.is_dir() {
            let before = (parts.len(), problems.len());
            search(path, DEPTH, &mut parts, &mut problems);
            if before == (parts.len(), problems.len()) {
                return Err(PartError::Nothing { path: path.clone() });
            }
        } else {
            parts.push(document(path)?);
        }
    }
    Ok((parts, problems))
}

fn search(folder: &Path, depth: u32, parts: &mut Vec<Part>, problems: &mut Vec<PartError>) {
    if folder.join("verdict.json").is_file() {
        match run_folder(folder) {
            Ok(part) => parts.push(part),
            Err(error) => problems.push(error),
        }
        return;
    }
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries.flatten(),
        Err(source) => return problems.push(PartError::Read { path: folder.to_owned(), source }),
    };
    let mut entries: Vec<_> =
        entries.filter_map(|entry| Some((entry.file_type().ok()?, entry.path()))).collect();
    entries.sort_by(|(_, one), (_, other)| one.cmp(other));
    for (kind, path) in entries {
        // A link may lead back to where the search came from.
        if kind.is_dir() && depth > 0 && !is_ablation(&path) {
            search(&path, depth - 1, parts, problems);
        } else if kind.is_file()
            && path.extension().is_some_and(|ending| ending == "json")
            && !is_of_another(&path)
        {
            match document(&path) {
                Ok(part) => parts.push(part),
                Err(error) => problems.push(error),
            }
        }
    }
}

/// Whether a folder holds the variants of a case that `explain` made, which are no cases of anybody's.
fn is_ablation(folder: &Path) -> bool {
    let is_named = folder.file_name().is_some_and(|name| name.to_string_lossy().contains(explain::FOLDER));
    is_named && !folder.join("verdict.json").is_file()
}

/// Whether a file is whole and says of itself that it is something else. One that was cut off is not passed over.
fn is_of_another(path: &Path) -> bool {
    let value =
        fs::read(path).ok().and_then(|bytes| serde_json::from_slice::<serde_json::Value>(&bytes).ok());
    value.is_some_and(|value| value.get("cells").is_none())
}

fn document(path: &Path) -> Result<Part, PartError> {
    let bytes = fs::read(path).map_err(|source| PartError::Read { path: path.to_owned(), source })?;
    let document: Document = serde_json::from_slice(&bytes)
        .map_err(|source| PartError::NoDocument { path: path.to_owned(), source })?;
    let Document { schema: Schema, partition, cells } = document;
    Ok(Part { path: path.to_owned(), share: partition, cells })
}

/// What a cell needs of `verdict.json`.
#[derive(Deserialize)]
struct Kept {
    name: String,
    device: Device,
    verdict: Option<Verdict>,
    reason: String,
    expected: Option<Verdict>,
    ok: bool,
    seconds: f64,
    numbers: Option<Numbers>,
}

#[derive(Deserialize)]
struct Numbers {
    growth_bytes_per_step: f64,
}

/// What a cell needs of `environment.json`.
#[derive(Deserialize)]
struct KeptEnvironment {
    #[serde(flatten)]
    facts: Facts,
    overlay: Option<KeptOverlay>,
}

#[derive(Deserialize)]
struct KeptOverlay {
    commit: String,
}

fn run_folder(folder: &Path) -> Result<Part, PartError> {
    let failed = |source| PartError::NoRun { path: folder.to_owned(), source };
    let read = |file| fs::read(folder.join(file)).map_err(failed);
    let kept: Kept = serde_json::from_slice(&read("verdict.json")?).map_err(|error| failed(error.into()))?;
    let environment: KeptEnvironment =
        serde_json::from_slice(&read("environment.json")?).map_err(|error| failed(error.into()))?;
    let overlay = environment.overlay.map(|overlay| overlay.commit);
    let facts = environment.facts;
    let cell = Cell {
        case: kept.name,
        label: label(&facts.torch, overlay.as_deref()),
        torch: facts.torch,
        torch_commit: facts.torch_commit,
        overlay,
        python: facts.python,
        device: kept.device,
        verdict: kept.verdict,
        reason: kept.reason,
        expected: kept.expected,
        ok: kept.ok,
        growth: kept.numbers.map(|numbers| numbers.growth_bytes_per_step.round() as i64),
        seconds: kept.seconds,
        run_dir: Some(std::path::absolute(folder).unwrap_or(folder.to_owned())),
        cached: false,
    };
    Ok(Part { path: folder.to_owned(), share: None, cells: vec![cell] })
}

/// The name of a build that nobody selected by name: a release by its number, as builds for several backends are one
/// version; a nightly by all of it.
pub fn label(torch: &str, overlay: Option<&str>) -> String {
    let release = torch.parse::<Version>().ok().filter(|version| !version.is_dev());
    let label = release.map_or(torch.to_owned(), |version| version.without_local().to_string());
    match overlay {
        Some(commit) => format!("{label} with {commit:.10}"),
        None => label,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_of_an_explanation_are_no_cases_of_a_matrix() {
        let runs = tempfile::tempdir().unwrap();
        let found = |name: &str| {
            let folder = runs.path().join(name);
            fs::create_dir_all(&folder).unwrap();
            // It is no verdict, so that whoever reads it complains.
            fs::write(folder.join("verdict.json"), "{}").unwrap();
            let (mut parts, mut problems) = (Vec::new(), Vec::new());
            search(runs.path(), DEPTH, &mut parts, &mut problems);
            problems.len()
        };
        assert_eq!(found("20260101T000000Z-explain-leak/20260101T000001Z-layers-1"), 0);
        assert_eq!(found("20260101T000002Z-explain-me"), 1);
    }
}
