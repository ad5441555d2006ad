//! The Python tests of the worker, in an environment of torchleak's own that has what they need
//! besides torch: an independent llama layer to compare with, and pytest.

mod support;

use std::io::Write;
use std::path::Path;

use support::{Context, python_with_transformers};

#[test]
fn the_workers_own_tests_pass() {
    let Some(python) = python_with_transformers("the_workers_own_tests_pass") else { return };
    let context = Context::new();
    let worker = Path::new(env!("CARGO_MANIFEST_DIR")).join("harness/worker");
    let bundle = torchleak::worker::unpack(context.path()).unwrap();
    let output = std::process::Command::new(python)
        .args(["-m", "pytest", "--quiet", "-p", "no:cacheprovider"])
        .current_dir(worker)
        // The probe is in the bundle; the package beside it is hidden by the one under test.
        .env("PYTHONPATH", bundle)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("OMP_NUM_THREADS", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    // How many tests ran is worth a line; the harness hides what a passing test prints.
    let _ = writeln!(std::io::stderr(), "pytest: {}", said.lines().last().unwrap_or_default());
}
