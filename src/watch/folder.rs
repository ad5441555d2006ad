//! The run folder of a watched script.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::json;
use torchleak_protocol::WatchSpec;

use super::WatchError;
use super::merge::Summary;
use super::options::WatchOptions;
use super::process::Process;
use super::script::ScriptExit;
use crate::run::{LostFiles, make_new_folder, relevant_variables, write_diagnosis};

/// A run folder that is being written.
#[derive(Debug)]
pub struct WatchFolder {
    path: PathBuf,
}

impl WatchFolder {
    /// Makes `<runs>/<time>-watch-<script>` with what the script's processes are to do.
    pub fn create(options: &WatchOptions) -> Result<Self, WatchError> {
        let failed = |path: &Path, source| WatchError::Folder { path: path.to_owned(), source };
        // Processes of the script may stand in any folder.
        let runs = std::path::absolute(&options.runs).map_err(|source| failed(&options.runs, source))?;
        std::fs::create_dir_all(&runs).map_err(|source| failed(&runs, source))?;
        let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
        let path = make_new_folder(&runs, &format!("{time}-watch-{}", script_name(options)))
            .map_err(|(path, source)| failed(&path, source))?;
        let folder = Self { path };
        folder.fill(options).map_err(|source| failed(&folder.path, source))?;
        Ok(folder)
    }

    fn fill(&self, options: &WatchOptions) -> io::Result<()> {
        std::fs::create_dir(self.events())?;
        let spec = WatchSpec {
            events: self.events().display().to_string(),
            mode: options.mode,
            boundary: options.boundary.clone(),
            warmup: options.warmup,
            every: options.every,
            steps: options.steps,
            ranks: options.ranks.clone(),
            workers: options.workers,
            show_values: options.show_values,
        };
        std::fs::write(self.specification(), serde_json::to_string_pretty(&spec)? + "\n")
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the processes read.
    pub fn specification(&self) -> PathBuf {
        self.path.join("watch.json")
    }

    /// Where the processes write, each to a file of its own.
    pub fn events(&self) -> PathBuf {
        self.path.join("events")
    }

    /// Writes what was found, and gives what is lost. The script has ended, so all else can still be told.
    pub fn conclude(
        &self,
        options: &WatchOptions,
        processes: &[Process],
        summary: &Summary,
        exit: ScriptExit,
    ) -> LostFiles {
        let mut lost = LostFiles::default();
        let document = crate::report::watch_document(summary, exit, &self.path);
        lost.write(self.path.join("verdict.json"), &format!("{document:#}\n"));
        let environment = json!({
            "schema": 1,
            "torchleak": env!("CARGO_PKG_VERSION"),
            "command": command(options),
            "processes": processes.iter().filter_map(|process| process.facts.as_ref()).collect::<Vec<_>>(),
            "environment_variables": relevant_variables(),
        });
        lost.write(self.path.join("environment.json"), &format!("{environment:#}\n"));
        if let Some(diagnosis) = &summary.diagnosis {
            lost.extend(&write_diagnosis(&self.path, &script_name(options), diagnosis));
        }
        lost
    }
}

fn command(options: &WatchOptions) -> Vec<String> {
    options.command.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// A word for the script: its file, the module after `-m`, or the program.
fn script_name(options: &WatchOptions) -> String {
    let words = command(options);
    let file = words.iter().find(|word| word.ends_with(".py") && !word.starts_with('-'));
    let module = || words.iter().position(|word| word == "-m").and_then(|at| words.get(at + 1));
    let stem = |word: &String| Path::new(word).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let word = match (file, module()) {
        (Some(file), _) => stem(file),
        (None, Some(module)) => Some(module.clone()),
        (None, None) => words.first().and_then(stem),
    };
    let plain: String = word
        .unwrap_or_default()
        .chars()
        .take(40)
        .map(|letter| if letter.is_ascii_alphanumeric() || "-_.".contains(letter) { letter } else { '-' })
        .collect();
    if plain.is_empty() { "script".to_owned() } else { plain }
}
