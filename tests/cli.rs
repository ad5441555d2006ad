//! The command line as a user meets it: outputs, errors and exit codes.

mod support;

use std::process::Command;

use rstest::rstest;
use support::Context;

/// A program that keeps one cycle with `size` bytes a step.
fn leaks(size: &str) -> String {
    format!(
        "def setup(ctx):\n    return ctx\n\
         def step(ctx):\n    cycle = [ctx.torch.zeros({size}, dtype=ctx.torch.uint8)]\n    cycle.append(cycle)\n    \
         return {{'loss': 2.5, 'tokens': 1000}}\n"
    )
}

#[test]
fn a_person_reads_a_table_then_the_verdict_with_its_numbers_and_the_reason() {
    let context = Context::new();
    let keys = "device: cpu\nretains: {tensors: [{name: payload, shape: [65536], dtype: uint8, per: step}]}\n\
                expect: [{verdict: reproduced}]";
    let path = context.program_case("plants", &leaks("65536"), keys);
    let finished = context.run(["run", "--device", "cpu", path.to_str().unwrap()]);
    assert_eq!(finished.code, 0, "{}\n{}", finished.stdout, finished.stderr);
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_omit_expression(true);
    for (pattern, shown) in [
        (r"\d{8}T\d{6}Z", "[TIME]"),
        (r" +-?\d+(\.\d\d)? (B|KiB|MiB|GiB)", "  [SIZE]"),
        (r"(?m)^ +step.*$", "  [HEADER]"),
        (
            r"torch \S+ \(commit \w+\), Python \S+, CPU",
            "torch [VERSION] (commit [COMMIT]), Python [VERSION], CPU",
        ),
    ] {
        settings.add_filter(pattern, shown);
    }
    settings.bind(|| insta::assert_snapshot!("a_run_for_a_person", finished.stdout));
}

#[test]
fn titan_lines_are_printed_for_every_arm() {
    let context = Context::new();
    let path = context.program_case(
        "plants",
        &leaks("65536"),
        "device: cpu\narms: [uncollected, collected, periodic: {gc_freq: 2}]\nexpect: [{verdict: reproduced}]",
    );
    let finished = context.run(["run", "--device", "cpu", "--format", "titan", path.to_str().unwrap()]);
    assert_eq!(finished.code, 0, "{}\n{}", finished.stdout, finished.stderr);
    let steps: Vec<&str> = finished.stdout.lines().filter(|line| line.starts_with("step: ")).collect();
    assert_eq!(steps.len(), 15);
    for step in steps {
        assert!(
            step.contains("  loss:  2.50000  memory: ")
                && step.contains("GiB(")
                && step.contains("%)  tps: "),
            "{step}"
        );
    }
    let collections = finished.stdout.matches("[GC] Forced collection of generation ").count();
    assert_eq!(collections, 5 + 2);
}

#[rstest]
#[case(&["run", "sac-stok"], "sac-stock")]
#[case(&["run", "nowhere.yaml"], "nowhere.yaml")]
#[case(&["run", "./"], "this is a folder")]
#[case(&["run", "--torch", "banana"], "banana")]
#[case(&["run", "--python", "python3", "--torch", "2.13.0"], "--torch")]
#[case(&["run", "--all", "sac-stock"], "--all")]
#[case(&["run", "--slow"], "--all")]
#[case(&["run", "--deadline", "0"], "--deadline")]
#[case(&["run", "--memory-limit", "much"], "--memory-limit")]
#[case(&["run", "--format", "xml"], "xml")]
#[case(&["env", "prune"], "--older-than")]
#[case(&["explode"], "explode")]
fn bad_usage_has_exit_code_2_and_names_the_culprit(#[case] arguments: &[&str], #[case] culprit: &str) {
    let context = Context::new();
    let mut command = context.command();
    command.env_remove("TORCHLEAK_PYTHON").env_remove("TORCHLEAK_TORCH").args(arguments);
    let finished = support::Finished::of(command.output().unwrap());
    assert_eq!(finished.code, 2, "{}", finished.stderr);
    assert!(finished.stderr.contains(culprit), "{}", finished.stderr);
    assert_eq!(finished.stdout, "", "an error belongs on standard error");
}

