//! Every way in which a real worker can end: each gives its case a verdict with a reason, and the
//! other cases go on.

mod support;

use std::sync::OnceLock;

use rstest::rstest;
use serde_json::Value;
use support::{Context, case};

/// The beginning of every program. `write` reaches the event pipe behind the worker's back.
const PROLOGUE: &str = "\
import os, signal, stat, sys, time

def setup(ctx):
    return {'ctx': ctx, 'step': 0}

def is_pipe(fd):
    try:
        return stat.S_ISFIFO(os.fstat(fd).st_mode)
    except OSError:
        return False

def write(data):
    for fd in filter(is_pipe, range(3, 64)):
        try:
            os.write(fd, data)
        except OSError:
            pass

def step(state):
    state['step'] += 1
    torch, third = state['ctx'].torch, state['step'] == 3
";

/// A program that keeps nothing and does `body` in each step.
fn step_does(body: &str) -> String {
    format!("{PROLOGUE}    {body}\n    return 1.0\n")
}

const PROGRAMS: [(&str, &str); 14] = [
    ("raises", "if third: raise ValueError('the third step is bad')"),
    ("exits", "if third: sys.exit(7)"),
    ("exits-at-once", "if third: os._exit(7)"),
    ("is-killed", "if third: os.kill(os.getpid(), signal.SIGKILL)"),
    ("crashes", "if third: os.kill(os.getpid(), signal.SIGSEGV)"),
    ("hangs", "if third: time.sleep(600)"),
    ("writes-garbage", r"if third: write(b'\xff\x00 not JSON\n')"),
    ("writes-half-a-line", r#"if third: write(b'{"event":"step","st'); os._exit(0)"#),
    // Nothing touches these pages, so that only the limit of the address space refuses them.
    ("needs-memory", "if third: torch.empty(60 << 30, dtype=torch.uint8)"),
    ("differs", "return time.time() + os.getpid()"),
    ("kills-its-host", "if third: os.kill(os.getppid(), signal.SIGKILL); time.sleep(600)"),
    ("has-no-stdout", "sys.stdout = None"),
    ("has-a-stdout-of-its-own", "sys.stdout = object()"),
    (
        "prints",
        r#"print('{"event":"step"}', flush=True); os.write(2, b'\x1b[31mnoise\n'); os.write(1, b'\xff\xfe\n')"#,
    ),
];

struct Ran {
    document: Value,
    code: i32,
    context: Context,
}

/// All programs run in one torchleak, so that each also shows that the others go on.
fn ran() -> &'static Ran {
    static RAN: OnceLock<Ran> = OnceLock::new();
    RAN.get_or_init(|| {
        let context = Context::new();
        let paths: Vec<String> = PROGRAMS
            .iter()
            .map(|(name, body)| {
                context.program_case(name, &step_does(body), "device: cpu").display().to_string()
            })
            .collect();
        // The address space of a worker that has imported torch is several GiB before it allocates.
        let options = ["--device", "cpu", "--deadline", "15", "--memory-limit", "48GiB"];
        let arguments: Vec<&str> = options.into_iter().chain(paths.iter().map(String::as_str)).collect();
        let (document, code) = context.run_json(&arguments);
        Ran { document, code, context }
    })
}

#[rstest]
#[case("raises", "raised ValueError: the third step is bad")]
#[case("exits", "raised SystemExit: 7")]
#[case("exits-at-once", "exited with code 7 before its last step")]
#[case("is-killed", "was killed by signal 9 (SIGKILL)")]
#[case("crashes", "was killed by signal 11 (SIGSEGV)")]
#[case("hangs", "ran past its deadline of 15 s")]
#[case("writes-garbage", "wrote a line that is no message")]
#[case("writes-half-a-line", "exited with code 0 before its last step")]
#[case("needs-memory", "ran out of memory")]
#[case("differs", "the arms are not the same experiment: at step 1")]
#[case("kills-its-host", "lost its worker host, which died")]
fn a_worker_that_fails_gives_the_verdict_error_with_the_reason(#[case] name: &str, #[case] reason: &str) {
    let case = case(&ran().document, name);
    assert_eq!(case["verdict"], "error", "{case:#}");
    let said = case["reason"].as_str().unwrap();
    assert!(said.contains(reason), "{said}");
    assert_eq!(case["ok"], false);
}

#[rstest]
#[case("raises", "raise ValueError('the third step is bad')")]
#[case("writes-half-a-line", "its last message breaks off: {\\\"event\\\":\\\"step\\\",\\\"st")]
fn the_reason_shows_the_last_lines_and_the_log(#[case] name: &str, #[case] line: &str) {
    let case = case(&ran().document, name);
    let said = case["reason"].as_str().unwrap();
    assert!(said.contains(line), "{said}");
    let log = format!("(log: {}/stdout.log)", case["run_dir"].as_str().unwrap());
    assert!(said.contains(&log), "{said}");
}

