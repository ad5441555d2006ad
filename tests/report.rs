//! `torchleak report` on runs of real PyTorch: the bundle is whole, its script agrees, nothing private is in it.

#[path = "support/browser.rs"]
mod browser;
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use browser::shown_by;
use rstest::rstest;
use serde_json::{Value, json};
use support::{Context, Finished, skipped};

/// The folder of a run, recorded once for all tests that only read it.
struct Recorded {
    context: Context,
    run: PathBuf,
}

impl Recorded {
    fn of(case: &str) -> Self {
        let context = Context::new();
        let (document, code) = context.run_json(&[case]);
        assert_eq!(code, 0, "{document:#}");
        let run = context.path().join(document["cases"][0]["run_dir"].as_str().unwrap());
        Self { context, run }
    }

    /// A copy that a test may change.
    fn copy(&self, context: &Context) -> PathBuf {
        let to = context.path().join("run");
        fs::create_dir(&to).unwrap();
        for entry in fs::read_dir(&self.run).unwrap().map(Result::unwrap) {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
        to
    }

    /// A copy that comes from a machine of somebody else, so that nothing is run.
    fn copy_from_elsewhere(&self, context: &Context) -> PathBuf {
        let to = self.copy(context);
        edit_json(&to.join("environment.json"), |document| {
            document["python_executable"] = json!("/home/grace/venv/bin/python");
        });
        to
    }
}

static HEADLINE: LazyLock<Recorded> = LazyLock::new(|| Recorded::of("sac-disable-recompute"));

fn edit_json(path: &Path, edit: impl FnOnce(&mut Value)) {
    let mut document = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    edit(&mut document);
    fs::write(path, format!("{document:#}")).unwrap();
}

/// Runs `report` on a run folder, into the folder `bundle` of the context.
fn report(context: &Context, run: &Path, more: &[&str]) -> Finished {
    let run = run.to_str().unwrap();
    context.run(["report", run, "--output", "bundle"].iter().chain(more))
}

/// Every file of the archive, by its name in the bundle.
fn unpacked(context: &Context) -> BTreeMap<String, Vec<u8>> {
    let file = fs::File::open(context.path().join("bundle.zip")).unwrap();
    let mut archive = zip::ZipArchive::new(file).unwrap();
    (0..archive.len())
        .map(|index| {
            let mut entry = archive.by_index(index).unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            let name = entry.name().unwrap().strip_prefix("bundle/").expect("all in one folder").to_owned();
            (name, bytes)
        })
        .collect()
}

fn text(files: &BTreeMap<String, Vec<u8>>, name: &str) -> String {
    String::from_utf8(files[name].clone()).unwrap()
}

/// What is in a folder, by name.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_bundle_of_the_headline_is_whole_and_its_script_agrees() {
    let context = Context::new();
    let finished = report(&context, &HEADLINE.run, &["--format", "json"]);
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    let document: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(
        (&document["verdict"], &document["repro_verdict"]),
        (&json!("reproduced"), &json!("reproduced"))
    );
    assert_eq!((&document["repro_agrees"], &document["warnings"]), (&json!(true), &json!([])));

