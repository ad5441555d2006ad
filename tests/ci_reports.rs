//! What CI systems read of runs and matrices on real PyTorch, and what is joined of several machines.

#[path = "support/lab.rs"]
mod lab;
mod support;
#[path = "support/torch_wheels.rs"]
mod torch_wheels;

use std::fs;
use std::path::PathBuf;

use lab::{FLAT, LEAKS, Lab, cell, document, told};
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};
use support::{Context, Finished};
use torch_wheels::REAL;
use torchleak::case::Verdict;
use torchleak::report::{MatrixReport, SUMMARY_LIMIT, annotation, annotations, junit, summary};
use torchleak::versions::{Cell, label};

/// Its message is markup, a workflow command and characters that XML cannot hold.
const HOSTILE: &str = "\
def setup(ctx):
    raise RuntimeError('<b>&]]>|`x`\\0\\x1b[31m\\n::error::forged\\n%0A')

def step(ctx):
    return 1.0
";

/// The test cases of JUnit XML: name, and what is in it beside the properties and the output.
fn test_cases(xml: &str) -> Vec<(String, String)> {
    let document = roxmltree::Document::parse(xml).unwrap_or_else(|error| panic!("{error}:\n{xml}"));
    let cases = document.descendants().filter(|node| node.has_tag_name("testcase"));
    let kind = |case: roxmltree::Node<'_, '_>| {
        let mut kinds = case.children().map(|child| child.tag_name().name().to_owned());
        kinds.find(|kind| ["failure", "error", "skipped"].contains(&kind.as_str())).unwrap_or_default()
    };
    cases.map(|case| (case.attribute("name").unwrap().to_owned(), kind(case))).collect()
}

#[test]
fn a_run_tells_ci_systems_what_is_not_as_expected_with_its_evidence() {
    let context = Context::new();
    let cases = [
        ("flat", FLAT, "cpu"),
        ("leaks", LEAKS, "cpu"),
        ("hostile", HOSTILE, "cpu"),
        ("on-cuda", FLAT, "cuda"),
    ];
    for (name, program, device) in cases {
        context.program_case(name, program, &format!("device: {device}"));
    }
    context.write("summary.md", "what an earlier command of the step wrote\n");
    let mut command = context.command();
    command.args(["run", "flat.yaml", "leaks.yaml", "hostile.yaml", "on-cuda.yaml", "--device", "cpu"]);
    command.args(["--junit", "junit.xml", "--summary", "summary.md", "--format", "json"]);
    command.env("GITHUB_ACTIONS", "true").env("GITHUB_WORKSPACE", context.path().canonicalize().unwrap());
    let finished = Finished::of(command.output().unwrap());
    assert_eq!(finished.code, 4, "{}", finished.stderr);

    let xml = fs::read_to_string(context.path().join("junit.xml")).unwrap();
    let kinds = [("flat", ""), ("leaks", "failure"), ("hostile", "error"), ("on-cuda", "skipped")];
    assert_eq!(test_cases(&xml), kinds.map(|(name, kind)| (name.to_owned(), kind.to_owned())), "{xml}");
    let tree = roxmltree::Document::parse(&xml).unwrap();
    let of = |name: &str| tree.descendants().find(|node| node.attribute("name") == Some(name)).unwrap();
    let failure = of("leaks").children().find(|node| node.has_tag_name("failure")).unwrap();
    assert_eq!(failure.attribute("type"), Some("reproduced"));
    assert!(failure.attribute("message").unwrap().starts_with("reproduced, expected fixed: "), "{xml}");
    let output = of("leaks").children().find(|node| node.has_tag_name("system-out")).unwrap().text().unwrap();
    let folder = PathBuf::from(output.strip_prefix("kept in ").unwrap());
    assert!(folder.join("verdict.json").is_file(), "{output}");
    let error = of("hostile").children().find(|node| node.has_tag_name("error")).unwrap().text().unwrap();
    assert!(error.contains("<b>&]]>|`x`") && error.contains("::error::forged\n    %0A"), "{error:?}");
    assert!(of("flat").attribute("time").unwrap().parse::<f64>().unwrap() > 0.0, "{xml}");

    let markdown = fs::read_to_string(context.path().join("summary.md")).unwrap();
    for said in [
        "what an earlier command of the step wrote\n## torchleak: 1 of 4 as expected, 1 not as expected, 1 without a verdict, 1 skipped\n",
        "\n| leaks | reproduced! |\n",
        "&lt;b>&amp;\\]\\]>\\|\\`x\\`",
        &format!("\n- leaks, {}: ", label(&REAL.version, None)),
    ] {
        assert!(markdown.contains(said), "{said} is not in\n{markdown}");
    }

    let commands: Vec<&str> =
        finished.stderr.lines().filter(|line| line.trim_start().starts_with("::")).collect();
    assert_eq!(commands.len(), 2, "{}", finished.stderr);
    let title = format!("title=leaks on torch {}::reproduced, expected fixed: ", label(&REAL.version, None));
    assert!(commands[0].starts_with(&format!("::error file=leaks.yaml,{title}")), "{}", commands[0]);
    assert!(commands[1].contains("::error::forged%0A    %250A"), "{}", commands[1]);
    assert!(serde_json::from_str::<Value>(&finished.stdout).is_ok(), "annotations keep off standard output");
}

