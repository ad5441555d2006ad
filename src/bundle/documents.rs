//! What other commands found out about the case: the JSON documents of `matrix`, `bisect` and `explain`.
//!
//! They are read with tolerance, because they may be of another version of torchleak: what is absent is not told, and
//! what is unknown is left out.

use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::BundleError;
use crate::bytes::human;
use crate::run::Kept;

/// What the case showed on one version.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct VersionRow {
    #[serde(default)]
    case: String,
    /// `torch.__version__`.
    #[serde(rename = "build")]
    pub torch: String,
    pub commit: Option<String>,
    #[serde(default)]
    pub python: String,
    pub device: Option<String>,
    pub verdict: Option<String>,
    #[serde(rename = "growth_bytes_per_step")]
    growth: Option<f64>,
}

impl VersionRow {
    /// The row of a run.
    pub fn of(run: &Kept) -> Self {
        let facts = &run.environment.facts;
        Self {
            case: run.outcome.name.clone(),
            torch: facts.torch.clone(),
            commit: facts.torch_commit.clone(),
            python: facts.python.clone(),
            device: serde_json::to_value(run.resolved.device)
                .ok()
                .and_then(|word| Some(word.as_str()?.to_owned())),
            verdict: run.outcome.verdict().map(|verdict| verdict.word().to_owned()),
            growth: run.outcome.numbers().map(|numbers| numbers.growth),
        }
    }

    pub fn commit(&self) -> &str {
        self.commit.as_deref().map_or("-", |commit| commit.get(..10).unwrap_or(commit))
    }

    pub fn device(&self) -> &str {
        self.device.as_deref().unwrap_or("-")
    }

    pub fn verdict(&self) -> &str {
        self.verdict.as_deref().unwrap_or("-")
    }

    pub fn growth(&self) -> String {
        self.growth.map_or_else(|| "-".to_owned(), human)
    }
}

#[derive(Deserialize)]
struct MatrixDocument {
    cells: Vec<VersionRow>,
}

/// The rows of a matrix that are about the case.
///
/// # Errors
/// The text is not such a document.
pub fn matrix(path: &Path, text: &str, case: &str) -> Result<Vec<VersionRow>, BundleError> {
    let document: MatrixDocument = parsed(path, text, "matrix")?;
    let rows: Vec<VersionRow> = document.cells.into_iter().filter(|row| row.case == case).collect();
    if rows.is_empty() { Err(other_case(path, case)) } else { Ok(rows) }
}

/// Where the leak came or went.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Bisection {
    case: String,
    #[serde(default)]
    pub reason: String,
    pub last_before: Option<String>,
    pub first_after: Option<String>,
    #[serde(default)]
    pub conclusive: bool,
    /// Where the commits between the two can be read.
    pub compare: Option<String>,
    #[serde(default)]
    pub tested: Vec<Tested>,
}

/// One candidate of a bisection.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Tested {
    pub candidate: String,
    pub verdict: Option<String>,
    #[serde(rename = "growth_bytes_per_step")]
    growth: Option<f64>,
}

impl Tested {
    pub fn verdict(&self) -> &str {
        self.verdict.as_deref().unwrap_or("-")
    }

    pub fn growth(&self) -> String {
        self.growth.map_or_else(|| "-".to_owned(), human)
    }
}

/// The bisection of the case.
///
/// # Errors
/// The text is not such a document, or it is about another case.
pub fn bisection(path: &Path, text: &str, case: &str) -> Result<Bisection, BundleError> {
    let document: Bisection = parsed(path, text, "bisect")?;
    if document.case == case { Ok(document) } else { Err(other_case(path, case)) }
}

/// Which conditions the leak needs.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Ablation {
    case: String,
    #[serde(default)]
    pub sentence: String,
    pub conditions: Vec<Condition>,
}

/// The case with one condition changed.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Condition {
    condition: serde_json::Value,
    #[serde(default)]
    value: serde_json::Value,
    verdict: Option<String>,
    #[serde(rename = "retained_bytes_per_step")]
    retained: Option<f64>,
    #[serde(default)]
    effect: serde_json::Value,
    #[serde(default)]
    is_base: bool,
}

impl Condition {
    pub fn condition(&self) -> String {
        plain(&self.condition)
    }

    pub fn value(&self) -> String {
        plain(&self.value)
    }

    pub fn verdict(&self) -> &str {
        self.verdict.as_deref().unwrap_or("-")
    }

    pub fn retained(&self) -> String {
        self.retained.map_or_else(|| "-".to_owned(), human)
    }

    /// What the value does to the leak.
    pub fn effect(&self) -> String {
        if self.is_base { "the case itself".to_owned() } else { plain(&self.effect).replace(['-', '_'], " ") }
    }
}

/// A value without the quotes of JSON.
fn plain(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Null => String::new(),
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The ablation of the case.
///
/// # Errors
/// The text is not such a document, or it is about another case.
pub fn ablation(path: &Path, text: &str, case: &str) -> Result<Ablation, BundleError> {
    let document: Ablation = parsed(path, text, "explain")?;
    if document.case == case { Ok(document) } else { Err(other_case(path, case)) }
}

fn parsed<T: DeserializeOwned>(path: &Path, text: &str, command: &'static str) -> Result<T, BundleError> {
    serde_json::from_str(text).map_err(|source| BundleError::NoDocument {
        path: path.to_owned(),
        command,
        source,
    })
}

fn other_case(path: &Path, case: &str) -> BundleError {
    BundleError::OtherCase { path: path.to_owned(), case: case.to_owned() }
}
