//! Ctrl-C in the middle of a run: nothing is left running and nothing recorded is lost.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use rstest::rstest;
use rustix::process::{Pid, Signal, kill_process};
use support::{Context, is_running, wait_until};

/// Starts children of its own in the background, one in a session of its own, and notes their pids; then
/// each step takes a while.
const SLOW: &str = "\
import os, subprocess, time
def setup(ctx):
    note(os.getpid())
    note(os.getppid())
    child = subprocess.Popen(['sleep', '600'])
    note(child.pid)
    note(subprocess.Popen(['sleep', '600'], start_new_session=True).pid)
    return child
def note(pid):
    with open(os.path.join(os.path.dirname(__file__), 'pids'), 'a') as file:
        file.write(f'{pid}\\n')
def step(state):
    time.sleep(0.2)
    return 1.0
";

fn start(context: &Context) -> Child {
    let yaml = context.program_case("slow", SLOW, "device: cpu");
    let long = std::fs::read_to_string(&yaml).unwrap().replace("steps: 5", "steps: 500");
    let yaml = context.write("slow.yaml", &long);
    let mut command = context.command();
    command.args(["run", "--device", "cpu"]).arg(yaml).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn events(context: &Context) -> Option<PathBuf> {
    let run = std::fs::read_dir(context.path().join("runs")).ok()?.next()?.ok()?.path();
    Some(run.join("events.jsonl"))
}

fn steps_in(events: &Path) -> usize {
    let text = std::fs::read_to_string(events).unwrap_or_default();
    text.lines().filter(|line| line.contains(r#""event":"step""#)).count()
}

fn pids(context: &Context) -> Vec<i32> {
    let text = std::fs::read_to_string(context.path().join("pids")).unwrap();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[rstest]
#[case::ctrl_c(Signal::INT)]
#[case::terminate(Signal::TERM)]
fn an_interrupted_run_keeps_its_events_and_leaves_no_process(#[case] with: Signal) {
    let context = Context::new();
    let child = start(&context);
    wait_until("two steps on disk", 120, || events(&context).is_some_and(|path| steps_in(&path) >= 2));
    signal(&child, with);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("interrupted") && said.contains("kept in"), "{said}");
    assert!(steps_in(&events(&context).unwrap()) >= 2);
    wait_until("every process gone", 10, || !pids(&context).into_iter().any(is_running));
}

#[test]
fn what_a_program_started_does_not_outlive_its_arm() {
    let context = Context::new();
    // A shell's own child comes to the host too, once the shell is gone.
    let quick = SLOW.replace("time.sleep(0.2)", "os.system('setsid sleep 600 & echo $! >> pids')");
    let quick = quick.replace("def setup(ctx):", "def setup(ctx):\n    os.chdir(os.path.dirname(__file__))");
    let yaml = context.program_case("quick", &quick, "device: cpu");
    let (_, code) = context.run_json(&["--device", "cpu", yaml.to_str().unwrap()]);
    assert_eq!(code, 0);
    let left: Vec<i32> = pids(&context).into_iter().filter(|pid| is_running(*pid)).collect();
    assert!(left.is_empty(), "{left:?} run still");
    assert!(pids(&context).len() >= 3 * (4 + 5));
}

#[test]
fn a_torchleak_that_is_killed_takes_its_workers_along() {
    let context = Context::new();
    let mut child = start(&context);
    wait_until("two steps on disk", 120, || events(&context).is_some_and(|path| steps_in(&path) >= 2));
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    wait_until("every process gone", 10, || !pids(&context).into_iter().any(is_running));
}