    let files = unpacked(&context);
    for (name, bytes) in &files {
        assert!(fs::read(context.path().join("bundle").join(name)).unwrap() == *bytes, "{name}");
    }
    let issue = text(&files, "issue.md");
    assert!(issue.len() < 65_536);
    let headings: Vec<&str> = issue.lines().filter(|line| line.starts_with("### ")).collect();
    assert_eq!(headings, ["### 🐛 Describe the bug", "### Versions"]);
    assert!(issue.contains("#### Generated draft: the person who files this issue must review it"));
    let script = text(&files, "repro.py");
    assert!(issue.contains(script.trim_end()), "the script is not verbatim");
    assert!(issue.contains(text(&files, "versions.txt").trim_end()), "the versions are not verbatim");
    assert!(
        issue.contains("| 6 | ")
            && issue.contains("`torch._disable_dynamo` stored its wrapper on `recompute_fn`")
    );
    assert!(!issue.contains("[!WARNING]"), "{issue}");
    assert!(script.lines().count() < 120);
    assert!(text(&files, "repro.log").contains("verdict: reproduced"));
    for png in ["memory.png", "freed.png"] {
        assert!(files[png].starts_with(b"\x89PNG"), "{png}");
    }
    assert!(
        text(&files, "memory.svg").contains("uncollected") && files.contains_key("evidence/events.jsonl")
    );
    let page = text(&files, "report.html");
    for outside in ["src=", "<link", "@import", "url(http", "<script"] {
        assert!(!page.contains(outside), "the page asks for something: {outside}");
    }
    assert_eq!(names(context.path()), ["bundle", "bundle.zip"]);
}

#[test]
fn the_script_of_the_stock_twin_says_fixed() {
    let stock = Recorded::of("sac-stock");
    let finished = stock.context.run(["report", stock.run.to_str().unwrap()]);
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    assert!(finished.stdout.contains("says `fixed` too"), "{}", finished.stdout);
    let made =
        names(stock.context.path()).into_iter().find(|name| name.starts_with("report-sac-stock-torch-"));
    let issue = fs::read_to_string(stock.context.path().join(made.unwrap()).join("issue.md")).unwrap();
    assert!(issue.contains("Suggested title: No memory leak"), "{issue}");
}

/// Leaks through a cycle of a class whose name is markup, and prints what nobody may see.
const INDISCREET: &str = r#"
import os
import torch

Hostile = type("<script>alert(1)</script>", (), {})

def setup(ctx):
    print("I am", os.environ["USER"], "at", os.environ["HOME"] + "/projects/x")
    print("the key is", os.environ["WANDB_API_KEY"], "and HF_TOKEN=plain-token-1")
    print("https://ada:url-password@example.org/simple and ghp_0123456789abcdefABCDEF0123")
    print("on /home/grace/work, as grace knows; the project is moonshine")
    return None

def step(state):
    keeper = Hostile()
    keeper.tensor = torch.ones(65536)
    keeper.me = keeper
"#;

const PLANTED: [&str; 8] = [
    "ada",
    "/data/people",
    "correct-horse-battery",
    "plain-token-1",
    "url-password",
    "ghp_0123456789abcdef",
    "grace",
    "moonshine",
];

