//! Matrices on real PyTorch. Their versions are nightlies of an index in a folder, each a small wheel that runs the code
//! of the torch under test, so that several environments cost seconds and little room.

#[path = "support/lab.rs"]
mod lab;
mod support;
#[path = "support/torch_wheels.rs"]
mod torch_wheels;

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use lab::{FLAT, Lab, cell, document, told};
use rstest::rstest;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use support::{Context, Finished};
use torch_wheels::REAL;
use torchleak::case::Verdict;
use torchleak::environment::{EnvironmentArgs, Managed, Silent};
use torchleak::report::{MatrixReport, matrix_csv, matrix_document, matrix_markdown, matrix_text};
use torchleak::versions::{Cell, Columns, IndexArgs, Selection};

/// Does not begin on the first nightly before the environment of the second is made, nor on the second before that of
/// the third; on the first one it fails if that of the third is begun.
const AHEAD: &str = "\
import glob, os, time

HERE = os.path.dirname(os.path.abspath(__file__))

def environments(date, file):
    return glob.glob(os.path.join(HERE, 'cache', 'environments', f'torch-*dev{date}*', file))

def setup(ctx):
    today = ctx.torch.__version__.split('dev')[1][:8]
    limit = time.monotonic() + 120
    if today < '20260103':
        while not environments(int(today) + 1, 'torchleak.json'):
            if time.monotonic() > limit:
                raise RuntimeError('nothing is fetched ahead')
            time.sleep(0.05)
    if today == '20260101' and environments(20260103, ''):
        raise RuntimeError('the one after the next is begun')
    return ctx

def step(ctx):
    return 1.0
";

#[test]
fn columns_are_fetched_ahead_judged_compared_and_known_from_then_on() {
    let lab = Lab::with_nightlies(&["01", "02", "03"], &["02"]);
    let [first, second, third] = ["01", "02", "03"].map(|day| REAL.nightly(&format!("202601{day}")));
    let (flat, ahead) = (lab.case("flat", FLAT), lab.case("ahead", AHEAD));

    // The first environment is there before, so `--keep` must leave it alone.
    let (_, finished) = lab.document(&[&flat], "nightly:2026-01-01", &[]);
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    assert_eq!(lab.environments(), ["20260101"]);

    let (document, finished) =
        lab.document(&["sac-stock", &ahead], "nightly:2026-01-01..2026-01-31", &["--keep", "1"]);
    assert_eq!(
        told(&document),
        [
            "sac-stock fixed",
            "ahead fixed",
            "sac-stock reproduced",
            "ahead fixed",
            "sac-stock fixed",
            "ahead fixed"
        ],
        "{document:#}\n{}",
        finished.stderr
    );
    assert_eq!(finished.code, 1, "one is not as expected: {}", finished.stderr);
    assert_eq!(lab.environments(), ["20260101", "20260103"], "{}", finished.stderr);
    let leak = &document["cells"][2];
    for (key, value) in [
        ("torch", json!(second)),
        ("build", json!(second)),
        ("commit", json!("02".repeat(20))),
        ("device", json!("cpu")),
        ("expected", json!("fixed")),
        ("ok", json!(false)),
        ("cached", json!(false)),
    ] {
        assert_eq!(leak[key], value, "{key}: {leak:#}");
    }
    assert!(leak["python"].as_str().unwrap().starts_with(&format!("3.{}.", REAL.python_minor)));
    assert!(
        leak["seconds"].as_f64().unwrap() > 0.0 && leak["growth_bytes_per_step"].as_i64().unwrap() > 100_000
    );
    assert!(!leak["reason"].as_str().unwrap().is_empty());
    assert!(Path::new(leak["run_dir"].as_str().unwrap()).join("events.jsonl").is_file());
    let python = format!("3.{}", REAL.python_minor);
    let change = |from: (&str, &str), to: (&str, &str)| {
        json!({"case": "sac-stock", "python": python, "device": "cpu", "from": {"torch": from.0, "verdict": from.1},
            "to": {"torch": to.0, "verdict": to.1}})
    };
    assert_eq!(document["schema"], 1);
    assert_eq!(
        document["transitions"],
        json!([
            change((&first, "fixed"), (&second, "reproduced")),
            change((&second, "reproduced"), (&third, "fixed"))
        ])
    );

    // All is known: no environment is made again, none is used, and nothing is run.
    let runs = lab.files_in("runs").len();
    let dates = "nightly:2026-01-01..2026-01-31";
    let again = lab.matrix(&["sac-stock", &ahead], dates, &["--keep", "1"]);
    assert_eq!(again.code, 1, "{}", again.stderr);
    assert!(!again.stderr.contains("making") && !again.stderr.contains(" 2 cases"), "{}", again.stderr);
    assert_eq!((lab.files_in("runs").len(), lab.environments().len()), (runs, 2));
    for said in [
        "reproduced!*",
        &format!("sac-stock: introduced (reproduced) between {first} and {second}\n"),
        &format!("sac-stock: fixed between {second} and {third}\n"),
        &format!("sac-stock, {second}: reproduced, expected fixed: "),
        "! not as expected\n* from the cache of an earlier run",
    ] {
        assert!(again.stdout.contains(said), "{said} is not in\n{}", again.stdout);
    }
    let csv = lab.matrix(&["sac-stock", &ahead], dates, &["--format", "csv"]);
    let mut reader = csv::Reader::from_reader(csv.stdout.as_bytes());
    assert_eq!(&reader.headers().unwrap().iter().collect::<Vec<_>>()[..3], ["case", "torch", "build"]);
    let records: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!((records.len(), &records[2][6], &records[2][9]), (6, "reproduced", "true"));
    let markdown = lab.matrix(&["sac-stock", &ahead], dates, &["--format", "markdown"]);
    assert!(
        markdown.stdout.contains("| sac-stock | fixed\\* | reproduced!\\* | fixed\\* |\n"),
        "{}",
        markdown.stdout
    );
}

