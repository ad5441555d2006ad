//! The files in `ci/`: what a workflow, an array job and `git bisect run` would execute is executed, on real PyTorch.

#[path = "support/lab.rs"]
mod lab;
mod support;
#[path = "support/torch_wheels.rs"]
mod torch_wheels;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use lab::{FLAT, LEAKS, Lab, document, told};
use serde::Deserialize;
use support::Finished;
use torchleak::versions::Selection;

/// The steps of a workflow's job or of a composite action.
#[derive(Deserialize)]
struct Steps {
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    #[serde(default)]
    name: String,
    run: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Workflow {
    jobs: BTreeMap<String, Steps>,
}

#[derive(Deserialize)]
struct Action {
    inputs: BTreeMap<String, Input>,
    runs: Steps,
}

#[derive(Deserialize)]
struct Input {
    default: String,
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read<T: for<'de> Deserialize<'de>>(file: &str) -> T {
    serde_yaml::from_str(&fs::read_to_string(repository().join(file)).unwrap()).unwrap()
}

/// Executes commands of steps as a runner of GitHub does.
struct Runner<'a> {
    lab: &'a Lab,
    /// What stands for `${{ ... }}`.
    values: BTreeMap<String, String>,
}

impl<'a> Runner<'a> {
    fn new(lab: &'a Lab) -> Self {
        Self { lab, values: BTreeMap::new() }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.lab.path().join(name)
    }

    fn expanded(&self, text: &str) -> String {
        let mut expanded = text.to_owned();
        while let Some((before, rest)) = expanded.split_once("${{") {
            let (expression, after) = rest.split_once("}}").unwrap();
            let value =
                self.values.get(expression.trim()).unwrap_or_else(|| panic!("no value for {expression}"));
            expanded = format!("{before}{value}{after}");
        }
        expanded
    }

    fn step(&self, step: &Step, path: Option<&Path>) -> Finished {
        let script = step.run.as_ref().unwrap();
        // Text from outside in a script would be executed.
        assert!(!script.contains("${{"), "{script}");
        let mut command = Command::new("bash");
        command.args(["--noprofile", "--norc", "-eo", "pipefail", "-c", script]).current_dir(self.lab.path());
        command.envs(step.env.iter().map(|(name, value)| (name, self.expanded(value))));
        command.env("GITHUB_ACTIONS", "true").env("GITHUB_WORKSPACE", self.lab.path());
        command.env("GITHUB_STEP_SUMMARY", self.file("summary.md")).env("GITHUB_OUTPUT", self.file("output"));
        command
            .env("GITHUB_ACTION_PATH", repository().join("ci/github"))
            .env("RUNNER_TEMP", self.file("temp"));
        if let Some(path) = path {
            let all = std::env::join_paths(
                [path.to_owned()]
                    .into_iter()
                    .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
            );
            command.env("PATH", all.unwrap());
        }
        Finished::of(command.output().unwrap())
    }

    /// The outputs that steps set.
    fn outputs(&self) -> BTreeMap<String, String> {
        let text = fs::read_to_string(self.file("output")).unwrap();
        text.lines()
            .filter_map(|line| line.split_once('='))
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    }
}

/// The values of an action's inputs where none are given.
fn defaults(action: &Action) -> impl Iterator<Item = (String, String)> {
    action.inputs.iter().map(|(name, input)| (format!("inputs.{name}"), input.default.clone()))
}

fn program(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    // What an artifact is downloaded to has no permission to be executed.
    fs::copy(env!("CARGO_BIN_EXE_torchleak"), folder.join("torchleak")).unwrap();
    fs::set_permissions(folder.join("torchleak"), fs::Permissions::from_mode(0o644)).unwrap();
}

#[test]
fn the_action_runs_cases_and_leaves_what_a_repository_wants_of_them() {
    let lab = Lab::with_nightlies(&["01"], &[]);
    lab.case("flat", FLAT);
    lab.case("leaks", LEAKS);
    program(&lab.path().join("program"));
    let action: Action = read("ci/github/action.yml");
    let mut runner = Runner::new(&lab);
    runner.values.extend(defaults(&action));
    let python = format!("3.{}", torch_wheels::REAL.python_minor);
    let given = [
        ("cases", "flat.yaml leaks.yaml"),
        ("torch", "nightly"),
        ("python", &python),
        ("device", "cpu"),
        ("options", "--index index --cache-dir cache"),
        ("torchleak", "program"),
    ];
    runner.values.extend(given.map(|(name, value)| (format!("inputs.{name}"), value.to_owned())));
    let [find, run] = action.runs.steps.iter().filter(|step| step.run.is_some()).collect::<Vec<_>>()[..]
    else {
        panic!("the action has other commands than this test knows");
    };
    let found = runner.step(find, None);
    assert_eq!(found.code, 0, "{}", found.stderr);
    assert_eq!(runner.outputs()["versions"].len(), 16);
    runner.values.insert("steps.program.outputs.path".to_owned(), runner.outputs()["path"].clone());
    let ran = runner.step(run, None);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let results = lab.path().join("torchleak-results");
    let document: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(results.join("matrix.json")).unwrap()).unwrap();
    assert_eq!(told(&document), ["flat fixed", "leaks reproduced"]);
    assert!(fs::read_to_string(results.join("junit.xml")).unwrap().contains("failures=\"1\""));
    assert!(fs::read_to_string(lab.path().join("summary.md")).unwrap().contains("1 of 2 as expected"));
    assert_eq!(fs::read_dir(results.join("runs")).unwrap().count(), 2);
    assert!(ran.stderr.contains("\n::error file=leaks.yaml,title=leaks on torch "), "{}", ran.stderr);
}