/// A run of [`INDISCREET`], by somebody with a name and a secret.
fn indiscreet(context: &Context) -> (PathBuf, Vec<(&'static str, String)>) {
    let home = context.path().join("data/people/ada");
    fs::create_dir_all(&home).unwrap();
    let cache = torchleak::cache::Cache::open(&torchleak::cache::CacheArgs::default()).unwrap();
    let variables = vec![
        ("HOME", home.display().to_string()),
        ("USER", "ada".to_owned()),
        ("WANDB_API_KEY", "correct-horse-battery".to_owned()),
        ("TORCHLEAK_CACHE_DIR", cache.root().display().to_string()),
    ];
    let case = context.program_case("ada-leaks", INDISCREET, "expect: [{verdict: reproduced}]");
    let yaml = fs::read_to_string(&case).unwrap();
    let summary = "<script>alert(1)</script> of ada on /home/grace/x, `unclosed | cell *bold* @everyone.";
    fs::write(&case, yaml.replace("A case of the tests.", &format!("\"{summary}\""))).unwrap();
    let mut command = context.command();
    command.args(["run", case.to_str().unwrap(), "--format", "json"]).envs(variables.clone());
    let finished = Finished::of(command.output().unwrap());
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    let document: Value = serde_json::from_str(&finished.stdout).unwrap();
    (context.path().join(document["cases"][0]["run_dir"].as_str().unwrap()), variables)
}

#[test]
fn nothing_private_and_no_markup_from_outside_is_in_a_bundle_unless_asked_for() {
    let context = Context::new();
    let (run, variables) = indiscreet(&context);
    let evidence =
        ["stdout.log", "cycles.json", "case.yaml"].map(|name| fs::read_to_string(run.join(name)).unwrap());
    for planted in ["ada", "correct-horse-battery", "url-password", "grace", "moonshine", "<script"] {
        assert!(evidence.iter().any(|text| text.contains(planted)), "`{planted}` was not planted");
    }
    let bundle = |output: &str, more: &[&str]| {
        let mut command = context.command();
        command
            .args(["report", run.to_str().unwrap(), "--output", output])
            .args(more)
            .envs(variables.clone());
        Finished::of(command.output().unwrap())
    };
    let finished = bundle("bundle", &["--redact", "moonshine"]);
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    let files = unpacked(&context);
    assert!(files.len() > 12, "{:?}", files.keys());
    let word = |word: &str| regex::Regex::new(&format!(r"(?i)\b{}\b", regex::escape(word))).unwrap();
    assert!(files.contains_key("evidence/user-leaks.py"), "{:?}", files.keys());
    for (name, bytes) in &files {
        let text = String::from_utf8_lossy(bytes);
        for planted in PLANTED {
            let found =
                if planted.len() < 6 { word(planted).is_match(&text) } else { text.contains(planted) };
            assert!(!found || name.ends_with(".png"), "`{planted}` is in {name}");
        }
        // What shows as a page or a picture; elsewhere markup is text.
        let is_shown = [".html", ".svg"].iter().any(|ending| name.ends_with(ending));
        assert!(!is_shown || !text.contains("<script"), "markup in {name}");
    }
    let issue = text(&files, "issue.md");
    let outside_of_code =
        regex::Regex::new("(?s)```.*?```|`[^`\n]*`").unwrap().replace_all(&issue, "").into_owned();
    assert!(!outside_of_code.contains("<script") && !outside_of_code.contains("*bold*"), "{outside_of_code}");
    assert!(issue.contains("&lt;script&gt;"), "{issue}");
    assert!(text(&files, "evidence/stdout.log").contains("I am user at ~/projects/x"));

    let finished = bundle("open", &["--no-redact"]);
    assert!(finished.stderr.contains("WARNING: nothing was taken out"), "{}", finished.stderr);
    let log = fs::read_to_string(context.path().join("open/evidence/stdout.log")).unwrap();
    assert!(log.contains("correct-horse-battery") && log.contains("I am ada at "));
}

#[test]
fn a_run_of_another_machine_makes_a_bundle_that_says_loudly_what_was_not_run() {
    let context = Context::new();
    let run = HEADLINE.copy_from_elsewhere(&context);
    let finished = report(&context, &run, &[]);
    assert_eq!(finished.code, 3, "{}", finished.stderr);
    assert!(finished.stderr.contains("WARNING: `repro.py` was not run here"), "{}", finished.stderr);
    let files = unpacked(&context);
    let issue = text(&files, "issue.md");
    assert!(issue.contains("> [!WARNING]\n> **`repro.py` was not run here"), "{issue}");
    assert!(issue.contains("**Not collected on this machine.**") && !files.contains_key("versions.txt"));
    assert!(text(&files, "report.html").contains("class=\"warning\""));
}

#[test]
fn a_program_and_its_script_have_the_dimensions_of_the_case() {
    let context = Context::new();
    let program = "def setup(ctx):\n    return ctx\n\ndef step(ctx):\n    \
                   box = [ctx.torch.zeros(ctx.dims['rows'] + ctx.rank, ctx.dims['columns'])]\n    box.append(box)\n";
    let keys = "dims: {rows: 300, columns: 256}\nretains: {tensors: [{name: box, shape: [rows, columns], per: step}]}\n\
                expect: [{verdict: reproduced}]";
    let case = context.program_case("dimensions", program, keys);
    let (document, code) = context.run_json(&[case.to_str().unwrap()]);
    assert_eq!(code, 0, "{document:#}");
    let finished = report(&context, Path::new(document["cases"][0]["run_dir"].as_str().unwrap()), &[]);
    assert_eq!(finished.code, 0, "{}{}", finished.stdout, finished.stderr);
}

#[test]
fn a_script_that_does_not_agree_is_said_loudly() {
    let context = Context::new();
    // It leaks for torchleak and not as a script of its own.
    let program = "import torch\n\nclass Keeper:\n    pass\n\ndef setup(ctx):\n    return None\n\ndef step(state):\n    \
                   keeper = Keeper()\n    keeper.tensor = torch.ones(65536)\n    if __name__ != '__main__':\n        \
                   keeper.me = keeper\n";
    let case = context.program_case("two-faced", program, "expect: [{verdict: reproduced}]");
    let (document, code) = context.run_json(&[case.to_str().unwrap()]);
    assert_eq!(code, 0, "{document:#}");
    let finished = report(&context, Path::new(document["cases"][0]["run_dir"].as_str().unwrap()), &[]);
    assert_eq!(finished.code, 1, "{}", finished.stderr);
    assert!(finished.stdout.contains("`repro.py` says `fixed` (exit code 0), and the run says `reproduced`"));
    let issue = fs::read_to_string(context.path().join("bundle/issue.md")).unwrap();
    assert!(issue.contains("> [!WARNING]\n> **`repro.py` says `fixed`"), "{issue}");
}

#[test]
fn what_other_commands_found_is_told() {
    let context = Context::new();
    let run = HEADLINE.copy_from_elsewhere(&context);
    let case = "sac-disable-recompute";
    let cell = |torch: &str, case: &str| {
        json!({"case": case, "torch": "label", "build": torch, "python": "3.11.7", "device": "cpu",
               "verdict": "reproduced", "growth_bytes_per_step": 1_048_576})
    };
    let matrix =
        json!({"schema": 1, "cells": [cell("2.10.0", case), cell("2.6.0", case), cell("1.0", "other")]});
    let bisect = json!({"schema": 1, "case": case, "reason": "the last good is <b>2.6.0</b>", "last_before": "2.6.0",
                        "first_after": "2.7.0", "tested": [{"candidate": "2.6.0", "verdict": "fixed"}]});
    let explain = json!({"schema": 1, "case": case, "sentence": "It needs `early_stop`.",
                         "conditions": [{"condition": "early_stop", "value": false, "verdict": "reproduced",
                                         "retained_bytes_per_step": 10112, "effect": "necessary"}]});
    for (name, document) in [("matrix.json", &matrix), ("bisect.json", &bisect), ("explain.json", &explain)] {
        context.write(name, &document.to_string());
    }
    // A run on another version is a row too, and its evidence is kept.
    let older = Context::new();
    let older_run = HEADLINE.copy(&older);
    edit_json(&older_run.join("environment.json"), |document| document["torch"] = json!("2.5.1+cpu"));
    let more = ["--matrix", "matrix.json", "--bisect", "bisect.json", "--explain", "explain.json"];
    assert_eq!(report(&context, &run, &[&[older_run.to_str().unwrap()][..], &more].concat()).code, 3);
    let files = unpacked(&context);
    assert!(files.contains_key("evidence-2/events.jsonl"), "{:?}", files.keys());
    let issue = text(&files, "issue.md");
    let section = issue.split("#### On which versions").nth(1).unwrap().split("####").next().unwrap();
    let rows: Vec<&str> =
        section.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next()).collect();
    assert_eq!(rows[..4], ["torch", "2.5.1+cpu", "2.6.0", "2.10.0"], "{section}");
    assert_eq!(rows.len(), 5, "and the run itself, but no other case: {section}");
    assert!(issue.contains("| early\\_stop | false | reproduced | 9.88 KiB | necessary |"), "{issue}");
    assert!(issue.contains("The last before the change is `2.6.0`") && !issue.contains("<b>"), "{issue}");
    let page = text(&files, "report.html");
    assert!(
        page.contains("id=\"versions\"")
            && page.contains("id=\"bisection\"")
            && page.contains("id=\"ablation\"")
    );

    // The document of one command is none of another, and one about another case is not taken.
    context.write("other.json", &json!({"case": "other", "conditions": []}).to_string());
    for (option, file, problem) in [
        ("--matrix", "bisect.json", "is no document of `torchleak matrix --format json`"),
        ("--explain", "other.json", "says nothing of the case `sac-disable-recompute`"),
        ("--bisect", "absent.json", "cannot be read"),
    ] {
        let refused = context.run(["report", run.to_str().unwrap(), option, file]);
        assert_eq!(refused.code, 2, "{}", refused.stderr);
        assert!(refused.stderr.contains(problem), "{}", refused.stderr);
    }
}

