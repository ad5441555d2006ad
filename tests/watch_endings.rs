//! `torchleak watch` on scripts that end early, are interrupted, or do to their process what torchleak must survive: each
//! is watched to its end, and works as without torchleak.

mod support;
#[path = "support/watched.rs"]
mod watched;

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rstest::rstest;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use support::{Context, Finished, wait_until};
use watched::{
    LOOP, SMALL, events, python, report, run_folder, steps, watch, watch_command, watched, with_script,
};

/// Ends in the middle, in the way that its argument names.
const ENDS: &str = "\
import os, signal, sys, torch
parameter = torch.nn.Parameter(torch.zeros(8))
optimizer = torch.optim.SGD([parameter], lr=0.1)
for index in range(8):
    parameter.grad = torch.ones(8)
    optimizer.step()
    if index == 5:
        exec(sys.argv[1])
";

#[rstest]
#[case::exit("sys.exit(7)", 7)]
#[case::exit_without_cleaning_up("os._exit(3)", 3)]
#[case::out_of_memory_killer("os.kill(os.getpid(), signal.SIGKILL)", 137)]
#[case::crash("os.kill(os.getpid(), signal.SIGSEGV)", 139)]
#[case::traceback("raise ValueError('boom')", 1)]
fn whatever_ends_a_script_its_code_is_passed_on_and_its_steps_are_kept(#[case] how: &str, #[case] code: i32) {
    let (report, finished, _context) = watched(ENDS, &[], &[how]);
    assert_eq!(finished.code, code, "{}", finished.stderr);
    assert_eq!(report["exit_code"], code);
    assert_eq!(steps(&report), [6]);
    if how.contains("boom") {
        assert!(finished.stderr.contains("Traceback") && finished.stderr.contains("ValueError: boom"));
        assert!(report["remarks"].to_string().contains("rank 0 was ended by ValueError: boom"), "{report:#}");
    }
}