#[test]
fn what_a_program_prints_is_kept_and_corrupts_nothing() {
    let case = case(&ran().document, "prints");
    assert_eq!(case["verdict"], "fixed", "{case:#}");
    let log = ran().context.path().join(case["run_dir"].as_str().unwrap()).join("stdout.log");
    let log = std::fs::read_to_string(log).unwrap();
    assert_eq!(log.matches("[uncollected] {\"event\":\"step\"}").count(), 5, "{log}");
    assert!(log.contains("[collected] \u{1b}[31mnoise"), "{log}");
}

#[rstest]
#[case("has-no-stdout")]
#[case("has-a-stdout-of-its-own")]
fn a_program_may_replace_its_standard_output(#[case] name: &str) {
    let case = case(&ran().document, name);
    assert_eq!(case["verdict"], "fixed", "{case:#}");
}

#[test]
fn a_cold_arm_may_replace_its_standard_output() {
    let context = Context::new();
    let path =
        context.program_case("replaces", &step_does("sys.stdout = None"), "device: cpu\nimports: cold");
    let (document, code) = context.run_json(&["--device", "cpu", path.to_str().unwrap()]);
    assert_eq!(code, 0, "{document:#}");
}

/// One case ends its host; the others run beside it and lose nothing by it.
#[rstest]
#[case::that_dies("os.kill(os.getppid(), signal.SIGKILL)", "lost its worker host, which died")]
#[case::that_hangs("os.kill(os.getppid(), signal.SIGSTOP)", "ran past its deadline of 15 s")]
fn only_the_culprit_suffers_from_a_host(#[case] body: &str, #[case] reason: &str) {
    let context = Context::new();
    let culprit = step_does(&format!("if third: time.sleep(1); {body}; time.sleep(600)"));
    let culprit = context.program_case("culprit", &culprit, "device: cpu");
    let innocent = context.program_case("innocent", &step_does("time.sleep(0.3)"), "device: cpu");
    let (document, code) = context.run_json(&[
        "--device",
        "cpu",
        "--jobs",
        "8",
        "--deadline",
        "15",
        culprit.to_str().unwrap(),
        innocent.to_str().unwrap(),
    ]);
    let said = case(&document, "culprit")["reason"].as_str().unwrap();
    assert!(said.contains(reason), "{said}");
    let innocent = case(&document, "innocent");
    assert_eq!(innocent["verdict"], "fixed", "{innocent:#}");
    let steps = innocent["arms"]["uncollected"]["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 5, "only the last attempt counts");
    if body.contains("SIGKILL") {
        // Beside a host that only hangs an arm goes on to its end.
        let events = context.path().join(innocent["run_dir"].as_str().unwrap()).join("events.jsonl");
        let events = std::fs::read_to_string(events).unwrap();
        assert!(events.contains(r#"{"arm":"uncollected","event":"restarted"}"#), "{events}");
    }
    assert_eq!(code, 4);
}

#[test]
fn steps_before_a_failure_are_kept() {
    let case = case(&ran().document, "crashes");
    assert_eq!(case["arms"]["uncollected"]["steps"].as_array().unwrap().len(), 2);
    let events = ran().context.path().join(case["run_dir"].as_str().unwrap()).join("events.jsonl");
    let events = std::fs::read_to_string(events).unwrap();
    let kept = events.lines().filter(|line| line.starts_with(r#"{"arm":"uncollected","event":"step""#));
    assert_eq!(kept.count(), 2, "{events}");
}

#[test]
fn a_run_without_all_verdicts_has_exit_code_4() {
    assert_eq!(ran().code, 4);
}

#[test]
fn a_full_disk_stops_the_arm_with_the_file_and_the_cause() {
    let context = Context::new();
    let path = context.program_case("fills", &step_does("pass"), "device: cpu");
    let long = std::fs::read_to_string(&path).unwrap().replace("steps: 5", "steps: 500");
    context.write("fills.yaml", &long);
    // The worker is unpacked before a limit on file sizes stands in for a full disk.
    assert_eq!(context.run(["run", "--device", "cpu"]).code, 0);
    let script = format!(
        "trap '' XFSZ; ulimit -f 32; exec {} run --device cpu --format json {}",
        env!("CARGO_BIN_EXE_torchleak"),
        path.display()
    );
    let mut shell = std::process::Command::new("bash");
    let output = shell.arg("-c").arg(script).current_dir(context.path()).output().unwrap();
    let finished = support::Finished::of(output);
    let document: Value = serde_json::from_str(&finished.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}\n{}", finished.stdout, finished.stderr));
    let case = case(&document, "fills");
    assert_eq!(case["verdict"], "error", "{case:#}");
    let reason = case["reason"].as_str().unwrap();
    assert!(reason.contains("events cannot be saved") && reason.contains("events.jsonl"), "{reason}");
    assert_eq!(finished.code, 4);
    assert!(!case["arms"]["uncollected"]["steps"].as_array().unwrap().is_empty());
}