#[rstest]
#[case::no_folder(|run: &Path| fs::remove_dir_all(run).unwrap(), "run` cannot be read")]
#[case::no_events(|run: &Path| fs::remove_file(run.join("events.jsonl")).unwrap(), "there is no `events.jsonl` in it")]
#[case::no_control(|run: &Path| fs::remove_file(run.join("control.jsonl")).unwrap(), "there is no `control.jsonl` in it")]
#[case::no_verdict_file(|run: &Path| fs::remove_file(run.join("verdict.json")).unwrap(), "there is no `verdict.json` in it")]
#[case::interrupted(|run: &Path| edit_json(&run.join("verdict.json"), |file| file["verdict"] = Value::Null), "has no verdict")]
#[case::torn(tear, "of its `events.jsonl` cannot be read")]
#[case::empty(|run: &Path| fs::write(run.join("events.jsonl"), "").unwrap(), "no arm of it began")]
#[case::bad_case(|run: &Path| fs::write(run.join("case.yaml"), "name: [").unwrap(), "case.yaml")]
#[case::changed(
    |run: &Path| edit_json(&run.join("verdict.json"), |file| file["verdict"] = json!("fixed")),
    "its verdict is `fixed`, and by the rules of this torchleak its events give `reproduced`"
)]
fn a_run_folder_that_is_not_whole_is_refused(#[case] spoil: fn(&Path), #[case] problem: &str) {
    let context = Context::new();
    let run = HEADLINE.copy(&context);
    spoil(&run);
    let finished = report(&context, &run, &[]);
    assert_eq!(finished.code, 2, "{}", finished.stderr);
    assert!(finished.stderr.contains(problem) && finished.stderr.contains("try:"), "{}", finished.stderr);
    assert!(!context.path().join("bundle").exists() && !context.path().join("bundle.zip").exists());
}

