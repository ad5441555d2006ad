//! What the integration tests share: one context that owns a test's temporary folder, writes cases
//! into it and runs the real binary there.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// One test's folder.
pub struct Context {
    folder: tempfile::TempDir,
}

/// What a finished torchleak said.
pub struct Finished {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Context {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a case with a program of its own; gives the path of the YAML.
    pub fn program_case(&self, name: &str, program: &str, keys: &str) -> PathBuf {
        self.write(&format!("{name}.py"), program);
        let yaml =
            format!("name: {name}\nsummary: A case of the tests.\nprogram: {name}.py\nsteps: 5\n{keys}\n");
        let yaml =
            if keys.contains("expect:") { yaml } else { format!("{yaml}expect: [{{verdict: fixed}}]\n") };
        self.write(&format!("{name}.yaml"), &yaml)
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The binary, standing in the test's folder. Which environment it uses is for the variables
    /// `TORCHLEAK_TORCH`, `TORCHLEAK_PYTHON` and `TORCHLEAK_DEVICE` to say.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_torchleak"));
        command.current_dir(self.path()).stdin(Stdio::null()).env("NO_COLOR", "1");
        command
    }

    pub fn run<S: AsRef<std::ffi::OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Finished {
        Finished::of(self.command().args(arguments).output().unwrap())
    }

    /// Runs cases and gives the JSON document with the exit code.
    pub fn run_json(&self, arguments: &[&str]) -> (Value, i32) {
        let finished = self.run(["run", "--format", "json"].iter().chain(arguments));
        let document = serde_json::from_str(&finished.stdout).unwrap_or_else(|error| {
            panic!("no JSON on stdout ({error}):\n{}\n{}", finished.stdout, finished.stderr)
        });
        (document, finished.code)
    }
}

impl Finished {
    pub fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// The case of that name in a document.
pub fn case<'a>(document: &'a Value, name: &str) -> &'a Value {
    let cases = document["cases"].as_array().unwrap();
    cases.iter().find(|case| case["name"] == name).unwrap_or_else(|| panic!("no case {name} in {document:#}"))
}

/// Says on the terminal that something is not tested here. The test harness hides what `eprintln!`
/// prints in a test that passes, and a skip must be seen.
pub fn skipped(what: &str, reason: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {what}: {reason}");
}

/// The interpreter of an environment that has transformers and pytest beside torch. With TORCHLEAK_PYTHON there is none:
/// that environment is used as it is, and may lack them.
pub fn python_with_transformers(what: &str) -> Option<String> {
    if std::env::var_os("TORCHLEAK_PYTHON").is_some_and(|python| !python.is_empty()) {
        skipped(what, "TORCHLEAK_PYTHON names an environment that may lack transformers and pytest");
        return None;
    }
    let with = ["env", "add", "--with", "transformers==5.24.0", "--with", "pytest==9.2.0"];
    let added = Context::new().run(with);
    assert_eq!(added.code, 0, "{}", added.stderr);
    Some(added.stdout.trim().to_owned())
}

/// The name of a shipped case, by its file, if `run --all` runs it, with `--slow` or without. One that it
/// does not run is skipped visibly.
pub fn runs_among_all(file: &Path, slow: bool) -> Option<String> {
    let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
    let text = std::fs::read_to_string(file).unwrap();
    let reason = match text.lines().find_map(|line| line.strip_prefix("when: ")) {
        Some("named") => {
            "it runs only when named; `torchleak run` with its name takes minutes and its `memory`"
        }
        Some("slow") if !slow => "it runs with `--slow`, and this test is about what runs without",
        _ => return Some(name),
    };
    skipped(&name, reason);
    None
}

/// Whether a shipped case trains torchleak's own model.
pub fn has_own_model(file: &Path) -> bool {
    std::fs::read_to_string(file).unwrap().lines().any(|line| line.starts_with("model: "))
}

/// Waits until something holds that a process brings about.
pub fn wait_until(what: &str, seconds: u64, mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(seconds);
    while !holds() {
        assert!(Instant::now() < limit, "{what} did not come true within {seconds} s");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A zombie that its parent has not reaped yet runs no more.
pub fn is_running(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}
