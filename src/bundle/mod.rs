//! The bundle for an upstream issue: a draft of it, a script that shows the leak, a page, the evidence.
//!
//! Data flows one way: files of runs (`files`, `documents`) -> without what is private (`redact`) -> runs read back ->
//! the script (`repro`), run (`verify`) -> issue, page and pictures -> a folder and an archive (`stage`).
//!
//! Architecture invariant: what a bundle tells is read from files, never remembered from a run, so that the folder of
//! another machine gives the same bundle.

mod documents;
mod error;
mod facts;
mod files;
mod issue;
mod measured;
mod page;
mod picture;
mod redact;
mod repro;
mod stage;
mod verify;

use std::path::{Path, PathBuf};

use pep440_rs::Version;

pub use error::BundleError;
pub use verify::{Verification, Where};

use crate::case::Verdict;
use crate::run::{Kept, KeptEnvironment};
use documents::{Ablation, Bisection, VersionRow};
use files::RunFiles;
use redact::{Private, Redactor};
use stage::Stage;
use verify::{SNAPSHOT_FILE, Verified, verify};

/// The version that a bundle names.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Longer scripts than this are hardly read; only a program of the user's own makes one.
const LONGEST_SCRIPT: usize = 120;

/// What goes into a bundle, and where it goes.
#[derive(Debug)]
pub struct Request<'a> {
    /// Run folders of one case. The first is what the bundle is about, the others are further versions.
    pub runs: &'a [PathBuf],
    pub matrix: Option<&'a Path>,
    pub bisect: Option<&'a Path>,
    pub explain: Option<&'a Path>,
    pub output: Option<&'a Path>,
    /// Texts to take out, besides what is found to be private; none to leave everything as it is.
    pub redact: Option<&'a [String]>,
}

/// A bundle in its place.
#[derive(Debug)]
pub struct Made {
    pub case: String,
    pub torch: String,
    pub verdict: Verdict,
    pub verification: Verification,
    /// What the user should know before it is handed over.
    pub warnings: Vec<String>,
    pub folder: PathBuf,
    pub archive: PathBuf,
}

/// What issue and page tell.
pub(crate) struct Content<'a> {
    run: &'a Kept,
    script: &'a str,
    verified: &'a Verified,
    /// By version; one is no table.
    versions: &'a [VersionRow],
    bisection: Option<&'a Bisection>,
    ablation: Option<&'a Ablation>,
    is_redacted: bool,
}

impl Content<'_> {
    fn numbers(&self) -> Vec<(&'static str, String)> {
        facts::numbers(self.run)
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        facts::environment(self.run)
    }

    fn verified_sentence(&self) -> String {
        self.verified.verification.sentence(facts::verdict(self.run))
    }

    fn counter(&self) -> &'static str {
        measured::place(self.run).counter()
    }
}

/// A run folder without what is private, and what it says.
struct Run {
    files: RunFiles,
    kept: Kept,
    /// The environment with its real paths.
    recorded: KeptEnvironment,
}

/// Makes a bundle.
///
/// # Errors
/// Something that was named cannot be read or used, the bundle cannot be written, or the user asked to stop. That
/// `repro.py` does not agree, or cannot be run here, is no error: the bundle says so.
pub fn make(request: &Request<'_>, place: Where<'_>) -> Result<Made, BundleError> {
    let files = request.runs.iter().map(|folder| RunFiles::read(folder)).collect::<Result<Vec<_>, _>>()?;
    let redactor = redactor(request.redact, &files);
    let runs = files.into_iter().map(|files| read_back(files, &redactor)).collect::<Result<Vec<_>, _>>()?;
    let Some((main, others)) = runs.split_first() else {
        return Err(BundleError::Make { name: "bundle", problem: "no run was named".to_owned() });
    };
    if let Some(other) =
        others.iter().find(|run| run.kept.case.content_hash() != main.kept.case.content_hash())
    {
        let [folder, first] = [other, main].map(|run| run.files.folder.clone());
        return Err(BundleError::NotTheSame { folder, first });
    }
    let found = Found::read(request, &redactor, &runs)?;
    let stage = Stage::begin(request.output, &name(&main.kept), &redactor)?;
    write_evidence(&stage, main, others)?;

    let verdict = main.kept.outcome.verdict().unwrap_or(Verdict::Error);
    let script = repro::script(&main.kept.case, &main.kept.resolved, verdict);
    let script = redactor.clean(&made("repro.py", script)?);
    let path = stage.text("repro.py", &script)?;
    let mut verified = verify(&main.kept, &main.recorded, &path, &redactor, place)?;
    for text in [&mut verified.output, &mut verified.versions].into_iter().flatten() {
        *text = redactor.clean(text);
    }
    let content = Content {
        run: &main.kept,
        script: &script,
        verified: &verified,
        versions: &found.versions,
        bisection: found.bisection.as_ref(),
        ablation: found.ablation.as_ref(),
        is_redacted: redactor.is_on(),
    };
    write_reports(&stage, &content)?;
    let (folder, archive) = stage.publish()?;
    Ok(Made {
        case: main.kept.outcome.name.clone(),
        torch: main.kept.environment.facts.torch.clone(),
        verdict,
        warnings: warnings(&content),
        verification: verified.verification,
        folder,
        archive,
    })
}

