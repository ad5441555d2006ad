//! `torchleak run --control`: the native control as an arm, and every way in which there is none.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rstest::rstest;
use serde_json::Value;
use support::{Context, Finished, case, skipped};

/// Not that of the variables: there is a native control for this torch alone.
const TORCH: [&str; 2] = ["--torch", "2.13.0"];
const PROGRAM: &str = "torchleak-control";
/// Float32 rounding.
const ROUNDING: f64 = 1e-5;

/// A small case with all that the headline case lacks: a vocabulary, grouped queries, one shared block, AdamW, no
/// checkpointing.
const EVERY_FEATURE: &str = "\
name: every-feature
summary: A case of the tests.
model: {block: llama3, layers: 2, dim: 64, heads: 4, kv_heads: 2, head_dim: 32, ffn_dim: 96, vocab: 101, share_weights: true}
input: {batch: 2, seq: 32}
optimizer: adamw
seed: 7
expect: [{verdict: fixed}]
";

/// Whether the native control is built. `cargo test` alone does not build it, because it needs libtorch and minutes.
fn is_built(what: &str) -> bool {
    let beside = Path::new(env!("CARGO_BIN_EXE_torchleak")).with_file_name(PROGRAM);
    if !beside.is_file() {
        skipped(what, "the native control is not built: ci/control.sh builds and tests it");
    }
    beside.is_file()
}

fn steps<'a>(case: &'a Value, arm: &str) -> &'a Vec<Value> {
    case["arms"][arm]["steps"].as_array().unwrap_or_else(|| panic!("no steps of {arm} in {case:#}"))
}

#[test]
fn libtorch_alone_stays_flat_at_the_floor_and_gives_the_losses_of_python() {
    if !is_built("libtorch alone against the headline case") {
        return;
    }
    let context = Context::new();
    let (document, code) = context.run_json(&["sac-disable-recompute", "--control", TORCH[0], TORCH[1]]);
    let case = case(&document, "sac-disable-recompute");
    let native = &case["native"];
    assert_eq!((code, &native["agrees"]), (0, &Value::Bool(true)), "{native:#}");
    let reason = native["reason"].as_str().unwrap();
    let sentence = "libtorch alone stays flat and gives the same losses; the growth is in Python";
    assert!(reason.starts_with(sentence), "{reason}");
    assert!(native["growth_bytes_per_step"].as_f64().unwrap().abs() < 4096.0, "{native:#}");
    assert!(native["loss_difference"].as_f64().unwrap() <= ROUNDING, "{native:#}");
    for (alone, python) in steps(case, "native").iter().zip(steps(case, "collected")) {
        let floor = alone["in_use"].as_u64().unwrap();
        assert!(floor < python["collected"]["memory"]["in_use"].as_u64().unwrap(), "{alone:#}");
        let (loss, norm) = (alone["loss"].as_f64().unwrap(), alone["grad_norm"].as_f64().unwrap());
        assert!((loss / python["loss"].as_f64().unwrap() - 1.0).abs() <= ROUNDING, "{alone:#}");
        assert!((norm / python["grad_norm"].as_f64().unwrap() - 1.0).abs() <= ROUNDING, "{alone:#}");
    }
    let folder = Path::new(case["run_dir"].as_str().unwrap());
    let events = std::fs::read_to_string(context.path().join(folder).join("events.jsonl")).unwrap();
    let arms = events.lines().filter(|line| line.contains("\"arm\":\"native\"")).count();
    assert_eq!(arms, 1 + steps(case, "native").len() + 1, "a beginning, the steps, an end");
    let made = context.run(["report", folder.to_str().unwrap(), "--output", "bundle"]);
    assert_eq!(made.code, 0, "{}{}", made.stdout, made.stderr);
    let issue = std::fs::read_to_string(context.path().join("bundle/issue.md")).unwrap();
    assert!(issue.contains(&format!("Native control: {sentence}")), "{issue}");
    assert!(issue.contains("| step | loss | uncollected | collected | native |"), "{issue}");
}

#[rstest]
#[case("float32")]
#[case("bfloat16")]
#[case("float64")]
fn libtorch_alone_trains_every_feature_of_the_model_alike(#[case] dtype: &str) {
    if !is_built("libtorch alone against every feature of the model") {
        return;
    }
    let context = Context::new();
    context.write("every-feature.yaml", &format!("{EVERY_FEATURE}dtype: {dtype}\n"));
    let (document, code) =
        context.run_json(&["./every-feature.yaml", "--control", "--device", "cpu", TORCH[0], TORCH[1]]);
    let case = case(&document, "every-feature");
    assert_eq!((code, &case["native"]["agrees"]), (0, &Value::Bool(true)), "{:#}", case["native"]);
}

#[test]
fn a_case_with_a_program_of_its_own_says_that_it_has_no_native_control() {
    let context = Context::new();
    context.program_case("own", "def setup(ctx):\n    pass\n\ndef step(state):\n    return 1.0\n", "");
    let finished = context.run(["run", "./own.yaml", "--control", "--device", "cpu"]);
    assert_eq!(finished.code, 4, "{}{}", finished.stdout, finished.stderr);
    let told = "native control: not run: the case has a program of its own, which needs Python";
    assert!(finished.stdout.contains(told), "{}", finished.stdout);
    assert!(finished.stdout.contains("fixed (as expected)"), "{}", finished.stdout);
}

#[test]
fn a_case_of_several_ranks_has_no_native_control() {
    let context = Context::new();
    context.write("every-feature.yaml", &format!("{EVERY_FEATURE}ranks: 2\nparallel: ddp\n"));
    let finished =
        context.run(["run", "./every-feature.yaml", "--control", "--device", "cpu", TORCH[0], TORCH[1]]);
    let told = "native control: not run: the case trains several ranks";
    assert!(finished.stdout.contains(told), "{}{}", finished.stdout, finished.stderr);
}

#[rstest]
#[case::crashes("kill -SEGV $$", "the native arm was killed by signal 11")]
#[case::ends_early("echo no libtorch here; exit 7", "the native arm exited with code 7 before its last step")]
#[case::speaks_another_protocol("echo hello >/dev/fd/$1; exec sleep 60", "no message of the protocol")]
fn a_control_that_fails_says_so_and_leaves_the_verdict_of_the_case_alone(
    #[case] script: &str,
    #[case] told: &str,
) {
    let context = Context::new();
    let torchleak = context.path().join("torchleak");
    std::fs::copy(env!("CARGO_BIN_EXE_torchleak"), &torchleak).unwrap();
    let control = context.write(PROGRAM, &format!("#!/bin/sh\n{script}\n"));
    std::fs::set_permissions(control, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(&torchleak);
    command.args(["run", "sac-disable-recompute", "--control", "--device", "cpu"]).args(TORCH);
    command.current_dir(context.path()).stdin(Stdio::null()).env("NO_COLOR", "1");
    let finished = Finished::of(command.output().unwrap());
    assert_eq!(finished.code, 4, "{}{}", finished.stdout, finished.stderr);
    assert!(finished.stdout.contains("reproduced (as expected)"), "{}", finished.stdout);
    assert!(finished.stdout.contains("native control: the native arm"), "{}", finished.stdout);
    assert!(finished.stdout.contains(told), "{}", finished.stdout);
}