#[test]
fn machines_that_run_parts_are_joined_into_the_matrix_that_one_would_have_run() {
    let lab = Lab::with_nightlies(&["01", "02"], &["02"]);
    let cases = ["sac-stock".to_owned(), lab.case("flat", FLAT), lab.case("other", FLAT)];
    let cases: Vec<&str> = cases.iter().map(String::as_str).collect();
    fs::create_dir(lab.path().join("parts")).unwrap();
    let mut ran = Vec::new();
    for part in 1..=4 {
        let (partition, runs) = (format!("{part}/4"), format!("parts/runs-{part}"));
        let (document, finished) = lab.document(
            &cases,
            "nightly",
            &["--partition", &partition, "--runs", &runs, "--junit", "part.xml"],
        );
        assert_eq!(finished.code, i32::from(part == 3), "{part}: {}", finished.stderr);
        assert_eq!(
            test_cases(&fs::read_to_string(lab.path().join("part.xml")).unwrap()).len(),
            told(&document).len()
        );
        fs::write(lab.path().join(format!("parts/{part}.json")), &finished.stdout).unwrap();
        ran.push(told(&document));
    }
    assert_eq!(
        ran,
        [
            vec!["sac-stock fixed"],
            vec!["flat fixed", "other fixed"],
            vec!["sac-stock reproduced"],
            vec!["flat fixed", "other fixed"]
        ]
    );

    let merge = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_torchleak"));
        Finished::of(command.arg("merge").args(arguments).current_dir(lab.path()).output().unwrap())
    };
    let (whole, _) = lab.document(&cases, "nightly", &[]);
    // The order of the files does not matter.
    let files = ["parts/3.json", "parts/1.json", "parts/4.json", "parts/2.json", "--format", "json"];
    let joined = merge(&files);
    assert_eq!(joined.code, 1, "{}", joined.stderr);
    let verdicts = |document: &Value| {
        let cells = document["cells"].as_array().unwrap().clone();
        let keys = ["case", "torch", "build", "python", "device", "verdict", "expected", "run_dir"];
        cells.iter().map(|cell| keys.map(|key| cell[key].clone())).collect::<Vec<_>>()
    };
    assert_eq!(verdicts(&document(&joined)), verdicts(&whole));
    assert_eq!(document(&joined)["transitions"], whole["transitions"]);
    assert_eq!(whole["transitions"].as_array().unwrap().len(), 1);
    assert_eq!(document(&joined)["notes"], json!([]));

    // Documents and run folders of the same cells are one.
    let all = merge(&["parts", "--format", "json", "--junit", "all.xml", "--summary", "all.md"]);
    assert_eq!(verdicts(&document(&all)), verdicts(&whole), "{}", all.stderr);
    assert_eq!(test_cases(&fs::read_to_string(lab.path().join("all.xml")).unwrap()).len(), 6);
    assert!(
        fs::read_to_string(lab.path().join("all.md"))
            .unwrap()
            .contains("5 of 6 as expected, 1 not as expected")
    );

    // Of a machine that was stopped only the run folders are there, and a document that was cut off.
    fs::write(lab.path().join("parts/4.json"), "{\"schema\": 1, \"cel").unwrap();
    let stopped = merge(&["parts", "--format", "json"]);
    assert_eq!(stopped.code, 4);
    assert_eq!(verdicts(&document(&stopped)), verdicts(&whole));
    let notes = document(&stopped)["notes"].to_string();
    assert!(notes.contains("of the 4 parts of a matrix of 6 cells these are missing: 4"), "{notes}");
    assert!(notes.contains("4.json` is no document of a matrix"), "{notes}");

    let mut forged: Value =
        serde_json::from_str(&fs::read_to_string(lab.path().join("parts/3.json")).unwrap()).unwrap();
    forged["cells"][0]["verdict"] = json!("fixed");
    forged["cells"][0]["run_dir"] = json!("/another/machine/runs/1");
    fs::write(lab.path().join("forged.json"), forged.to_string()).unwrap();
    let disagree = merge(&["parts/1.json", "parts/2.json", "parts/3.json", "forged.json"]);
    assert_eq!(disagree.code, 4, "{}", disagree.stdout);
    assert!(
        disagree.stdout.contains(": the parts disagree: reproduced, expected fixed, on "),
        "{}",
        disagree.stdout
    );
    assert!(disagree.stdout.contains("; and fixed, expected fixed, on "), "{}", disagree.stdout);
}