#[rstest]
#[case(&["run", "--python", "/nonexistent/python"], "/nonexistent/python")]
#[case(&["run", "--python", "/bin/cat"], "/bin/cat")]
fn no_environment_has_exit_code_3_with_the_path(#[case] arguments: &[&str], #[case] culprit: &str) {
    let finished = Context::new().run(arguments);
    assert_eq!(finished.code, 3, "{}", finished.stderr);
    assert!(finished.stderr.contains(culprit) && finished.stderr.contains("try: "), "{}", finished.stderr);
}

#[test]
fn cuda_where_there_is_none_has_exit_code_3() {
    if std::path::Path::new("/dev/nvidiactl").exists() {
        support::skipped("cuda_where_there_is_none_has_exit_code_3", "this machine has a GPU");
        return;
    }
    let finished = Context::new().run(["run", "--device", "cuda"]);
    assert_eq!(finished.code, 3, "{}", finished.stderr);
    assert!(finished.stderr.contains("sees no CUDA device"), "{}", finished.stderr);
}

#[test]
fn a_run_folder_that_cannot_be_made_is_an_error_with_its_path() {
    let context = Context::new();
    context.write("file", "");
    let finished = context.run(["run", "--runs", "file/runs"]);
    assert_eq!(finished.code, 4, "{}", finished.stderr);
    assert!(
        finished.stderr.contains("file/runs") && finished.stderr.contains("--runs"),
        "{}",
        finished.stderr
    );
}

#[rstest]
#[case::leak("65536", "reproduced", "expect", 0)]
#[case::leak_that_should_be_fixed("65536", "fixed", "expect", 1)]
#[case::leak_in_a_bisection("65536", "fixed", "bisect", 1)]
#[case::no_leak_in_a_bisection("0", "reproduced", "bisect", 0)]
fn the_exit_code_says_what_was_asked_for(
    #[case] size: &str,
    #[case] expected: &str,
    #[case] mode: &str,
    #[case] code: i32,
) {
    let context = Context::new();
    let keys = format!("device: cpu\nexpect: [{{verdict: {expected}}}]");
    let path = context.program_case("plants", &leaks(size), &keys);
    let finished = context.run(["run", "--device", "cpu", "--exit-code", mode, path.to_str().unwrap()]);
    assert_eq!(finished.code, code, "{}\n{}", finished.stdout, finished.stderr);
}

#[test]
fn a_bisection_skips_what_has_no_environment_and_stops_at_bad_usage() {
    let context = Context::new();
    let code =
        |arguments: &[&str]| context.run(["run", "--exit-code", "bisect"].iter().chain(arguments)).code;
    assert_eq!(code(&["--python", "/nonexistent/python"]), 125);
    assert_eq!(code(&["no-such-case"]), 128);
    assert_eq!(code(&["--no-such-option"]), 128);
    assert_eq!(code(&["--deadline", "0"]), 128);
    assert_eq!(context.run(["run", "--deadline", "0", "--exit-code=bisect"]).code, 128);
}