/// Cuts the file off in the middle of its last line, as a full disk does.
fn tear(run: &Path) {
    let path = run.join("events.jsonl");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 40]).unwrap();
}

#[test]
fn runs_of_different_cases_and_a_taken_place_are_refused() {
    let context = Context::new();
    let run = HEADLINE.copy_from_elsewhere(&context);
    let other = context.path().join("other");
    fs::rename(&run, &other).unwrap();
    let run = HEADLINE.copy(&context);
    let yaml = fs::read_to_string(other.join("case.yaml")).unwrap();
    fs::write(other.join("case.yaml"), format!("{yaml}# changed\n")).unwrap();
    let refused = report(&context, &run, &[other.to_str().unwrap()]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("is a run of another case than"), "{}", refused.stderr);
    context.write("bundle.zip", "mine");
    let refused = report(&context, &run, &[]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("is there already"), "{}", refused.stderr);
    assert_eq!(fs::read_to_string(context.path().join("bundle.zip")).unwrap(), "mine");
}

#[test]
fn an_issue_that_has_no_room_names_the_file_to_attach() {
    let context = Context::new();
    let (run, _) = indiscreet(&context);
    edit_json(&run.join("environment.json"), |document| {
        document["python_executable"] = json!("/nowhere/python")
    });
    let program = run.join("ada-leaks.py");
    let long = fs::read_to_string(&program).unwrap() + &"# A line that nobody needs.\n".repeat(3000);
    fs::write(&program, long).unwrap();
    let finished = report(&context, &run, &[]);
    assert_eq!(finished.code, 3, "{}", finished.stderr);
    assert!(finished.stderr.contains("shorten the program"), "{}", finished.stderr);
    let issue = fs::read_to_string(context.path().join("bundle/issue.md")).unwrap();
    assert!(issue.len() < 65_536 && issue.contains("See the attached `repro.py`."), "{}", issue.len());
    assert!(issue.contains("| step | loss |"), "the rest is still there");
}