/// What takes out what is private here and where the runs were made.
fn redactor(more: Option<&[String]>, files: &[RunFiles]) -> Redactor {
    let Some(more) = more else { return Redactor::off() };
    let mut private = Private::here();
    private.named.extend(more.iter().cloned());
    files.iter().flat_map(|files| files.texts.values()).for_each(|text| private.learn(text));
    Redactor::new(&private)
}

fn read_back(mut files: RunFiles, redactor: &Redactor) -> Result<Run, BundleError> {
    let recorded = files.texts.get("environment.json").and_then(|text| serde_json::from_str(text).ok());
    // A case may be called after its author, and its program then too.
    files.texts =
        files.texts.iter().map(|(name, text)| (redactor.clean(name), redactor.clean(text))).collect();
    let kept = Kept::read(|name| files.texts.get(name).cloned())
        .map_err(|source| BundleError::Kept { folder: files.folder.clone(), source })?;
    let recorded = recorded.unwrap_or_else(|| kept.environment.clone());
    Ok(Run { files, kept, recorded })
}

/// What other runs and commands found out about the case.
struct Found {
    versions: Vec<VersionRow>,
    bisection: Option<Bisection>,
    ablation: Option<Ablation>,
}

impl Found {
    fn read(request: &Request<'_>, redactor: &Redactor, runs: &[Run]) -> Result<Self, BundleError> {
        let case = &runs[0].kept.outcome.name;
        let text = |path: &Path| Ok::<_, BundleError>(redactor.clean(&files::read(path)?));
        let mut versions: Vec<VersionRow> = runs.iter().map(|run| VersionRow::of(&run.kept)).collect();
        if let Some(path) = request.matrix {
            for row in documents::matrix(path, &text(path)?, case)? {
                // A run that was named speaks for itself.
                let key = |row: &VersionRow| (row.torch.clone(), row.python.clone(), row.device.clone());
                if !versions.iter().any(|known| key(known) == key(&row)) {
                    versions.push(row);
                }
            }
        }
        versions.sort_by_key(|row| row.torch.parse::<Version>().ok());
        let bisection =
            request.bisect.map(|path| documents::bisection(path, &text(path)?, case)).transpose()?;
        let ablation =
            request.explain.map(|path| documents::ablation(path, &text(path)?, case)).transpose()?;
        Ok(Self { versions, bisection, ablation })
    }
}

/// What the folder is called where the user names none.
fn name(run: &Kept) -> String {
    let torch = &run.environment.facts.torch;
    format!("report-{}-torch-{}", run.outcome.name, torch.split('+').next().unwrap_or(torch))
}

fn write_evidence(stage: &Stage<'_>, main: &Run, others: &[Run]) -> Result<(), BundleError> {
    for (number, run) in std::iter::once(main).chain(others).enumerate() {
        let folder = if number == 0 { "evidence".to_owned() } else { format!("evidence-{}", number + 1) };
        for (name, text) in &run.files.texts {
            stage.text(&format!("{folder}/{name}"), text)?;
        }
    }
    Ok(())
}

fn write_reports(stage: &Stage<'_>, content: &Content<'_>) -> Result<(), BundleError> {
    let run = content.run;
    let memory = made("memory.svg", picture::memory(&measured::curves(run)))?;
    let bars = measured::freed(run);
    let predicted = run.outcome.numbers().and_then(|numbers| Some(numbers.predicted?.total));
    let freed =
        if bars.is_empty() { None } else { Some(made("freed.svg", picture::freed(&bars, predicted))?) };
    for (name, svg) in [("memory", Some(&memory)), ("freed", freed.as_ref())] {
        if let Some(svg) = svg {
            stage.text(&format!("{name}.svg"), svg)?;
            stage.bytes(&format!("{name}.png"), &made("a picture", picture::png(svg))?)?;
        }
    }
    stage.text("report.html", &made("report.html", page::page(content, &memory, freed.as_deref()))?)?;
    stage.text("issue.md", &made("issue.md", issue::issue(content))?)?;
    let verified = content.verified;
    for (name, text) in [("repro.log", &verified.output), ("versions.txt", &verified.versions)] {
        if let Some(text) = text {
            stage.text(name, text)?;
        }
    }
    Ok(())
}

fn warnings(content: &Content<'_>) -> Vec<String> {
    let lines = content.script.lines().count();
    let long = (lines > LONGEST_SCRIPT)
        .then(|| format!("repro.py has {lines} lines; shorten the program before you file this"));
    let verification = content.verified.verification.warning(facts::verdict(content.run));
    let plain = (!content.is_redacted)
        .then(|| "nothing was taken out: names, paths and secrets of this machine may be in it".to_owned());
    verification.into_iter().chain(long).chain(plain).collect()
}

/// What was made of what is known to be good. A failure is torchleak's own.
fn made<T, E: std::fmt::Display>(name: &'static str, result: Result<T, E>) -> Result<T, BundleError> {
    result.map_err(|error| BundleError::Make { name, problem: error.to_string() })
}
