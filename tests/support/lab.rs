//! Matrices of a test: nightlies of an index in a folder, each a small wheel that runs the code of the torch under test.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use torchleak::cache::Cache;
use torchleak::case::Verdict;
use torchleak::versions::Cell;
use torchleak_protocol::Device;

use crate::support::Finished;
use crate::torch_wheels::{Build, REAL, folder_with_a_cache};

/// A program that keeps nothing.
pub const FLAT: &str = "def setup(ctx):\n    return ctx\n\ndef step(ctx):\n    return 1.0\n";

/// A program that keeps one cycle with a tensor of 256 KiB a step.
pub const LEAKS: &str = "\
def setup(ctx):
    return ctx

def step(ctx):
    one = [ctx.torch.zeros(65536)]
    one.append(one)
    return 1.0
";

/// A folder with a cache, an index and run folders of its own; uv and its downloads are those of the user.
pub struct Lab {
    folder: tempfile::TempDir,
    pub cache: Cache,
}

impl Lab {
    pub fn new() -> Self {
        let (folder, cache) = folder_with_a_cache();
        Self { folder, cache }
    }

    /// With an index of nightlies, of which those of the days in `leaks` leak.
    pub fn with_nightlies(days: &[&str], leaks: &[&str]) -> Self {
        let lab = Self::new();
        let project = lab.path().join("index/torch");
        fs::create_dir_all(&project).unwrap();
        let links = days.iter().map(|day| {
            let (date, commit) = (format!("202601{day}"), day.repeat(20));
            REAL.write(&Build { date: &date, commit: &commit, leaks: leaks.contains(day) }, &project);
            let name = REAL.wheel_name(&date);
            format!("<a href=\"{}\">{name}</a>\n", name.replace('+', "%2B"))
        });
        let page = format!("<!DOCTYPE html><html><body>{}</body></html>", links.collect::<String>());
        fs::write(project.join("index.html"), page).unwrap();
        lab
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a case with a program of its own, which is expected to be `fixed`.
    pub fn case(&self, name: &str, program: &str) -> String {
        fs::write(self.path().join(format!("{name}.py")), program).unwrap();
        let yaml = format!(
            "name: {name}\nsummary: A case of the tests.\nprogram: {name}.py\nsteps: 5\ndevice: cpu\n\
             expect: [{{verdict: fixed}}]\n"
        );
        fs::write(self.path().join(format!("{name}.yaml")), yaml).unwrap();
        format!("./{name}.yaml")
    }

    pub fn command(&self, cases: &[&str], torch: &str, options: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_torchleak"));
        command.arg("matrix").args(cases).args(["--torch", torch]);
        command.args(["--python", &format!("3.{}", REAL.python_minor), "--device", "cpu"]);
        command.args(["--index", "index", "--cache-dir", "cache"]).args(options);
        command.current_dir(self.path()).stdin(Stdio::null()).env("NO_COLOR", "1");
        command
    }

    pub fn matrix(&self, cases: &[&str], torch: &str, options: &[&str]) -> Finished {
        Finished::of(self.command(cases, torch, options).output().unwrap())
    }

    /// Runs a matrix and gives its document.
    pub fn document(&self, cases: &[&str], torch: &str, options: &[&str]) -> (Value, Finished) {
        let finished = self.matrix(cases, torch, &[options, &["--format", "json"]].concat());
        (document(&finished), finished)
    }

    /// The dates of the environments that are ready.
    pub fn environments(&self) -> Vec<String> {
        let entries = fs::read_dir(self.cache.environments()).into_iter().flatten().flatten();
        let ready = entries.filter(|entry| entry.path().join("torchleak.json").is_file());
        let names = ready.map(|entry| entry.file_name().into_string().unwrap());
        let mut dates: Vec<String> =
            names.map(|name| name.split(".dev").nth(1).unwrap()[..8].to_owned()).collect();
        dates.sort();
        dates
    }

    pub fn files_in(&self, folder: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path().join(folder)).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    }
}

pub fn document(finished: &Finished) -> Value {
    serde_json::from_str(&finished.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}\n{}", finished.stdout, finished.stderr))
}

/// `case verdict` of each cell, with `cached` where it was not run.
pub fn told(document: &Value) -> Vec<String> {
    let cells = document["cells"].as_array().unwrap().iter();
    let told = cells.map(|cell| {
        let cached = if cell["cached"] == true { " cached" } else { "" };
        format!("{} {}{cached}", cell["case"].as_str().unwrap(), cell["verdict"].as_str().unwrap_or("-"))
    });
    told.collect()
}

/// A cell by hand.
pub fn cell(case: &str, torch: &str, python: &str, verdict: Option<Verdict>) -> Cell {
    Cell {
        case: case.to_owned(),
        label: torch.to_owned(),
        torch: format!("{torch}+cpu"),
        torch_commit: Some("0123456789abcdef0123456789abcdef01234567".to_owned()),
        overlay: None,
        python: python.to_owned(),
        device: Device::Cpu,
        verdict,
        reason: "it is as it is".to_owned(),
        expected: verdict,
        ok: true,
        growth: verdict.map(|_| 2_147_483_648),
        seconds: 6.25,
        run_dir: Some(PathBuf::from("/runs/1")),
        cached: false,
    }
}
