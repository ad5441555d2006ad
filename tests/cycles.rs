//! What the diagnosis says of every shipped case that trains torchleak's own model: torchleak's own blame, and what torch's
//! `torch.utils.viz._cycles` logs and draws, normalised.
//!
//! A snapshot is shared by all versions of torch between which it does not differ; its name ends with
//! the first of them.

mod support;

use std::path::PathBuf;
use std::sync::OnceLock;

use rstest::rstest;
use serde_json::Value;
use support::{Context, case, has_own_model, runs_among_all, skipped};
use torchleak::cycles::{blame_text, diagnose, graph_text, warning_lines};
use torchleak::measure::Recording;
use torchleak_protocol::ArmEvent;

struct Ran {
    context: Context,
    document: Value,
}

fn ran() -> &'static Ran {
    static RAN: OnceLock<Ran> = OnceLock::new();
    RAN.get_or_init(|| {
        let context = Context::new();
        let document = context.run_json(&["--all", "--device", "cpu"]).0;
        Ran { context, document }
    })
}

/// The diagnosis run of a case, read back from its run folder.
fn diagnosis_run(ran: &Ran, name: &str) -> Recording {
    let folder = ran.context.path().join(case(&ran.document, name)["run_dir"].as_str().unwrap());
    recording(&folder)
}

fn recording(folder: &std::path::Path) -> Recording {
    let events = std::fs::read_to_string(folder.join("events.jsonl")).unwrap();
    let mut recording = Recording::default();
    for line in events.lines() {
        let value: Value = serde_json::from_str(line).unwrap();
        if value["arm"] == "garbage" {
            recording.push(&serde_json::from_value::<ArmEvent>(value).unwrap());
        }
    }
    recording
}

/// The first version of the range that shares a snapshot of a case with the installed torch.
///
/// Since 2.8 torch's pytrees leave garbage without tensors, and the wrapper that Dynamo makes has a name
/// of its own; 2.15 renamed the function that makes `recompute_fn`. Measured on 2.6.0, 2.8.0, 2.13.0
/// and 2.15.0.
fn range(case: &str, document: &Value) -> &'static str {
    let torch = document["environment"]["torch"].as_str().unwrap();
    let mut parts = torch.split(['.', '+']);
    let mut number = || parts.next().and_then(|part| part.parse::<u32>().ok()).unwrap_or(0);
    let is_clean = matches!(case, "sac-stock" | "sac-disable-public-api");
    match (number(), number()) {
        _ if case == "no-ac-disable" => "2.6",
        (2, ..=7) => "2.6",
        (2, ..=14) => "2.8",
        _ if is_clean => "2.8",
        _ => "2.15",
    }
}