#[test]
fn an_interrupted_report_leaves_nothing() {
    let context = Context::new();
    let run = HEADLINE.copy(&context);
    let mut command = context.command();
    command.args(["report", run.to_str().unwrap(), "--output", "bundle"]).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let started = Instant::now();
    // By then it is aside, and torch is asked.
    while names(context.path()).len() < 2 {
        assert!(started.elapsed() < Duration::from_secs(120) && child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(50));
    }
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(names(context.path()), ["run"]);
}

#[rstest]
#[case::wide_light(1280, 1, "rgb(255, 255, 255)")]
#[case::wide_dark(1280, 0, "rgb(13, 17, 23)")]
#[case::narrow_light(400, 1, "rgb(255, 255, 255)")]
#[case::narrow_dark(400, 0, "rgb(13, 17, 23)")]
fn a_browser_shows_the_page_without_the_network(
    #[case] width: u32,
    #[case] scheme: u32,
    #[case] background: &str,
) {
    let browsers = ["chromium", "chromium-browser", "google-chrome"];
    let Some(browser) = browsers.iter().find_map(|name| which::which(name).ok()) else {
        return skipped("the page in a browser", "no Chromium is installed");
    };
    let context = Context::new();
    let run = HEADLINE.copy_from_elsewhere(&context);
    assert_eq!(report(&context, &run, &[]).code, 3);
    let page = fs::read_to_string(context.path().join("bundle/report.html")).unwrap();
    let answers = shown_by(&browser, &page, width, scheme);
    assert_eq!(answers["background"], background, "{answers}");
    assert_ne!(answers["letters"], background, "{answers}");
    assert!(answers["overflow"].as_i64().unwrap() <= 0, "it must be scrolled sideways: {answers}");
    for none in ["resources", "dead", "nameless", "uncaptioned", "unscoped", "unreachable"] {
        assert_eq!(answers[none], 0, "{none}: {answers}");
    }
    assert_eq!(
        (&answers["plots"], &answers["drawings"], &answers["landmarks"]),
        (&json!(2), &json!(1), &json!(4))
    );
}

#[test]
#[ignore = "it runs the script of every case, which takes about a quarter of an hour on two cores"]
fn the_script_of_every_case_agrees_with_its_run() {
    let context = Context::new();
    let (document, _) = context.run_json(&["--all", "--slow"]);
    let runs = document["cases"].as_array().unwrap().iter().filter_map(|case| case["run_dir"].as_str());
    let disagree: Vec<String> = runs
        .map(|run| (run, context.run(["report", run])))
        .filter(|(run, finished)| {
            let is_of_ranks = finished.stdout.contains("ranks, and the script one");
            if is_of_ranks {
                skipped(run, "its case trains several ranks, and a script is one process");
            }
            finished.code != 0 && !is_of_ranks
        })
        .map(|(run, finished)| format!("{run}: {}{}", finished.stdout, finished.stderr))
        .collect();
    assert!(disagree.is_empty(), "{}", disagree.join("\n"));
}
