//! The script that a GPU machine runs, rehearsed on the CPU.

mod support;

use std::path::Path;
use std::process::Command;

use support::{Context, Finished};

#[test]
fn the_gpu_script_runs_every_check_and_keeps_the_results() {
    let context = Context::new();
    let python =
        std::env::var("TORCHLEAK_PYTHON").ok().filter(|path| !path.is_empty()).unwrap_or_else(|| {
            let added = context.run(["env", "add"]);
            assert_eq!(added.code, 0, "{}", added.stderr);
            added.stdout.trim().to_owned()
        });
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("ci/gpu-check.sh");
    let output = Command::new(script)
        .args([env!("CARGO_BIN_EXE_torchleak"), &python, "results"])
        .env("DEVICE", "cpu")
        .env("FULL_CASE", "sac-disable-recompute")
        .current_dir(context.path())
        .output()
        .unwrap();
    let finished = Finished::of(output);
    assert_eq!(finished.code, 0, "{}\n{}", finished.stdout, finished.stderr);
    let ended = |code: &str| finished.stderr.matches(&format!(": exit code {code}")).count();
    assert_eq!(ended("0 after"), ended(""), "{}", finished.stderr);
    // One more is made where the native control lies beside the binary and the torch is that of the control.
    assert!(ended("") >= 7, "{}", finished.stderr);
    let results = context.path().join("results");
    let document = std::fs::read_to_string(results.join("all.json")).unwrap();
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    assert!(document["cases"].as_array().unwrap().iter().all(|case| case["ok"] == true), "{document:#}");
    assert!(results.join("bundle/issue.md").is_file());
    assert!(std::fs::read_to_string(results.join("titan.log")).unwrap().contains("step:  6  loss: "));
}

#[test]
fn the_gpu_script_says_how_it_is_called() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("ci/gpu-check.sh");
    let finished = Finished::of(Command::new(script).output().unwrap());
    assert_eq!(finished.code, 2);
    assert!(finished.stdout.contains("ci/gpu-check.sh PATH/TO/torchleak"), "{}", finished.stdout);
}