#[test]
fn what_another_process_uses_is_not_removed_and_holds_nothing_up() {
    let lab = Lab::with_nightlies(&["01", "02"], &[]);
    let flat = lab.case("flat", FLAT);
    let mut command = lab.command(&[&flat], "nightly", &["--keep", "0", "--format", "json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let limit = Instant::now() + Duration::from_secs(300);
    while lab.environments().is_empty() {
        assert!(Instant::now() < limit, "no environment was made");
        std::thread::sleep(Duration::from_millis(20));
    }
    let locks = lab.files_in("cache/environments").into_iter();
    let lock = locks.filter(|path| path.to_string_lossy().ends_with(".lock")).find(|path| {
        // That of the first; the second may be about to be made.
        path.to_string_lossy().contains("dev20260101")
    });
    let in_use = fs::File::open(lock.unwrap()).unwrap();
    in_use.lock_shared().unwrap();
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < limit, "the matrix waits for what it cannot remove");
        std::thread::sleep(Duration::from_millis(50));
    }
    let finished = Finished::of(child.wait_with_output().unwrap());
    assert_eq!(told(&document(&finished)), ["flat fixed", "flat fixed"]);
    assert_eq!(lab.environments(), ["20260101"], "the other one was made here and is used by nobody");
}

#[test]
fn what_changed_is_run_again_and_only_that() {
    let lab = Lab::with_nightlies(&["01"], &[]);
    let cases = ["flat", "changed", "lost"].map(|name| lab.case(name, FLAT));
    let cases: Vec<&str> = cases.iter().map(String::as_str).collect();
    let (first, finished) = lab.document(&cases, "nightly", &[]);
    assert_eq!(told(&first), ["flat fixed", "changed fixed", "lost fixed"], "{}", finished.stderr);

    lab.case("changed", &FLAT.replace("1.0", "2.0"));
    fs::remove_dir_all(first["cells"][2]["run_dir"].as_str().unwrap()).unwrap();
    let (second, finished) = lab.document(&cases, "nightly", &[]);
    assert_eq!(told(&second), ["flat fixed cached", "changed fixed", "lost fixed"]);
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    assert_eq!(second["cells"][0]["run_dir"], first["cells"][0]["run_dir"]);

    let (third, _) = lab.document(&cases, "nightly", &["--fresh"]);
    assert_eq!(told(&third), ["flat fixed", "changed fixed", "lost fixed"]);
    // What `--fresh` found is kept; under other settings of the allocator it is no answer.
    let (fourth, _) = lab.document(&cases[..1], "nightly", &[]);
    assert_eq!(told(&fourth), ["flat fixed cached"]);
    assert_eq!(fourth["cells"][0]["run_dir"], third["cells"][0]["run_dir"]);
    let mut command = lab.command(&cases[..1], "nightly", &["--format", "json"]);
    let other = Finished::of(command.env("MALLOC_ARENA_MAX", "1").output().unwrap());
    assert_eq!(told(&document(&other)), ["flat fixed"]);
}

