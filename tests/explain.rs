//! Ablations on real PyTorch.

mod support;

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rstest::rstest;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use support::Context;
use torchleak::case::Verdict;
use torchleak::explain::{Effect, Explanation, Law, Line, Minimal, Quantity, Row, Shown};
use torchleak::report::explain_markdown;
use torchleak::run::{CaseOutcome, LostFiles, Outcome};
use torchleak::verdict::Judgement;
use torchleak_protocol::Device;

/// Keeps one cycle with 65536 bytes a step.
const LEAKS: &str = "\
def setup(ctx):
    return ctx
def step(ctx):
    cycle = [ctx.torch.zeros(65536, dtype=ctx.torch.uint8)]
    cycle.append(cycle)
    return 1.0
";

const RETAINS: &str = "device: cpu\nretains: {tensors: [{name: payload, shape: [65536], dtype: uint8, per: step}]}\n\
                       expect: [{verdict: reproduced}]";

fn explained(context: &Context, arguments: &[&str]) -> (Value, i32) {
    let finished = context.run(["explain", "--device", "cpu", "--format", "json"].iter().chain(arguments));
    let document = serde_json::from_str(&finished.stdout)
        .unwrap_or_else(|error| panic!("no JSON ({error}):\n{}\n{}", finished.stdout, finished.stderr));
    (document, finished.code)
}

/// The effect of one value of a condition with the bytes that it retains.
fn shown(document: &Value, condition: &str, value: &str) -> (String, Option<u64>) {
    let rows = document["conditions"].as_array().unwrap();
    let row = rows.iter().find(|row| row["condition"] == condition && row["value"] == value);
    let row = row.unwrap_or_else(|| panic!("no {condition} = {value} in {document:#}"));
    (row["effect"].as_str().unwrap().to_owned(), row["retained_bytes_per_step"].as_u64())
}

/// Seconds of processor time of all processes that this one has waited for, and of theirs.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    // `cutime` and `cstime` of proc(5), in hundredths.
    fields[13..15].iter().map(|ticks| ticks.parse::<f64>().unwrap() / 100.0).sum()
}

#[test]
fn the_headline_is_explained_to_the_byte_and_its_minimal_case_leaks_when_it_is_run() {
    let context = Context::new();
    let before = processor_seconds();
    let (document, code) = explained(&context, &[]);
    let took = processor_seconds() - before;
    assert_eq!(code, 0, "{document:#}");
    assert!(
        took < 2.0 * 180.0,
        "two cores would need more than three minutes: {took:.0} s of processor time"
    );

    let necessary = ("necessary".to_owned(), Some(0));
    for (condition, value) in [
        ("collect", "generation 0"),
        ("collect", "generation 2"),
        ("disable", "none"),
        ("disable", "torch.compiler.disable"),
        ("site", "block-forward"),
        ("checkpoint", "none, site = block-forward"),
    ] {
        assert_eq!(shown(&document, condition, value), necessary, "{condition} = {value}");
    }
    let (layer, states) = (256 * 512 * 4 + 5056, 2 * 5056);
    for (condition, value, bytes) in [
        ("checkpoint", "full", states),
        ("early-stop", "off", states),
        ("preserve-rng-state", "off", 2 * layer - states),
        ("dtype", "bfloat16", layer - states / 2 + states),
        ("layers", "3", 3 * layer),
    ] {
        assert_eq!(
            shown(&document, condition, value),
            ("scales".to_owned(), Some(bytes)),
            "{condition} = {value}"
        );
    }
    for (condition, value) in [("policy", "all-mm"), ("steps", "12")] {
        assert_eq!(
            shown(&document, condition, value),
            ("none".to_owned(), Some(2 * layer)),
            "{condition} = {value}"
        );
    }
    let unknown = document["conditions"].as_array().unwrap().iter().filter(|row| row["effect"] == "unknown");
    // The compiler of inductor is not everywhere.
    assert!(
        unknown.clone().all(|row| row["value"] == "inductor"),
        "{:#}",
        Value::from_iter(unknown.cloned())
    );

    let laws: Vec<(&str, &Value, &Value, &Value)> = document["laws"]
        .as_array()
        .unwrap()
        .iter()
        .map(|law| {
            assert_eq!((&law["residual_bytes"], &law["is_linear"]), (&json!(0), &json!(true)), "{law:#}");
            assert_eq!(law["fitted_fixed_bytes"], law["predicted_fixed_bytes"], "{law:#}");
            assert!(law["points"].as_array().unwrap().len() >= 3, "{law:#}");
            let name = law["quantity"].as_str().unwrap();
            (
                name,
                &law["fitted_bytes_per_unit"],
                &law["predicted_bytes_per_unit"],
                &law["fitted_fixed_bytes"],
            )
        })
        .collect();
    let expected = [
        ("layers", layer, 0),
        ("batch*seq", 2 * 512 * 4, states),
        ("dtype size", 2 * 256 * 512, states),
        ("steps", 2 * layer, 0),
    ]
    .map(|(name, unit, fixed)| (name, json!(unit), json!(unit), json!(fixed)));
    assert_eq!(
        laws,
        expected.iter().map(|(name, one, other, fixed)| (*name, one, other, fixed)).collect::<Vec<_>>()
    );

    let run_dir = context.path().join(document["run_dir"].as_str().unwrap());
    let kept = std::fs::read_dir(&run_dir)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().path().join("verdict.json").is_file());
    assert!(kept.count() >= 20, "every variant keeps its evidence");
    let minimal = run_dir.join("minimal.yaml");
    assert_eq!(std::fs::read_to_string(&minimal).unwrap(), document["minimal"]["yaml"].as_str().unwrap());
    let (again, code) = context.run_json(&["--device", "cpu", minimal.to_str().unwrap()]);
    assert_eq!((code, &again["cases"][0]["verdict"]), (0, &json!("reproduced")), "{again:#}");
    assert_eq!(again["cases"][0]["garbage_bytes_per_step"], document["minimal"]["retained_bytes_per_step"]);
    let yaml = document["minimal"]["yaml"].as_str().unwrap();
    for needed in [
        "layers: 1",
        "batch: 1",
        "mode: selective",
        "api: torch._disable_dynamo",
        "preserve_rng_state: false",
    ] {
        assert!(yaml.contains(needed), "{yaml}");
    }
    assert!(!yaml.contains("early_stop"), "early stop is needed and is the default: {yaml}");
}