fn snapshot(name: String, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

#[rstest]
fn what_is_retained_and_why_is_as_it_was(
    #[files("cases/sac-*.yaml")]
    #[files("cases/*-ac-*.yaml")]
    path: PathBuf,
) {
    let Some(name) = runs_among_all(&path, false) else { return };
    let ran = ran();
    let range = range(&name, &ran.document);
    let recording = diagnosis_run(ran, &name);
    let blame = diagnose(&recording, Some(2))
        .map_or_else(|| "no tensor in garbage\n".to_owned(), |diagnosis| blame_text(&diagnosis.report));
    let torch = recording.torch_cycles.expect("torch's own report is missing");
    let text = format!(
        "--- torchleak's blame\n{blame}\n--- torch's warnings\n{}\n--- torch's graph\n{}",
        warning_lines(&torch),
        graph_text(&torch.nodes)
    );
    snapshot(format!("{name}_from_{range}"), &text);
}

/// What a case's own program leaves behind lies in code of torch that every release changes; its verdict and
/// its bytes are tested in `cases.rs`.
#[test]
fn every_quick_case_of_the_own_model_has_a_snapshot() {
    for entry in std::fs::read_dir("cases").unwrap() {
        let path: PathBuf = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let Some(name) = runs_among_all(&path, false).filter(|_| has_own_model(&path)) else { continue };
        let snapshot = format!("snapshots/cycles__{name}_from_2.6.snap");
        assert!(std::path::Path::new(&snapshot).exists(), "{snapshot}");
    }
}

#[test]
fn the_headline_is_told_in_the_issues_words() {
    let case = case(&ran().document, "sac-disable-recompute");
    let sentence = case["cycles"][0]["sentence"].as_str().unwrap();
    for part in [
        "`torch._disable_dynamo` stored its wrapper on `recompute_fn` (checkpoint.py:",
        "whose closure variable `fn` holds the function again",
        "through the SAC storage",
        "1 tensor [256, 512] float32 per layer, 1.00 MiB per step",
    ] {
        assert!(sentence.contains(part), "{part} is not in {sentence}");
    }
    let repair = case["cycles"][0]["repair"].as_str().unwrap();
    assert!(repair.contains("`.__dynamo_disable` of `recompute_fn`"), "{repair}");
    assert_eq!(case["cycles"][0]["finding"]["count"], 2);
}

#[test]
fn the_run_folder_has_the_cycles_as_data_as_a_graph_and_as_a_page() {
    let ran = ran();
    let folder =
        ran.context.path().join(case(&ran.document, "sac-disable-recompute")["run_dir"].as_str().unwrap());
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let data: Value = serde_json::from_str(&read("cycles.json")).unwrap();
    assert_eq!(data["report"]["tensor_bytes"], 1_058_688);
    assert!(read("cycles.dot").starts_with("digraph cycles {"));
    let page = read("cycles.html");
    assert!(page.contains("<svg") && !page.contains("http"), "the page must need no network");
    assert!(read("torch-cycles.html").contains("digraph GraphName"));
}

#[rstest]
fn both_graphs_have_the_same_tensors_and_ours_all_the_nodes_of_torchs(
    #[files("cases/*.yaml")] path: PathBuf,
) {
    let Some(name) = runs_among_all(&path, false) else { return };
    let name = name.as_str();
    let outcome = case(&ran().document, name);
    if outcome["verdict"] == "error" && outcome["ok"] == true {
        skipped(name, "the case cannot run on this torch, as it expects");
        return;
    }
    let recording = diagnosis_run(ran(), name);
    let torch = recording.torch_cycles.as_ref().unwrap();
    let report = diagnose(&recording, None).map(|diagnosis| diagnosis.report).unwrap_or_default();
    assert_eq!(torch.nodes.iter().filter(|node| node.root).count() as u64, report.tensors);
    // On Python 3.11 and 3.12 torch's code makes the dicts of instances before it asks what the
    // instances refer to, and so misses paths through their attributes.
    assert!(torch.nodes.len() as u64 <= report.leading, "{} > {}", torch.nodes.len(), report.leading);
    let pairs: std::collections::BTreeSet<(usize, usize)> = torch
        .nodes
        .iter()
        .enumerate()
        .flat_map(|(from, node)| node.references.iter().map(move |(_, to)| (from, *to)))
        .collect();
    assert!(pairs.len() as u64 <= report.leading_edges, "{} > {}", pairs.len(), report.leading_edges);
    // Python 3.13 shows the attributes without making a dict of them, and then nothing is missed.
    if has_own_model(&path) && has_attributes_in_place() {
        assert_eq!((torch.nodes.len() as u64, pairs.len() as u64), (report.leading, report.leading_edges));
    }
}

/// Whether the Python under test is 3.13 or newer.
fn has_attributes_in_place() -> bool {
    let python = ran().document["environment"]["python"].as_str().unwrap();
    let minor = python.split('.').nth(1).unwrap();
    minor.parse::<u32>().unwrap() >= 13
}

/// Keeps a cycle with tensors in garbage; `{extra}` may keep one more.
fn keeps(extra: &str) -> String {
    format!(
        "def setup(ctx):\n    return ctx\n\
         def step(ctx):\n    def again():\n        return again, kept\n    \
         kept = [ctx.torch.zeros(4096){extra}]\n"
    )
}

#[test]
fn one_more_retained_tensor_changes_the_text_of_a_snapshot() {
    let context = Context::new();
    let keys = "device: cpu\nexpect: [{verdict: reproduced}]";
    let one = context.program_case("one", &keeps(""), keys);
    let two = context.program_case("two", &keeps(", ctx.torch.zeros(4096)"), keys);
    let (document, code) =
        context.run_json(&["--device", "cpu", one.to_str().unwrap(), two.to_str().unwrap()]);
    assert_eq!(code, 0, "{document:#}");
    let recording =
        |name| recording(&context.path().join(case(&document, name)["run_dir"].as_str().unwrap()));
    let (one, two) = (recording("one"), recording("two"));
    let blame = |recording: &Recording| blame_text(&diagnose(recording, None).unwrap().report);
    let graph = |recording: &Recording| graph_text(&recording.torch_cycles.as_ref().unwrap().nodes);
    assert_ne!(blame(&one), blame(&two));
    assert_ne!(graph(&one), graph(&two));
}

#[rstest]
#[case(&[], false)]
#[case(&["--show-values"], true)]
fn values_of_the_program_are_shown_only_when_asked_for(#[case] options: &[&str], #[case] shown: bool) {
    let program = "\
def setup(ctx):
    return ctx
def step(ctx):
    cycle = {4711: ctx.torch.zeros(65536)}
    cycle['me'] = cycle
";
    let context = Context::new();
    let path = context.program_case("secret", program, "device: cpu\nexpect: [{verdict: reproduced}]");
    let arguments: Vec<&str> =
        ["--device", "cpu", path.to_str().unwrap()].into_iter().chain(options.iter().copied()).collect();
    let (document, _) = context.run_json(&arguments);
    let cycles = case(&document, "secret")["cycles"].to_string();
    assert!(cycles.contains("['me']"), "{cycles}");
    assert_eq!(cycles.contains("4711"), shown, "{cycles}");
}