#[test]
fn a_signal_reaches_the_script_and_the_report_follows() {
    let slow = ENDS.replace("range(8)", "range(1000)").replace("if index == 5:", "if index > 5:");
    let context = with_script(&slow);
    let mut command = watch_command(&context, &[], &["train.py", "import time; time.sleep(0.05)"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("an eighth step", 120, || events(context.path()).contains(r#""step":8"#));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let finished = Finished::of(child.wait_with_output().unwrap());
    assert_eq!(finished.code, 143, "{}", finished.stderr);
    assert!(steps(&report(&context))[0] >= 8);
    assert!(finished.stderr.contains("SIGTERM"), "{}", finished.stderr);
}

/// Counts until it has waited half a second in vain for another.
const COUNTS_INTERRUPTS: &str = "\
count = 0
def seen(*_):
    global count
    count += 1
signal.signal(signal.SIGINT, seen)
signal.alarm(300)
step()
open('ready', 'w').close()
known = -1
while count == 0 or count > known:
    known = count
    time.sleep(0.5)
print(count, flush=True)
";

/// A shell lets what it starts in the background ignore interrupts, also a `cargo test`.
const FOREGROUND: &str = "\
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
";

/// Runs a command as the only one of a terminal, and types Ctrl-C when the file `ready` is there.
const TERMINAL: &str = "\
import os, pty, sys, time
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
while not os.path.exists('ready'):
    time.sleep(0.05)
os.write(terminal, b'\\x03')
try:
    while text := os.read(terminal, 4096):
        os.write(1, text)
except OSError:
    pass
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
";

/// Watches the context's script by way of a Python program.
fn run_by(program: &str, context: &Context) -> Command {
    let watch = watch_command(context, &["--quiet"], &["train.py"]);
    let mut command = Command::new(python());
    command.args(["-c", program]).arg(watch.get_program()).args(watch.get_args()).current_dir(context.path());
    command
}

#[rstest]
#[case::to_torchleak_alone(kill_process)]
#[case::to_the_whole_group(kill_process_group)]
fn an_interrupt_reaches_the_script_once(#[case] send: fn(Pid, Signal) -> rustix::io::Result<()>) {
    let context = with_script(&[SMALL, COUNTS_INTERRUPTS].concat());
    let mut command = run_by(FOREGROUND, &context);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let child = command.spawn().unwrap();
    wait_until("the script's handler", 120, || context.path().join("ready").exists());
    send(Pid::from_child(&child), Signal::INT).unwrap();
    let finished = Finished::of(child.wait_with_output().unwrap());
    assert_eq!((finished.code, finished.stdout.as_str()), (0, "1\n"), "{}", finished.stderr);
}

#[test]
fn ctrl_c_in_a_terminal_reaches_the_script_once() {
    let context = with_script(&[SMALL, COUNTS_INTERRUPTS].concat());
    let finished = Finished::of(run_by(TERMINAL, &context).output().unwrap());
    assert_eq!(finished.code, 0, "{}{}", finished.stdout, finished.stderr);
    assert!(finished.stdout.contains("1\r\n") && !finished.stdout.contains("2\r\n"), "{}", finished.stdout);
}

#[test]
fn a_script_is_stopped_gracefully_after_the_steps_that_were_asked_for() {
    let (report, finished, _context) = watched(LOOP, &["--steps", "4"], &["1000", "-"]);
    assert_eq!((finished.code, steps(&report)), (0, vec![4]), "{}", finished.stderr);
    // `finally` has run, and nothing after it was an error.
    assert!(
        finished.stdout.contains("over") && !finished.stderr.contains("Traceback"),
        "{}",
        finished.stderr
    );
}

const CLOSES_DESCRIPTORS: &str = "\
step()
os.closerange(3, 600)
with open('own.csv', 'w') as file:
    step()
print(os.path.getsize('own.csv'))
step()
";

const INTERRUPTED_IN_A_COLLECTION: &str = "\
big = [[index] for index in range(2_000_000)]
step()
seen = 0
signal.signal(signal.SIGALRM, signal.default_int_handler)
for _ in range(3):
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    try:
        gc.collect()
        time.sleep(2)
    except KeyboardInterrupt:
        seen += 1
print(seen)
step()
step()
";

const INTERRUPTED_WHILE_MEASURED: &str = "\
class Preempted(Exception):
    pass
def preempt(*_):
    raise Preempted
big = [[index] for index in range(300_000)]
idle = threading.Thread(target=time.sleep, args=(600,), daemon=True)
idle.start()
signal.signal(signal.SIGALRM, preempt)
step()
signal.setitimer(signal.ITIMER_REAL, 1.0)
try:
    while True:
        step()
except Preempted:
    print('preempted')
step()
";

const REPLACES_THE_COLLECTOR: &str = "\
gc.collect = gc.disable = gc.set_debug = lambda *_: 0
for _ in range(3):
    box = [torch.ones(1000)]
    box.append(box)
    step()
del box
";

const TRAINS_IN_A_THREAD: &str = "\
def train():
    for _ in range(200):
        step()
try:
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    print('main goes on')
finally:
    print('over')
";

/// The alarm ends what would wait for ever.
const WAITS_FOR_WHAT_NEVER_COMES: &str = "\
signal.alarm(300)
def train():
    for _ in range(200):
        step()
threading.Thread(target=train).start()
try:
    os.read(os.pipe()[0], 1)
finally:
    print('over')
";

const LEAVES_THE_STEPS_TO_A_THREAD: &str = "\
def train():
    for _ in range(200):
        step()
threading.Thread(target=train).start()
print('over')
";

const FORKS: &str = "\
import multiprocessing
def tell():
    print(gc.isenabled(), gc.get_threshold(), flush=True)
def child():
    process = multiprocessing.get_context('fork').Process(target=tell)
    process.start()
    process.join()
gc.set_threshold(600, 9, 8)
step()
child()
gc.disable()
step()
child()
tell()
gc.enable()
gc.set_threshold(500, 9, 8)
child()
step()
child()
";

const FILLS_THE_DISK: &str = "\
step()
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
for _ in range(20):
    step()
print('over')
";

#[rstest]
#[case::closes_all_descriptors(CLOSES_DESCRIPTORS, &[], "0\n", r#""step":3"#)]
#[case::is_interrupted_in_a_collection(INTERRUPTED_IN_A_COLLECTION, &[], "3\n", r#""step":3"#)]
#[case::is_interrupted_while_measured(INTERRUPTED_WHILE_MEASURED, &["--mode", "debug"], "preempted\n", r#""ended""#)]
#[case::replaces_the_collector(REPLACES_THE_COLLECTOR, &["--mode", "debug"], "", r#""bytes":4000}},"shared""#)]
#[case::trains_in_a_thread(TRAINS_IN_A_THREAD, &["--steps", "5"], "over\n", r#""stopped","steps":5}"#)]
#[case::waits_for_what_never_comes(WAITS_FOR_WHAT_NEVER_COMES, &["--steps", "5"], "over\n", r#""stopped","steps":5}"#)]
#[case::leaves_the_steps_to_a_thread(LEAVES_THE_STEPS_TO_A_THREAD, &["--steps", "5"], "over\n", r#""stopped","steps":5}"#)]
#[case::forks(
    FORKS,
    &["--mode", "compare"],
    "True (600, 9, 8)\nFalse (600, 9, 8)\nFalse (0, 9, 8)\nTrue (500, 9, 8)\nTrue (500, 9, 8)\n",
    r#""step":3"#
)]
fn a_script_is_watched_to_its_end_and_works_as_without_torchleak_if_it(
    #[case] script: &str,
    #[case] options: &[&str],
    #[case] printed: &str,
    #[case] event: &str,
) {
    let context = with_script(&[SMALL, script].concat());
    let finished = watch(&context, options, &["train.py"]);
    assert_eq!((finished.code, finished.stdout.as_str()), (0, printed), "{}", finished.stderr);
    let events = events(context.path());
    assert!(events.contains(event), "{events}");
    assert!(!finished.stderr.contains("Traceback"), "{}", finished.stderr);
    assert_eq!(events.matches(r#""event":"ended""#).count(), 1, "{events}");
    assert!(events.matches(r#""event":"stopped""#).count() <= 1, "{events}");
}

#[test]
fn a_file_of_events_that_cannot_be_written_leaves_word_of_that() {
    let (report, finished, _context) = watched(&[SMALL, FILLS_THE_DISK].concat(), &[], &[]);
    assert_eq!((finished.code, finished.stdout.as_str()), (4, "over\n"), "{}", finished.stderr);
    let pid = &report["ranks"][0]["pid"];
    assert!(run_folder(&report).join(format!("events/failed-{pid}")).is_file(), "{report:#}");
    assert!(finished.stderr.contains(&format!("process-{pid}.jsonl")), "{}", finished.stderr);
}

/// Puts a full disk in the place of a file of the run folder, and ends as its other argument says.
const LOSES_A_FILE: &str = "\
import glob
for _ in range(4):
    step()
os.symlink('/dev/full', os.path.join(glob.glob('runs/*')[0], sys.argv[1]))
sys.exit(int(sys.argv[2]))
";

#[rstest]
#[case::the_verdict("verdict.json", "0", 4)]
#[case::the_environment("environment.json", "0", 4)]
#[case::the_verdict_of_a_script_that_fails("verdict.json", "7", 7)]
fn what_of_the_run_folder_cannot_be_written_is_named_below_the_verdict(
    #[case] file: &str,
    #[case] ends: &str,
    #[case] code: i32,
) {
    let (report, finished, _context) = watched(&[SMALL, LOSES_A_FILE].concat(), &[], &[file, ends]);
    assert_eq!(finished.code, code, "{}", finished.stderr);
    let (verdict, error) = finished.stderr.split_once("kept in").expect("a verdict");
    assert!(verdict.contains("torchleak: inconclusive"), "{}", finished.stderr);
    assert!(error.contains(&format!("{file}` (No space left on device")), "{error}");
    assert!(!error.contains("WARN"), "{error}");
    assert!(!run_folder(&report).join(file).exists());
}