#[test]
fn of_a_program_only_collections_and_steps_are_told_and_a_person_reads_why() {
    let context = Context::new();
    let path = context.program_case("plants", LEAKS, RETAINS);
    let finished = context.run(["explain", "--device", "cpu", path.to_str().unwrap()]);
    assert_eq!(finished.code, 0, "{}\n{}", finished.stdout, finished.stderr);
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_omit_expression(true);
    for (pattern, told) in [
        (r"torch \d\S+", "torch [VERSION]"),
        (r"\(commit \w+\), Python \S+,", "(commit [COMMIT]), Python [VERSION],"),
        (r"took \d+ s, kept in \S+", "took [SECONDS] s, kept in [FOLDER]"),
    ] {
        settings.add_filter(pattern, told);
    }
    settings.bind(|| insta::assert_snapshot!("an_explanation_of_a_program", finished.stdout));
}

/// What was made up of a leak with one condition of each kind.
fn made_up() -> Explanation {
    let shown = |verdict, retained, effect| Shown {
        verdict: Some(verdict),
        reason: "the reason".to_owned(),
        retained: Some(retained),
        predicted: None,
        effect,
    };
    let row = |condition, base: &str, value: &str, shown| Row {
        condition,
        base: base.to_owned(),
        value: value.to_owned(),
        shown,
        amount: None,
    };
    let judged = Judgement { verdict: Verdict::Reproduced, reason: "the reason".to_owned(), numbers: None };
    let line = Line { per_unit: 500.0, fixed: 0.0 };
    let law = |quantity, fitted, predicted, residual| Law {
        quantity,
        fitted,
        predicted,
        residual,
        points: vec![(1, 500.0), (2, 1000.0), (3, 1500.0)],
    };
    Explanation {
        base: CaseOutcome {
            name: "made-up".to_owned(),
            device: Device::Cpu,
            steps: 6,
            warmup: 2,
            prediction: None,
            expected: None,
            arms: Vec::new(),
            diagnosis: None,
            retained: None,
            outcome: Outcome::Judged(judged),
            seconds: 0.0,
            native: None,
            ranks: Vec::new(),
            folder: None,
            lost: LostFiles::default(),
        },
        own: Some(shown(Verdict::Reproduced, 1000, Effect::None)),
        has_model: true,
        rows: vec![
            row("disable", "a", "none", shown(Verdict::Fixed, 0, Effect::Necessary)),
            row("disable", "a", "c", shown(Verdict::OneOff, 0, Effect::Necessary)),
            row("early-stop", "on", "off", shown(Verdict::Reproduced, 10, Effect::Scales)),
            row("policy", "one", "two", shown(Verdict::Reproduced, 1000, Effect::None)),
            row("compile", "none", "inductor", Shown::not_run("no compiler\nwas found")),
        ],
        laws: vec![
            law(Quantity::Layers, line, Some(line), 0.0),
            law(Quantity::Tokens, Line { fixed: 100.0, ..line }, None, 3.0),
            law(Quantity::DtypeBytes, line, Some(line), 700.0),
            law(Quantity::Steps, line, Some(Line { per_unit: 250.0, fixed: 8.0 }), 0.0),
        ],
        minimal: Some(Minimal {
            path: "smaller.yaml".into(),
            yaml: "name: smaller\n".to_owned(),
            verdict: Some(Verdict::Reproduced),
            reason: "the reason".to_owned(),
            retained: Some(500),
            leaks: true,
        }),
        folder: "runs/made-up".into(),
        interrupted: false,
        took: Duration::from_secs(60),
    }
}