#[rstest]
#[case::bad_usage(&["run", "no-such-case"], "/dev/full", 2)]
#[case::bad_usage_and_no_reader(&["run", "--torch", "banana"], "closed", 2)]
#[case::a_run(&["run", "--device", "cpu", "flat.yaml"], "/dev/full", 0)]
fn a_standard_error_that_cannot_be_written_changes_nothing(
    #[case] arguments: &[&str],
    #[case] stderr: &str,
    #[case] code: i32,
) {
    let context = Context::new();
    context.program_case("flat", &leaks("0"), "device: cpu");
    let stderr = if stderr == "closed" {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        std::process::Stdio::from(std::os::fd::OwnedFd::from(writer))
    } else {
        std::fs::OpenOptions::new().write(true).open(stderr).unwrap().into()
    };
    let mut command = context.command();
    command.env_remove("TORCHLEAK_TORCH").args(arguments).stderr(stderr);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_full_standard_output_is_an_error_and_a_closed_one_is_not() {
    let context = Context::new();
    let mut command = context.command();
    command.arg("list").stdout(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    let finished = support::Finished::of(command.output().unwrap());
    assert_eq!(finished.code, 4);
    assert!(finished.stderr.contains("standard output cannot be written"), "{}", finished.stderr);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = context.command();
    command.arg("list").stdout(std::process::Stdio::from(std::os::fd::OwnedFd::from(writer)));
    assert_eq!(command.output().unwrap().status.code(), Some(0));
}

/// Puts a full disk in the place of a file of the run folder.
fn loses(file: &str) -> String {
    let setup = format!(
        "import glob, os\n\
         def setup(ctx):\n    folder = os.path.dirname(__file__)\n    \
         for run in glob.glob(os.path.join(folder, 'runs', '*')):\n        place = os.path.join(run, '{file}')\n        \
         if not os.path.lexists(place):\n            os.symlink('/dev/full', place)\n    return ctx\n"
    );
    leaks("65536").replace("def setup(ctx):\n    return ctx\n", &setup)
}

#[rstest]
#[case("verdict.json")]
#[case("control.jsonl")]
#[case("cycles.html")]
fn a_file_of_the_run_folder_that_cannot_be_written_is_an_error_below_the_verdict(#[case] file: &str) {
    let context = Context::new();
    let path = context.program_case("loses", &loses(file), "device: cpu\nexpect: [{verdict: reproduced}]");
    let finished = context.run(["run", "--device", "cpu", path.to_str().unwrap()]);
    assert_eq!(finished.code, 4, "{}\n{}", finished.stdout, finished.stderr);
    assert!(finished.stdout.contains("reproduced (as expected)"), "{}", finished.stdout);
    assert!(finished.stdout.contains("kept in part in runs/"), "{}", finished.stdout);
    let said = &finished.stderr;
    assert!(said.contains("error: files of the run folder cannot be written: `runs/"), "{said}");
    assert!(said.contains(&format!("{file}` (No space left on device")), "{said}");
    assert!(said.contains("try: choose another folder with --runs, or free some space"), "{said}");
    assert!(!said.contains("WARN"), "{said}");
}

#[rstest]
#[case::empty("", 3, "/nonexistent/python")]
#[case::unknown("tpu", 2, "TORCHLEAK_DEVICE is `tpu`")]
#[case::known("cpu", 3, "/nonexistent/python")]
fn the_device_may_come_from_a_variable(#[case] value: &str, #[case] code: i32, #[case] said: &str) {
    let context = Context::new();
    let mut command = context.command();
    command.env("TORCHLEAK_DEVICE", value).args(["run", "--python", "/nonexistent/python"]);
    let finished = support::Finished::of(command.output().unwrap());
    assert_eq!(finished.code, code, "{}", finished.stderr);
    assert!(finished.stderr.contains(said), "{}", finished.stderr);
}

#[test]
fn a_run_folder_keeps_the_verdict_and_the_control() {
    let context = Context::new();
    let path = context.program_case("flat", &leaks("0"), "device: cpu");
    let (document, _) = context.run_json(&["--device", "cpu", path.to_str().unwrap()]);
    let case = support::case(&document, "flat");
    let folder = context.path().join(case["run_dir"].as_str().unwrap());
    let read = |name| std::fs::read_to_string(folder.join(name)).unwrap();
    let verdict: serde_json::Value = serde_json::from_str(&read("verdict.json")).unwrap();
    for key in ["name", "verdict", "reason", "expected", "ok"] {
        assert_eq!(verdict[key], case[key]);
    }
    assert_eq!(verdict["numbers"]["garbage_objects_per_step"], case["garbage_objects_per_step"]);
    // Without these a folder that was copied from another machine could not be joined with others.
    assert_eq!(verdict["device"], "cpu");
    assert!(verdict["seconds"].as_f64().unwrap() > 0.0, "{verdict}");
    let control = read("control.jsonl");
    for arm in ["uncollected", "collected", "garbage"] {
        assert!(control.contains(&format!(r#"{{"arm":"{arm}","event":"ended""#)), "{control}");
    }
}

#[test]
fn a_case_for_another_device_is_said_to_be_skipped() {
    let context = Context::new();
    let path = context.program_case("on-cuda", &leaks("16"), "device: cuda");
    let (document, code) = context.run_json(&["--device", "cpu", path.to_str().unwrap()]);
    assert_eq!(document["cases"][0]["skipped"], true);
    assert_eq!(document["cases"][0]["verdict"], serde_json::Value::Null);
    assert_eq!(document["cases"][0]["reason"], "the case is about CUDA and this run is on the CPU");
    assert_eq!(code, 4, "a case that was asked for by name and not run has no verdict");
}

#[test]
fn a_case_that_needs_more_memory_than_there_is_is_refused_with_both_numbers() {
    let context = Context::new();
    let path = context.program_case("huge", &leaks("16"), "device: cpu\nmemory: 900TiB");
    let (document, code) = context.run_json(&["--device", "cpu", path.to_str().unwrap()]);
    let reason = document["cases"][0]["reason"].as_str().unwrap();
    assert!(reason.starts_with("an arm needs 900.00 TiB of memory and "), "{reason}");
    assert_eq!(code, 4);
}

#[test]
fn a_cold_arm_has_not_imported_dynamo_and_a_warm_one_has() {
    let program = "\
import sys
def setup(ctx):
    return 'torch._dynamo' in sys.modules
def step(state):
    return float(state)
";
    let context = Context::new();
    let cold = context.program_case("cold", program, "device: cpu\nimports: cold");
    let warm = context.program_case("warm", program, "device: cpu\nimports: warm");
    let (document, code) =
        context.run_json(&["--device", "cpu", cold.to_str().unwrap(), warm.to_str().unwrap()]);
    assert_eq!(code, 0, "{document:#}");
    let loss = |name| &support::case(&document, name)["arms"]["uncollected"]["steps"][0]["loss"];
    assert_eq!((loss("cold").as_f64(), loss("warm").as_f64()), (Some(0.0), Some(1.0)));
}

#[test]
fn the_list_names_every_shipped_case() {
    let finished = Context::new().run(["list"]);
    assert_eq!(finished.code, 0);
    for entry in std::fs::read_dir("cases").unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let name = path.file_stem().unwrap().to_str().unwrap();
            assert!(finished.stdout.contains(name), "{name} is not in\n{}", finished.stdout);
        }
    }
}

#[test]
fn the_printed_schema_is_the_committed_one() {
    let finished = Context::new().run(["schema"]);
    assert_eq!(finished.stdout.trim(), std::fs::read_to_string("cases/schema.json").unwrap().trim());
}

#[test]
fn bash_takes_the_completions_and_every_command_has_a_manual_page() {
    let context = Context::new();
    let completions = context.run(["completions", "bash"]);
    context.write("completions", &completions.stdout);
    let bash = Command::new("bash").arg("-n").arg(context.path().join("completions")).status().unwrap();
    assert!(completions.code == 0 && bash.success());
    assert_eq!(context.run(["man", "."]).code, 0);
    let help = context.run(["--help"]).stdout;
    // A description that is too long goes on further right.
    let is_command = |line: &&str| line.starts_with("  ") && !line.starts_with("   ");
    let commands =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names: Vec<&str> =
        commands.filter(is_command).filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.contains(&"watch") && names.contains(&"help"), "{help}");
    for command in names.into_iter().filter(|name| *name != "help") {
        let page = std::fs::read_to_string(context.path().join(format!("torchleak-{command}.1"))).unwrap();
        assert!(page.contains(".SH NAME"), "{command}: {page}");
    }
    let nowhere = context.run(["man", "no/such/folder"]);
    assert!(nowhere.code == 4 && nowhere.stderr.contains("no/such/folder"), "{}", nowhere.stderr);
}

#[test]
fn doctor_names_what_a_run_needs() {
    let (code, document) = {
        let finished = Context::new().run(["doctor", "--format", "json"]);
        (finished.code, serde_json::from_str::<serde_json::Value>(&finished.stdout).unwrap())
    };
    let names: Vec<&str> =
        document["checks"].as_array().unwrap().iter().filter_map(|check| check["name"].as_str()).collect();
    for name in ["uv", "gpu", "disk", "memory", "cores", "cache"] {
        assert!(
            names.iter().any(|found| found.to_lowercase().contains(name)),
            "{name} is not among {names:?}"
        );
    }
    assert_eq!(code == 0, document["well"] == true);
}