#[rstest]
#[case::ctrl_c(Signal::INT)]
#[case::killed(Signal::KILL)]
fn a_matrix_that_is_broken_off_goes_on_where_it_stopped(#[case] with: Signal) {
    let lab = Lab::with_nightlies(&["01"], &[]);
    let held = format!(
        "import os, time\nwhile os.path.exists({:?}):\n    time.sleep(0.05)\n{FLAT}",
        lab.path().join("hold").to_str().unwrap()
    );
    fs::write(lab.path().join("hold"), "").unwrap();
    // The slow one comes first: what is over behind it is kept nevertheless.
    let (slow, quick) = (lab.case("slow", &held), lab.case("quick", FLAT));
    let mut command = lab.command(&[&slow, &quick], "nightly", &["--jobs", "8", "--format", "json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let limit = Instant::now() + Duration::from_secs(300);
    while !lab.files_in("cache/cells").iter().any(|file| file.extension().is_some_and(|end| end == "json")) {
        assert!(Instant::now() < limit, "no cell was kept");
        std::thread::sleep(Duration::from_millis(50));
    }
    kill_process(Pid::from_child(&child), with).unwrap();
    let output = child.wait_with_output().unwrap();
    if with == Signal::INT {
        let finished = Finished::of(output);
        assert_eq!(finished.code, 130, "{}", finished.stderr);
        assert_eq!(told(&document(&finished)), ["quick fixed"]);
    }

    fs::remove_file(lab.path().join("hold")).unwrap();
    let (document, finished) = lab.document(&[&slow, &quick], "nightly", &[]);
    assert_eq!(told(&document), ["slow fixed", "quick fixed cached"], "{}", finished.stderr);
    assert_eq!(finished.code, 0, "{}", finished.stderr);
}

#[test]
fn a_version_that_is_too_old_says_so_and_one_that_is_not_there_has_no_verdict() {
    let lab = Lab::new();
    let (document, finished) = lab.document(&["sac-stock", "no-ac-disable"], "1.10.0", &[]);
    assert_eq!(told(&document), ["sac-stock -", "no-ac-disable -"]);
    let said = "torch 1.10.0 is too old: torchleak needs torch 2.0 or newer";
    assert_eq!((&document["cells"][0]["reason"], &document["cells"][0]["ok"]), (&json!(said), &json!(true)));
    assert_eq!(finished.code, 0, "{}", finished.stderr);

    let finished = lab.matrix(&["sac-stock", "no-ac-disable"], "1.10.0,99.0", &[]);
    assert_eq!(finished.code, 4, "{}", finished.stderr);
    for said in [
        &format!("all cases, 1.10.0: {said}\n"),
        "all cases, 99.0.0: installing torch failed",
        "torch==99.0.0",
    ] {
        assert!(finished.stdout.contains(said), "{said} is not in\n{}", finished.stdout);
    }
    assert!(
        lab.files_in("cache/environments").iter().all(|path| !path.is_dir()),
        "nothing half-made is left"
    );
    assert!(lab.files_in("runs").is_empty());
}

/// Two cases on four versions, with all that can be said of a cell.
fn report() -> MatrixReport {
    use Verdict::{Error, Fixed, Inconclusive, OneOff, Reproduced, Uncollectable};
    let python = "3.11.7";
    let mut cells = vec![
        cell("a-leak", "2.6.0", python, Some(Reproduced)),
        cell("another-leak", "2.6.0", python, Some(Uncollectable)),
        cell("a-leak", "2.7.1", python, Some(Inconclusive)),
        cell("another-leak", "2.7.1", python, Some(OneOff)),
        cell("a-leak", "2.8.0", "3.11", None),
        cell("another-leak", "2.8.0", "3.11", None),
        cell("a-leak", "2.9.0.dev20250801+cu128", python, Some(Fixed)),
        cell("another-leak", "2.9.0.dev20250801+cu128", python, Some(Error)),
    ];
    cells[0].cached = true;
    cells[2] = Cell {
        ok: false,
        expected: Some(Reproduced),
        reason: "two sources | disagree,\nor \"seem\" to".to_owned(),
        ..cells[2].clone()
    };
    for place in [4, 5] {
        cells[place] = Cell {
            ok: false,
            expected: None,
            torch_commit: None,
            run_dir: None,
            reason: "installing torch failed: `uv pip install` ended with exit code 1\nerror: no network"
                .to_owned(),
            ..cells[place].clone()
        };
    }
    MatrixReport::new(cells)
}

fn snapshot(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

#[test]
fn a_person_reads_a_table_then_what_changes_and_then_what_is_to_be_known_of_cells() {
    snapshot("a_matrix_for_a_person", &matrix_text(&report(), false, 100));
}

#[test]
fn a_table_that_is_too_wide_comes_in_parts_of_whole_columns() {
    let text = matrix_text(&report(), false, 50);
    let table: Vec<&str> = text.split("\na-leak:").next().unwrap().lines().collect();
    assert!(table.iter().all(|line| line.len() <= 50), "{text}");
    snapshot("a_matrix_on_a_narrow_terminal", &text);
    // Narrower than any column is as narrow as one column.
    let least = matrix_text(&report(), false, 1);
    assert_eq!(least.matches("another-leak  ").count(), 4, "{least}");
}

#[test]
fn colours_add_nothing_but_colours() {
    let coloured = matrix_text(&report(), true, 100);
    assert!(coloured.contains("\u{1b}[38;5;9m"), "{coloured:?}");
    let bare = console::strip_ansi_codes(&coloured);
    let lines = |text: &str| text.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
    assert_eq!(lines(&bare), lines(&matrix_text(&report(), false, 100)));
}

#[test]
fn a_matrix_can_be_put_into_an_issue() {
    snapshot("a_matrix_as_markdown", &matrix_markdown(&report()));
}

#[test]
fn a_matrix_is_a_line_per_cell_for_other_programs() {
    let text = matrix_csv(&report()).unwrap();
    snapshot("a_matrix_as_csv", &text);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let records: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(&records[2][12], "two sources | disagree,\nor \"seem\" to");
}

#[test]
fn a_document_has_the_keys_that_are_promised() {
    let document = matrix_document(&report());
    let text = serde_json::to_string_pretty(&json!({
        "schema": document["schema"],
        "cells": [document["cells"][0], document["cells"][4]],
        "transitions": document["transitions"],
    }));
    snapshot("a_matrix_as_json", &text.unwrap());
}

#[test]
fn each_python_is_compared_with_itself_alone() {
    use Verdict::{Fixed, Reproduced};
    let cells = [("3.11.7", Reproduced, Fixed), ("3.12.1", Fixed, Reproduced)].map(|(python, old, new)| {
        [cell("a-leak", "2.6.0", python, Some(old)), cell("a-leak", "2.8.0", python, Some(new))]
    });
    let report = MatrixReport::new(cells.concat());
    snapshot("a_matrix_of_two_pythons", &matrix_text(&report, false, 100));
    let pythons: Vec<String> = report.transitions().into_iter().map(|one| one.python).collect();
    assert_eq!(pythons, ["3.11", "3.12"]);
}

#[test]
fn a_matrix_without_a_cell_is_told_without_a_panic() {
    let empty = MatrixReport::new(Vec::new());
    assert_eq!(matrix_text(&empty, false, 80), "");
    assert_eq!(matrix_csv(&empty).unwrap().lines().count(), 1);
    assert_eq!(matrix_document(&empty)["cells"], json!([]));
    assert!(matrix_markdown(&empty).starts_with("| case |"));
}

#[test]
fn a_range_has_the_same_releases_for_every_python_also_where_one_has_no_build() {
    let lab = Lab::new();
    // torch 2.4 was built for Python 3.8 to 3.12.
    let templates = ["3.12", "3.13", "3.99"].map(|python| {
        let args = EnvironmentArgs { python_version: Some(python.to_owned()), ..Default::default() };
        Managed::template(&args).unwrap()
    });
    let selection: Selection = "2.4.1..2.5.0".parse().unwrap();
    let found =
        Columns::new(&selection, &templates, &IndexArgs::default(), &lab.cache, &Silent).unwrap().columns;
    let told: Vec<(u32, &str)> =
        found.iter().map(|column| (column.python_minor, column.candidate.label.as_str())).collect();
    let all = [12, 13, 99].map(|python| [(python, "2.4.1"), (python, "2.5.0")]);
    assert_eq!(told, all.concat());
    // Alone, a Python that nothing is built for is an error that says so.
    let none = Columns::new(&selection, &templates[2..], &IndexArgs::default(), &lab.cache, &Silent);
    let error = none.unwrap_err();
    assert!(error.to_string().contains("asking for releases of torch"), "{error}");
    assert!(error.hint().unwrap().contains("no build for this Python"), "{error}");
}

#[rstest]
#[case::no_selection(&["sac-stock"], "--torch")]
#[case::unknown_case(&["no-such-case", "--torch", "2.6.0"], "no-such-case")]
#[case::no_version(&["sac-stock", "--torch", "banana"], "banana")]
#[case::a_range_that_ends_before_it_begins(&["sac-stock", "--torch", "2.15.0..2.8.0"], "older version first")]
#[case::an_old_python(&["sac-stock", "--torch", "2.6.0", "--python", "3.12,3.9"], "--python: `3.9` is too old")]
#[case::a_path(&["sac-stock", "--torch", "2.6.0", "--python", ".venv"], "--python: `.venv`")]
#[case::keep(&["sac-stock", "--torch", "2.6.0", "--keep", "few"], "--keep")]
#[case::all_and_some(&["sac-stock", "--all", "--torch", "2.6.0"], "--all")]
#[case::slow_alone(&["--slow", "--torch", "2.6.0"], "--all")]
#[case::a_nightly_that_is_no_date(&["sac-stock", "--torch", "nightly:soon"], "soon")]
fn bad_usage_has_exit_code_2_and_names_the_culprit(#[case] arguments: &[&str], #[case] culprit: &str) {
    let context = Context::new();
    let finished = context.run(["matrix", "--cache-dir", "cache"].iter().chain(arguments));
    assert_eq!(finished.code, 2, "{}", finished.stderr);
    assert!(finished.stderr.contains(culprit), "{}", finished.stderr);
    assert_eq!(finished.stdout, "");
    assert!(!context.path().join("runs").exists() && !context.path().join("cache/environments").exists());
}
