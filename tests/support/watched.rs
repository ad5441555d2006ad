//! Scripts that are run under `torchleak watch` with real torch.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

use crate::support::{Context, Finished};

/// Trains a linear layer; the second argument says what each step keeps.
pub const LOOP: &str = "\
import sys, torch
steps, leak = int(sys.argv[1]), sys.argv[2]
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
kept = []
def keep():
    hidden = torch.empty(256, 256)
    def recompute_fn():
        return hidden
    if leak == 'decorator':
        recompute_fn.wrapper = lambda: recompute_fn()
    elif leak == 'list':
        kept.append(hidden)
def step(batch):
    keep()
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
try:
    for index in range(steps):
        step(torch.ones(32, 64))
        if index % 10 == 0:
            print('step', index)
finally:
    print('over', 'torch._dynamo' in sys.modules, sys.argv[1:])
";

/// What scripts of a few lines share.
pub const SMALL: &str = "\
import gc, os, resource, signal, sys, threading, time, torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
def step():
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
";

/// The interpreter of the environment that the tests use.
pub fn python() -> &'static str {
    static PYTHON: OnceLock<String> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let added = Context::new().run(["env", "add"]);
        assert_eq!(added.code, 0, "{}", added.stderr);
        added.stdout.trim().to_owned()
    })
}

/// A folder with a script in it.
pub fn with_script(text: &str) -> Context {
    let context = Context::new();
    context.write("train.py", text);
    context
}

pub fn watch(context: &Context, options: &[&str], command: &[&str]) -> Finished {
    Finished::of(watch_command(context, options, command).output().unwrap())
}

pub fn watch_command(context: &Context, options: &[&str], command: &[&str]) -> Command {
    let mut watch = context.command();
    watch.arg("watch").args(options).args(["--output", "report.json", "--format", "json", "--"]);
    watch.arg(python()).args(command).env("OMP_NUM_THREADS", "1").env_remove("PYTHONPATH");
    watch
}

pub fn report(context: &Context) -> Value {
    serde_json::from_str(&std::fs::read_to_string(context.path().join("report.json")).unwrap()).unwrap()
}

/// The report of a script that makes so many steps, as one rank.
pub fn watched(text: &str, options: &[&str], arguments: &[&str]) -> (Value, Finished, Context) {
    let context = with_script(text);
    let finished = watch(&context, options, &[&["train.py"], arguments].concat());
    let report = report(&context);
    (report, finished, context)
}

pub fn run_folder(report: &Value) -> PathBuf {
    PathBuf::from(report["run_dir"].as_str().unwrap())
}

pub fn steps(report: &Value) -> Vec<u64> {
    report["ranks"].as_array().unwrap().iter().map(|rank| rank["steps"].as_u64().unwrap()).collect()
}

pub fn events(folder: &Path) -> String {
    let runs = std::fs::read_dir(folder.join("runs")).into_iter().flatten().flatten();
    let files =
        runs.flat_map(|run| std::fs::read_dir(run.path().join("events")).into_iter().flatten().flatten());
    files.filter_map(|file| std::fs::read_to_string(file.path()).ok()).collect()
}