#[test]
fn an_explanation_is_markdown_for_an_issue() {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_omit_expression(true);
    let text = explain_markdown(&made_up(), "2.13.0");
    settings.bind(|| insta::assert_snapshot!("an_explanation_as_markdown", text));
}

#[test]
fn a_case_that_does_not_leak_here_is_said_so_with_exit_code_4() {
    let context = Context::new();
    let path = context.program_case(
        "flat",
        "def setup(ctx):\n    pass\ndef step(state):\n    return 1.0\n",
        "device: cpu",
    );
    let (document, code) = explained(&context, &[path.to_str().unwrap()]);
    assert_eq!(code, 4, "{document:#}");
    assert_eq!((&document["verdict"], &document["minimal"]), (&json!("fixed"), &Value::Null));
    assert_eq!(document["conditions"], json!([]));
    let sentence = document["sentence"].as_str().unwrap();
    assert!(sentence.contains("flat is fixed, so there is no leak to explain"), "{sentence}");
}

#[rstest]
#[case::name(&["explain", "--output-case", "Not A Name.yaml"], "Not A Name")]
#[case::folder(&["explain", "--output-case", "."], "cannot name a case")]
#[case::no_case(&["explain", "no-such-case"], "no-such-case")]
#[case::two_cases(&["explain", "sac-stock", "no-ac-disable"], "no-ac-disable")]
#[case::program(&["explain", "disable-closure-private", "--output-case", "small.yaml"], "has a program of its own")]
fn bad_usage_has_exit_code_2_before_anything_is_run(#[case] arguments: &[&str], #[case] culprit: &str) {
    let context = Context::new();
    let finished = context.run(arguments);
    assert_eq!(finished.code, 2, "{}", finished.stderr);
    assert!(finished.stderr.contains(culprit), "{}", finished.stderr);
    assert!(!Path::new(&context.path().join("runs")).exists());
}

#[test]
fn a_minimal_case_that_cannot_be_written_is_refused_before_anything_runs() {
    let context = Context::new();
    let finished = context.run(["explain", "--output-case", "/dev/null/small.yaml"]);
    assert_eq!(finished.code, 4, "{}", finished.stderr);
    assert!(finished.stderr.contains("cannot be written to /dev/null/small.yaml"), "{}", finished.stderr);
    assert!(!context.path().join("runs").exists());
}

#[test]
fn ctrl_c_prints_what_was_measured_until_then() {
    let context = Context::new();
    // The first steps are quick, so that the case itself is soon known, and those of more steps take long.
    let slow = LEAKS.replace(
        "def step(ctx):\n",
        "def step(ctx):\n    import time; time.sleep(120 if ctx.steps > 6 else 0)\n",
    );
    let path = context.program_case("plants", &slow, RETAINS);
    let mut command = context.command();
    command.args(["explain", "--device", "cpu", "--format", "json"]).arg(path);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let limit = Instant::now() + Duration::from_secs(300);
    while !std::fs::read_dir(context.path().join("runs"))
        .is_ok_and(|mut runs| runs.any(|run| has_begun(&run.unwrap().path())))
    {
        assert!(Instant::now() < limit, "the variant does not begin");
        std::thread::sleep(Duration::from_millis(50));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["interrupted"], true);
    assert_eq!(shown(&document, "collect", "generation 1"), ("necessary".to_owned(), Some(0)));
    assert_eq!(shown(&document, "steps", "10"), ("unknown".to_owned(), None));
}

/// Whether the arms of the variant with more steps run.
fn has_begun(explanation: &Path) -> bool {
    std::fs::read_dir(explanation).unwrap().any(|run| {
        let run = run.unwrap().path();
        let events = std::fs::read_to_string(run.join("events.jsonl")).unwrap_or_default();
        run.to_string_lossy().ends_with("steps-10") && events.contains("began")
    })
}
