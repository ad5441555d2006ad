//! Every shipped case, run for real, comes out as it says.
//!
//! `TORCHLEAK_TORCH`, `TORCHLEAK_PYTHON` and `TORCHLEAK_DEVICE` choose the environment; by default it
//! is torch 2.13.0, made once in torchleak's cache.

mod support;

use std::path::PathBuf;
use std::sync::OnceLock;

use rstest::rstest;
use serde_json::Value;
use support::{Context, case, runs_among_all, skipped};

/// All cases run in one process, because the import of torch takes longer than their steps.
fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(|| Context::new().run_json(&["--all", "--slow"]).0)
}

#[rstest]
fn each_case_has_its_verdict_and_its_exact_bytes(#[files("cases/*.yaml")] path: PathBuf) {
    let Some(name) = runs_among_all(&path, true) else { return };
    let name = name.as_str();
    let case = case(document(), name);
    if case["skipped"] == true {
        skipped(name, case["reason"].as_str().unwrap());
        return;
    }
    assert_eq!(case["ok"], true, "{case:#}");
    assert_eq!(case["verdict"], case["expected"], "{case:#}");
    if case["verdict"] == "reproduced" {
        let in_garbage = &case["predicted_garbage_bytes_per_step"];
        assert!(in_garbage.is_null() || *in_garbage == case["garbage_bytes_per_step"], "{case:#}");
    }
    let leaks = case["verdict"] == "reproduced" || case["verdict"] == "uncollectable";
    if leaks && let Some(predicted) = case["predicted_bytes_per_step"].as_u64() {
        let growth = case["growth_bytes_per_step"].as_i64().unwrap() as f64;
        let objects = case["garbage_objects_per_step"].as_u64().unwrap() as f64;
        // Python's own objects take up to 512 bytes each besides the tensors.
        let most = predicted as f64 * 1.03 + 512.0 * objects;
        assert!(
            (predicted as f64 * 0.97..=most).contains(&growth),
            "{name}: {growth} is not near {predicted}"
        );
    }
}

#[test]
fn the_document_has_the_schema_that_programs_read() {
    let document = document();
    assert_eq!(document["schema"], 1);
    for key in ["torch", "python", "device"] {
        assert!(document["environment"][key].is_string(), "{key}");
    }
    let headline = case(document, "sac-disable-recompute");
    for arm in ["uncollected", "collected"] {
        let steps = headline["arms"][arm]["steps"].as_array().unwrap();
        assert_eq!(steps.len(), 6);
        for (index, step) in steps.iter().enumerate() {
            assert_eq!(step["step"], index + 1);
            assert!(step["loss"].is_f64() && step["in_use"].is_u64() && step["seconds"].is_f64(), "{step:#}");
        }
    }
    let facts = &headline["arms"]["uncollected"]["facts"];
    assert_eq!(facts["gc_enabled"], false);
    assert!(facts["frozen_objects"].as_u64().unwrap() > 10_000, "the imports are not frozen: {facts:#}");
}

#[test]
fn arms_have_equal_losses_and_one_thread() {
    let headline = case(document(), "sac-disable-recompute");
    let losses = |arm: &str| -> Vec<&Value> {
        headline["arms"][arm]["steps"].as_array().unwrap().iter().map(|step| &step["loss"]).collect()
    };
    assert_eq!(losses("uncollected"), losses("collected"));
    assert_eq!(losses("uncollected"), losses("garbage"));
    assert_eq!(headline["arms"]["uncollected"]["facts"]["threads"], 1);
}

#[test]
fn the_live_census_grows_by_the_predicted_bytes_without_collection_only() {
    let headline = case(document(), "sac-disable-recompute");
    let device = if document()["environment"]["device"] == "cuda" { "cuda:0" } else { "cpu" };
    let census = |arm: &str, step: usize| {
        headline["arms"][arm]["steps"][step]["census"][device]["bytes"].as_u64().unwrap()
    };
    let predicted = headline["predicted_bytes_per_step"].as_u64().unwrap();
    assert_eq!(census("uncollected", 5) - census("uncollected", 3), 2 * predicted);
    assert_eq!(census("collected", 5), census("collected", 3));
}
