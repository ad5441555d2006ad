//! Builds the probe and leaves it where `src/worker/bundle.rs` embeds it.
//!
//! The probe is a `cdylib` for another program, the Python interpreter. Cargo cannot depend on such
//! an artifact on stable, so this script runs cargo once more, in a target folder of its own because
//! the outer cargo holds the lock of the other.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    for path in
        ["harness/probe", "harness/memory", "harness/protocol", "harness/worker", "cases", "Cargo.lock"]
    {
        println!("cargo:rerun-if-changed={path}");
    }
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(variable("OUT_DIR"));
    let target = variable("TARGET");
    let folder = shared_target_folder(&out);

    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .arg("build")
        .args(["--profile", "probe", "--package", "torchleak-probe", "--target", &target])
        .arg("--manifest-path")
        .arg(root.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&folder)
        .env("PYO3_NO_PYTHON", "1");
    // What the outer cargo was told about its own targets (clippy's wrapper, coverage flags, a linker
    // for tests) is not meant for an extension that another program loads.
    for name in ["RUSTC_WORKSPACE_WRAPPER", "CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS", "CARGO_TARGET_DIR"] {
        cargo.env_remove(name);
    }
    let status = cargo.status().unwrap_or_else(|error| panic!("cannot start cargo for the probe: {error}"));
    assert!(status.success(), "the probe (harness/probe) does not build: cargo ended with {status}");

    let library = if target.contains("apple") { "libtorchleak_probe.dylib" } else { "libtorchleak_probe.so" };
    let built = folder.join(&target).join("probe").join(library);
    let embedded = out.join("torchleak_probe.so");
    std::fs::copy(&built, &embedded)
        .unwrap_or_else(|error| panic!("cannot copy {} to {}: {error}", built.display(), embedded.display()));
}

/// One folder for every profile of the outer build, so that the probe is built once.
fn shared_target_folder(out: &Path) -> PathBuf {
    // OUT_DIR is <target>/<profile>/build/<package>/out.
    out.ancestors().nth(4).unwrap_or(out).join("probe-build")
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo did not set {name}"))
}