#[test]
fn the_action_builds_torchleak_where_no_program_is_given() {
    let lab = Lab::new();
    // A build takes minutes; what is tested is that cargo is called for this package and its program is found.
    let cargo = "#!/usr/bin/env bash\nset -eu\n[ \"$*\" = \"build --release --locked --manifest-path $5 --target-dir $7\" ]\n\
                 grep -q '^name = \"torchleak\"' \"$5\"\nmkdir -p \"$7/release\"\ncp \"$PROGRAM\" \"$7/release/torchleak\"\n";
    let tools = lab.path().join("tools");
    fs::create_dir(&tools).unwrap();
    fs::write(tools.join("cargo"), cargo.replace("$PROGRAM", env!("CARGO_BIN_EXE_torchleak"))).unwrap();
    fs::set_permissions(tools.join("cargo"), fs::Permissions::from_mode(0o755)).unwrap();
    let action: Action = read("ci/github/action.yml");
    let mut runner = Runner::new(&lab);
    runner.values.extend(defaults(&action));
    let found = runner.step(&action.runs.steps[0], Some(&tools));
    assert_eq!(found.code, 0, "{}", found.stderr);
    let version = Command::new(&runner.outputs()["path"]).arg("--version").output().unwrap();
    assert!(String::from_utf8(version.stdout).unwrap().starts_with("torchleak "));
}

#[test]
fn the_workflow_chooses_versions_that_torchleak_takes_and_joins_what_its_jobs_left() {
    let lab = Lab::with_nightlies(&["01", "02"], &["02"]);
    lab.case("flat", FLAT);
    program(&lab.path().join("program"));
    let workflow: Workflow = read("ci/github/gpu-leaks.yml");
    let commands =
        |job: &str| workflow.jobs[job].steps.iter().filter(|step| step.run.is_some()).collect::<Vec<_>>();
    let names = |job: &str| commands(job).iter().map(|step| step.name.clone()).collect::<Vec<_>>();
    assert_eq!(
        [names("build"), names("leaks"), names("report")].concat(),
        ["Build", "Choose the versions", "Join"]
    );
    assert_eq!(commands("build")[0].run.as_deref(), Some("cargo build --release --locked"));

    let mut runner = Runner::new(&lab);
    for (given, starts) in [("2.8.0", "2.8.0"), ("latest", "latest"), ("nightly", "nightly:20")] {
        runner.values.insert("matrix.torch".to_owned(), given.to_owned());
        let chosen = runner.step(commands("leaks")[0], None);
        assert_eq!(chosen.code, 0, "{}", chosen.stderr);
        let chosen = runner.outputs()["torch"].clone();
        assert!(chosen.starts_with(starts) && chosen.parse::<Selection>().is_ok(), "{chosen}");
    }

    // What two jobs of the workflow leave in their artifacts.
    for (job, torch) in [("leaks-one", "nightly:2026-01-01"), ("leaks-two", "nightly:2026-01-02")] {
        let folder = lab.path().join("leaks").join(job);
        fs::create_dir_all(&folder).unwrap();
        let runs = format!("leaks/{job}/runs");
        let finished = lab.matrix(&["sac-stock"], torch, &["--runs", &runs, "--format", "json"]);
        fs::write(folder.join("matrix.json"), &finished.stdout).unwrap();
    }
    let joined = runner.step(commands("report")[0], None);
    assert_eq!(joined.code, 1, "{}", joined.stderr);
    let summary = fs::read_to_string(lab.path().join("summary.md")).unwrap();
    assert!(
        summary.contains("1 of 2 as expected") && summary.contains("introduced (reproduced) between"),
        "{summary}"
    );
    assert!(lab.path().join("junit.xml").is_file());
}

#[test]
fn the_tasks_of_an_array_job_run_all_cells_between_them() {
    let lab = Lab::with_nightlies(&["01"], &[]);
    let cases =
        ["flat", "leaks", "other"].map(|name| lab.case(name, if name == "leaks" { LEAKS } else { FLAT }));
    let job = |task: Option<&str>| {
        let mut command = Command::new(repository().join("ci/slurm/matrix.sbatch"));
        command.args(&cases).args(["--index", "index", "--cache-dir", "cache"]);
        command.args(["--python", &format!("3.{}", torch_wheels::REAL.python_minor)]);
        command
            .env("TORCHLEAK", env!("CARGO_BIN_EXE_torchleak"))
            .env("TORCH", "nightly")
            .env("DEVICE", "cpu");
        if let Some(task) = task {
            command.env("SLURM_ARRAY_TASK_ID", task).env("SLURM_ARRAY_TASK_COUNT", "2");
        }
        Finished::of(command.current_dir(lab.path()).output().unwrap())
    };
    for (task, code) in [("1", 0), ("2", 1)] {
        let finished = job(Some(task));
        assert_eq!(finished.code, code, "{task}: {}", finished.stderr);
    }
    let mut merge = Command::new(env!("CARGO_BIN_EXE_torchleak"));
    let merged = merge.args(["merge", "leaks", "--format", "json"]).current_dir(lab.path()).output().unwrap();
    let merged = Finished::of(merged);
    assert_eq!(merged.code, 1, "{}", merged.stderr);
    assert_eq!(told(&document(&merged)), ["flat fixed", "leaks reproduced", "other fixed"]);

    let beyond = job(Some("3"));
    assert_eq!(beyond.code, 2, "{}", beyond.stderr);
    assert!(!lab.path().join("leaks/part-3.json").exists());
    let alone = job(None);
    assert_eq!(alone.code, 2);
    assert!(alone.stdout.contains("sbatch --array"), "{}", alone.stdout);
}