#[rstest]
#[case::no_file("gone.json", "cannot be read")]
#[case::no_document("text.json", "is no document of a matrix")]
#[case::another_schema("future.json", "schema 2 is unknown")]
#[case::nothing_to_join("empty", "neither a run folder nor a document")]
#[case::a_document_without_cells("no-cells.json", "missing field `cells`")]
fn what_cannot_be_joined_is_bad_usage_with_what_to_try(#[case] path: &str, #[case] says: &str) {
    let context = Context::new();
    context.write("text.json", "no JSON");
    context.write("future.json", "{\"schema\": 2, \"cells\": []}");
    context.write("no-cells.json", "{\"schema\": 1}");
    fs::create_dir(context.path().join("empty")).unwrap();
    let finished = context.run(["merge", path]);
    assert_eq!(finished.code, 2, "{}", finished.stderr);
    assert!(finished.stderr.contains(says) && finished.stderr.contains("try: "), "{}", finished.stderr);
    assert_eq!(finished.stdout, "");
}

#[test]
fn a_part_without_a_case_runs_nothing_and_passes_and_is_no_good_commit() {
    let context = Context::new();
    context.program_case("flat", FLAT, "device: cpu");
    let arguments = ["run", "flat.yaml", "--device", "cpu", "--partition", "1/2", "--junit", "junit.xml"];
    let finished = context.run(arguments);
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    assert_eq!(test_cases(&fs::read_to_string(context.path().join("junit.xml")).unwrap()), []);
    let bisected = context.run(arguments.iter().chain(&["--exit-code", "bisect"]));
    assert_eq!(bisected.code, 125, "{}", bisected.stderr);
    assert_eq!(context.run(["run", "flat.yaml", "--partition", "0/2"]).code, 2);
}

#[test]
fn a_file_that_cannot_be_written_is_named_after_the_verdicts_were_told() {
    let context = Context::new();
    context.program_case("flat", FLAT, "device: cpu");
    for option in ["--junit", "--summary"] {
        // It can be opened, and each byte that is written finds the disk full.
        let finished = context.run(["run", "flat.yaml", "--device", "cpu", option, "/dev/full"]);
        assert_eq!(finished.code, 4, "{}", finished.stderr);
        assert!(finished.stdout.contains("fixed (as expected)"), "{}", finished.stdout);
        assert!(finished.stderr.contains("/dev/full cannot be written"), "{}", finished.stderr);
    }
}

#[test]
fn a_file_that_cannot_be_written_is_refused_before_anything_runs() {
    let context = Context::new();
    context.program_case("flat", FLAT, "device: cpu");
    for command in [&["run", "flat.yaml"][..], &["matrix", "flat.yaml", "--torch", "2.13.0"]] {
        for option in ["--junit", "--summary"] {
            let finished = context.run(command.iter().chain(&[option, "flat.yaml/report"]));
            assert_eq!(finished.code, 4, "{}", finished.stderr);
            assert!(finished.stderr.contains("flat.yaml/report cannot be written"), "{}", finished.stderr);
        }
    }
    assert!(!context.path().join("runs").exists());
}

#[test]
fn what_ends_a_command_is_shown_by_github_too() {
    let context = Context::new();
    let mut command = context.command();
    command
        .args(["run", "--python", "/no/such/python"])
        .env_remove("TORCHLEAK_TORCH")
        .env("GITHUB_ACTIONS", "true");
    let finished = Finished::of(command.output().unwrap());
    assert_eq!(finished.code, 3);
    let last = finished.stderr.lines().last().unwrap();
    assert!(last.starts_with("::error title=torchleak::") && last.contains("/no/such/python"), "{last}");
}

/// A matrix of many cells with reasons of their own, none as expected.
fn large(cells: usize, reason: &str) -> MatrixReport {
    let cells = (0..cells).map(|number| Cell {
        ok: false,
        reason: format!("{reason}{number}"),
        ..cell(&format!("case-{number}"), "2.8.0", "3.11.7", Some(Verdict::Reproduced))
    });
    MatrixReport::new(cells.collect())
}

#[test]
fn a_summary_stays_in_its_room_and_says_what_it_left_out() {
    let report = large(3000, &"a long reason ".repeat(60));
    let text = summary(&report, SUMMARY_LIMIT);
    assert!(text.len() <= SUMMARY_LIMIT && text.len() > SUMMARY_LIMIT - 2000, "{}", text.len());
    assert!(text.ends_with("\n(The rest is left out: a summary has at most 1 MiB.)\n"));
    assert!(text.starts_with("## torchleak: 0 of 3000 as expected, 3000 not as expected\n"));
    for room in [0, 10, 100, 1000] {
        assert!(summary(&report, room).len() <= room, "{room}");
    }
}

#[test]
fn github_shows_ten_errors_and_the_last_says_how_many_there_are() {
    let lines = annotations(&large(30, "why"), |_| None);
    assert_eq!(lines.len(), 10);
    assert_eq!(lines[9], "::error title=torchleak::21 more are in the summary and in the table");
}

proptest! {
    #[test]
    fn any_text_stays_one_annotation(title in "(\\PC|[\\r\\n:,%]){0,30}", message in "(\\PC|[\\r\\n:,%]){0,30}") {
        let line = annotation(&title, Some(&title), &message);
        prop_assert!(!line.contains(['\r', '\n']));
        let (properties, data) = line.strip_prefix("::error ").unwrap().split_once("::").unwrap();
        let back = |text: &str| {
            text.replace("%2C", ",").replace("%3A", ":").replace("%0A", "\n").replace("%0D", "\r").replace("%25", "%")
        };
        prop_assert_eq!(back(data), message);
        let title_again = properties.split_once(",title=").unwrap().1;
        prop_assert_eq!(back(title_again), title);
    }

    #[test]
    fn any_text_is_in_junit_that_a_parser_reads(reason in "(\\PC|[\\x00-\\x1f]|[\u{fffe}\u{ffff}<&>\"']){0,60}") {
        let one = Cell { ok: false, reason, ..cell("case", "2.8.0", "3.11.7", Some(Verdict::Reproduced)) };
        let xml = junit(&MatrixReport::new(vec![one])).unwrap();
        prop_assert_eq!(test_cases(&xml), [("case".to_owned(), "failure".to_owned())]);
    }

    #[test]
    fn any_text_is_one_row_or_item_of_a_summary(reason in "(\\PC|[\\r\\n|<`]){0,60}") {
        let plain = summary(&large(1, "why"), SUMMARY_LIMIT);
        let text = summary(&large(1, &reason), SUMMARY_LIMIT);
        prop_assert_eq!(text.lines().count(), plain.lines().count());
        prop_assert!(!text.contains('<'));
    }
}
