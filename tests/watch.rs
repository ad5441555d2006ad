//! `torchleak watch` on real scripts with real torch: what the script does is as without it, and what it leaks is
//! told.

mod support;
#[path = "support/watched.rs"]
mod watched;

use std::process::Command;

use rstest::rstest;
use serde_json::Value;
use support::{Context, Finished};
use watched::{
    LOOP, SMALL, events, python, report, run_folder, steps, watch, watch_command, watched, with_script,
};

/// One rank of two; the last leaks. It sleeps because gloo's threads let go of the last gradients a moment after they are
/// done, and one that does so while Python ends aborts its process.
const RANKS: &str = "\
import time, torch, torch.distributed as dist
dist.init_process_group('gloo')
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
def leak():
    box = [torch.empty(256, 256)]
    box.append(box)
for index in range(12):
    if rank == 1:
        leak()
    model(torch.ones(8, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
time.sleep(1)
dist.destroy_process_group()
";

#[test]
fn a_closure_that_holds_itself_is_found_with_its_file_and_line() {
    let (report, finished, _context) =
        watched(LOOP, &["--mode", "compare", "--fail-on-leak", "100KiB"], &["32", "decorator"]);
    assert_eq!(finished.code, 1, "{}", finished.stderr);
    assert!(
        finished.stderr.contains("torchleak: --fail-on-leak: rank 0: the growth between collections is 2")
    );
    assert_eq!(report["schema"], 1);
    assert_eq!(report["verdict"], "reproduced", "{report:#}");
    let rank = &report["ranks"][0];
    assert_eq!((&rank["rank"], &rank["steps"]), (&Value::from(0), &Value::from(32)));
    let bytes = |key: &str| rank[key].as_i64().unwrap();
    assert!((262_144..275_000).contains(&bytes("growth_bytes_per_step")), "{rank:#}");
    // Eight steps lie between two collects.
    assert!((2_000_000..2_200_000).contains(&bytes("freed_bytes_per_collect")), "{rank:#}");
    assert_eq!(bytes("garbage_bytes_per_step"), 262_144);
    let sentence = report["cycles"][0]["sentence"].as_str().unwrap();
    assert!(sentence.contains("`recompute_fn` (train.py:8)"), "{sentence}");
    assert!(sentence.contains("1 tensor [256, 256] float32, 256.00 KiB per step"), "{sentence}");
    assert!(report["cycles"][0]["repair"].as_str().unwrap().contains(".wrapper"), "{report:#}");
    assert!(finished.stderr.contains("why: ") && finished.stderr.contains("repair: "), "{}", finished.stderr);
    for name in ["watch.json", "environment.json", "verdict.json", "cycles.json", "cycles.dot", "cycles.html"]
    {
        assert!(run_folder(&report).join(name).is_file(), "no {name}");
    }
}

#[rstest]
#[case::compare("compare", "reproduced")]
#[case::debug("debug", "inconclusive")]
fn a_batch_that_a_cycle_keeps_and_the_script_too_until_its_next_step_is_no_fixed(
    #[case] mode: &str,
    #[case] verdict: &str,
) {
    // A few bytes that each step leaves besides are not what a collect frees.
    let script = "\
for step_number in range(32):
    batch = torch.ones(64, 1000)
    cycle = {'batch': batch}
    cycle['me'] = cycle
    cycle = [torch.ones(2)]
    cycle.append(cycle)
    del cycle
    step()
";
    let (report, ..) = watched(&[SMALL, script].concat(), &["--mode", mode], &[]);
    assert_eq!(report["verdict"], verdict, "{report:#}");
    if mode == "compare" {
        // No look at a single step shows it, so a whole round is looked at.
        assert_eq!(report["cycles"][0]["over_steps"], 8, "{report:#}");
        let sentence = report["cycles"][0]["sentence"].as_str().unwrap();
        assert!(
            sentence.ends_with("[64, 1000] float32 in each of 7 such cycles, 1.71 MiB in 8 steps"),
            "{sentence}"
        );
    }
}

#[rstest]
#[case::of_what_only_the_view_holds("torch.ones(64, 1000)", "reproduced", "float32, 250.00 KiB per step")]
#[case::of_what_a_list_holds("large", "fixed", "float32 (of a storage that is alive anyway), 0 B per step")]
fn a_view_in_garbage_is_counted_if_it_alone_keeps_its_memory(
    #[case] base: &str,
    #[case] verdict: &str,
    #[case] kept: &str,
) {
    let script = "\
large = torch.ones(64, 1000)
def leak():
    base = BASE
    cycle = {'view': base.view(-1)}
    cycle['me'] = cycle
for step_number in range(32):
    leak()
    step()
"
    .replace("BASE", base);
    let (report, finished, _context) = watched(&[SMALL, &script].concat(), &["--mode", "compare"], &[]);
    assert_eq!(report["verdict"], verdict, "{report:#}");
    // Of what is fixed there is no why.
    assert_eq!(finished.stderr.contains("\n  why: "), verdict == "reproduced", "{}", finished.stderr);
    let bytes = report["ranks"][0]["garbage_bytes_per_step"].as_i64();
    assert_eq!(bytes, (verdict == "reproduced").then_some(256_000), "{report:#}");
    let sentence = report["cycles"][0]["sentence"].as_str().unwrap();
    assert!(sentence.ends_with(kept), "{sentence}");
}

#[test]
fn a_leak_in_few_of_the_steps_is_reproduced_and_never_called_flat() {
    let script = "\
for step_number in range(60):
    step()
    if step_number % 10 == 9:
        cycle = {'kept': torch.ones(64, 1000)}
        cycle['me'] = cycle
        del cycle
";
    let script = [SMALL, script].concat();
    let (report, ..) = watched(&script, &["--mode", "compare"], &[]);
    assert_eq!(report["verdict"], "reproduced", "{report:#}");
    let (report, ..) = watched(&script, &[], &[]);
    assert_eq!(report["verdict"], "inconclusive", "{report:#}");
    assert!(!report["reason"].as_str().unwrap().contains("flat"), "{report:#}");
}

#[test]
fn what_a_list_keeps_is_uncollectable_and_the_list_is_named() {
    let (report, finished, _context) = watched(LOOP, &["--mode", "compare"], &["32", "list"]);
    assert_eq!((finished.code, &report["verdict"]), (0, &Value::from("uncollectable")), "{report:#}");
    let first = report["retained"]["sentences"][0].as_str().unwrap();
    assert!(first.contains("[256, 256] float32") && first.contains(".kept"), "{first}");
}

#[test]
fn only_what_outlives_further_steps_is_named_and_its_graph_with_it() {
    let script = "\
predictions = []
for index in range(32):
    optimizer.zero_grad()
    batch = torch.ones(1024, 8)
    prediction = model(batch)
    prediction.sum().backward()
    optimizer.step()
    predictions.append(prediction)
";
    let (report, _, _context) = watched(&[SMALL, script].concat(), &["--mode", "compare"], &[]);
    assert_eq!(report["verdict"], "uncollectable", "{report:#}");
    let sentences = report["retained"]["sentences"].as_array().unwrap();
    // A batch and gradients are new in each step too, and the next one replaces them.
    assert_eq!(sentences.len(), 1, "{sentences:?}");
    let only = sentences[0].as_str().unwrap();
    assert!(only.contains("through `.predictions[") && only.contains("(AddmmBackward0)"), "{only}");
}

#[test]
fn a_clean_script_is_fixed_only_with_its_control() {
    let (report, _, _context) = watched(LOOP, &["--mode", "compare", "--fail-on-leak", "1"], &["32", "-"]);
    assert_eq!(report["verdict"], "fixed", "{report:#}");
    assert!(report["reason"].as_str().unwrap().contains("planted"), "{report:#}");
}

#[rstest]
#[case::observe("observe", "inconclusive")]
#[case::debug("debug", "reproduced")]
#[case::periodic("periodic", "reproduced")]
fn every_mode_measures_the_growth(#[case] mode: &str, #[case] verdict: &str) {
    let (report, _, _context) = watched(LOOP, &["--mode", mode, "--gc-freq", "5"], &["16", "decorator"]);
    assert_eq!(report["verdict"], verdict, "{report:#}");
    let growth = report["ranks"][0]["growth_bytes_per_step"].as_i64().unwrap();
    assert!((255_000..275_000).contains(&growth), "{report:#}");
    assert_eq!(!report["cycles"].as_array().unwrap().is_empty(), mode == "debug");
}

#[test]
fn what_a_script_prints_is_the_same_to_the_byte() {
    let context = with_script(LOOP);
    let plain = Command::new(python())
        .args(["train.py", "12", "a b"])
        .current_dir(context.path())
        .env("OMP_NUM_THREADS", "1")
        .output()
        .unwrap();
    let finished = watch(&context, &[], &["train.py", "12", "a b"]);
    assert_eq!(finished.stdout.as_bytes(), plain.stdout);
    assert_eq!((finished.code, plain.status.code()), (0, Some(0)));
    // torchtitan's line tells each step.
    assert!(finished.stderr.contains("step: 12  memory: "), "{}", finished.stderr);
    let quiet = watch(&context, &["--quiet"], &["train.py", "12", "a b"]);
    assert!(!quiet.stderr.contains("step: "), "{}", quiet.stderr);
}

#[test]
fn a_script_without_torch_runs_as_if_unwatched() {
    let context =
        with_script("import sys\nprint(sys.argv, sys.path, 'sitecustomize' in sys.modules)\nsys.exit(5)\n");
    let plain = Command::new(python()).args(["train.py", "x"]).current_dir(context.path()).output().unwrap();
    let finished = watch(&context, &[], &["train.py", "x"]);
    assert_eq!((finished.stdout.as_bytes(), finished.code), (&plain.stdout[..], 5));
    let report = report(&context);
    assert_eq!(report["ranks"], serde_json::json!([]));
    assert!(report["reason"].as_str().unwrap().contains("imported torch"), "{report:#}");
}

#[rstest]
#[case::that_runs("value = 17\n", "17")]
#[case::that_fails("raise RuntimeError('its own')\n", "no value")]
fn a_sitecustomize_that_is_hidden_still_runs(#[case] hidden: &str, #[case] printed: &str) {
    let context =
        with_script("import sys\nprint(getattr(sys.modules.get('sitecustomize'), 'value', 'no value'))\n");
    let folder = context.path().join("site");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("sitecustomize.py"), hidden).unwrap();
    let plain = Command::new(python())
        .arg("train.py")
        .current_dir(context.path())
        .env("PYTHONPATH", &folder)
        .output()
        .unwrap();
    let output = watch_command(&context, &[], &["train.py"]).env("PYTHONPATH", &folder).output().unwrap();
    let finished = Finished::of(output);
    assert_eq!(finished.stdout.trim(), printed);
    assert_eq!(finished.stdout.as_bytes(), plain.stdout);
    let complaint = String::from_utf8(plain.stderr).unwrap();
    assert!(finished.stderr.starts_with(&complaint), "{complaint} is not in {}", finished.stderr);
}

#[test]
fn modules_and_subprocesses_are_watched() {
    let context = with_script(LOOP);
    let finished = watch(&context, &[], &["-m", "train", "9", "-"]);
    assert_eq!((finished.code, steps(&report(&context))), (0, vec![9]), "{}", finished.stderr);
    context.write(
        "outer.py",
        "import subprocess, sys\nsys.exit(subprocess.run([sys.executable, 'train.py', '7', '-']).returncode)\n",
    );
    let finished = watch(&context, &[], &["outer.py"]);
    assert_eq!((finished.code, steps(&report(&context))), (0, vec![7]), "{}", finished.stderr);
}

#[rstest]
#[case::forked("fork")]
#[case::spawned("spawn")]
fn workers_of_a_data_loader_are_watched_only_if_asked(#[case] start: &str) {
    let script = "\
import gc, sys, torch
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self):
        return 24
    def __getitem__(self, index):
        assert gc.isenabled(), 'a worker collects as without torchleak'
        return torch.full((8,), float(index))
if __name__ == '__main__':
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for epoch in range(2):
        for batch in DataLoader(Data(), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1]):
            model(batch).sum().backward()
            optimizer.step()
";
    let (report, finished, context) = watched(script, &["--mode", "compare"], &[start]);
    assert_eq!((finished.code, steps(&report)), (0, vec![24]), "{}", finished.stderr);
    let told = |report: &Value| report["remarks"].to_string().matches("which were not watched").count();
    assert_eq!(told(&report), 1, "{report:#}");
    let finished = watch(&context, &["--workers"], &["train.py", start]);
    let report = self::report(&context);
    assert_eq!(told(&report), 0, "{report:#}");
    // Two epochs with two workers, each of which fetches half of twelve batches.
    assert_eq!((finished.code, steps(&report)), (0, vec![24, 6, 6, 6, 6]), "{}", finished.stderr);
    assert_eq!(report["ranks"][4]["worker"], 1);
}

#[test]
fn ranks_are_merged_and_the_one_that_leaks_is_named() {
    let context = with_script(RANKS);
    let options = ["--mode", "compare", "--round", "3"];
    let torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"];
    let finished = watch(&context, &options, &torchrun);
    let report = report(&context);
    assert_eq!((finished.code, steps(&report)), (0, vec![12, 12]), "{}", finished.stderr);
    let verdicts: Vec<&str> =
        report["ranks"].as_array().unwrap().iter().map(|rank| rank["verdict"].as_str().unwrap()).collect();
    assert_eq!((verdicts[1], &report["verdict"]), ("reproduced", &Value::from("reproduced")), "{report:#}");
    assert_ne!(verdicts[0], "reproduced");
    assert!(report["reason"].as_str().unwrap().starts_with("rank 1 leaks, it alone"), "{report:#}");
    assert_eq!(report["cycles"][0]["ranks"], serde_json::json!([1]));
    assert!(finished.stderr.contains("[rank1]:step: 12  memory: "), "{}", finished.stderr);

    let finished = watch(&context, &["--mode", "debug", "--ranks", "0"], &torchrun);
    let report = self::report(&context);
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    // Rank 1 collects as rank 0 does, and only what it finds is not looked at.
    assert_eq!(report["cycles"], serde_json::json!([]), "{report:#}");
    assert_eq!(report["ranks"][1]["verdict"], "reproduced", "{report:#}");
}

#[rstest]
#[case::the_first_optimizer("optimizer:0", 12)]
#[case::the_second_optimizer("optimizer:1", 6)]
#[case::accumulation("every:3", 4)]
#[case::a_call("call:model:Model.run", 6)]
fn what_ends_a_step_can_be_chosen(#[case] what: &str, #[case] expected: u64) {
    let script = "\
import model, torch
one, other = (torch.nn.Parameter(torch.zeros(4)) for _ in range(2))
first, second = torch.optim.SGD([one], lr=0.1), torch.optim.Adam([other], lr=0.1)
for index in range(6):
    for _ in range(2):
        one.grad = torch.ones(4)
        first.step()
    other.grad = torch.ones(4)
    second.step()
    model.Model().run()
";
    let context = with_script(script);
    // The module has no function yet when it imports torch.
    context.write("model.py", "import torch\nclass Model:\n    def run(self):\n        return 1\n");
    let finished = watch(&context, &["--step", what], &["train.py"]);
    assert_eq!((finished.code, steps(&report(&context))), (0, vec![expected]), "{}", finished.stderr);
}

#[test]
fn inference_is_measured_by_time() {
    let script = "\
import sys, time, torch
try:
    for _ in range(40):
        time.sleep(0.1)
finally:
    print('torch._dynamo' in sys.modules)
";
    let (report, finished, _context) = watched(script, &["--step", "time:0.2", "--steps", "5"], &[]);
    assert_eq!((finished.code, steps(&report)), (0, vec![5]), "{}", finished.stderr);
    // Nothing of ours imports Dynamo; an optimizer of the script would.
    assert_eq!(finished.stdout, "False\n");
}

#[test]
fn what_workers_put_into_shared_memory_is_among_the_live_storages() {
    let script = "\
from torch.utils.data import DataLoader
kept = []
for batch in DataLoader(torch.ones(6, 1000), batch_size=1, num_workers=1):
    kept.append(batch)
    step()
";
    let context = with_script(&[SMALL, script].concat());
    let finished = watch(&context, &["--mode", "debug"], &["train.py"]);
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    let live: Vec<i64> = events(context.path())
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter_map(|event| event["live"]["cpu"]["bytes"].as_i64())
        .collect();
    assert_eq!(live.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>(), [4000; 5], "{live:?}");
}

#[test]
fn a_function_that_ends_steps_is_compiled_into_its_callers_as_without_torchleak() {
    let script = "\
net = net_module.Net()
compiled = torch.compile(net, backend='eager', fullgraph=True)
print([compiled(torch.ones(2)).sum().item() for _ in range(2)], net(torch.ones(2)).sum().item())
";
    let context = with_script(&["import net_module\n", SMALL, script].concat());
    context.write(
        "net_module.py",
        "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n",
    );
    let finished = watch(&context, &["--step", "call:net_module:Net.forward"], &["train.py"]);
    assert_eq!((finished.code, finished.stdout.as_str()), (0, "[4.0, 4.0] 4.0\n"), "{}", finished.stderr);
    assert_eq!(steps(&report(&context)), [1]);
}

#[rstest]
#[case::a_call("call:nope:x", "`nope:x` was never called")]
#[case::another_optimizer("optimizer:1", "no optimizer 1 made a step, counted from 0")]
#[case::many_steps("every:100", "the first optimizer did not make 100 steps")]
fn a_step_that_never_ends_is_told_by_what_was_to_end_it(#[case] step: &str, #[case] said: &str) {
    let (report, finished, _context) = watched(LOOP, &["--step", step], &["3", "-"]);
    assert_eq!((finished.code, &report["verdict"]), (0, &"inconclusive".into()), "{}", finished.stderr);
    assert_eq!(report["reason"], format!("torch was imported, but {said}"));
}

#[test]
fn bad_usage_runs_nothing() {
    let context = Context::new();
    let finished = context.run(["watch", "--", "no-such-program"]);
    assert_eq!(finished.code, 2);
    assert!(finished.stderr.contains("`no-such-program` cannot be started"), "{}", finished.stderr);
    for arguments in [
        &["watch"][..],
        &["watch", "--step", "call:__main__:f", "--", "true"],
        &["watch", "--format", "json", "--", "true"],
        &["watch", "--mode", "periodic", "--gc-freq", "0", "--", "true"],
    ] {
        assert_eq!(context.run(arguments).code, 2, "{arguments:?}");
    }
    let finished = context.run(["watch", "--output", "/dev/null/report", "--", "sh", "-c", "echo ran"]);
    assert_eq!((finished.code, finished.stdout.as_str()), (4, ""), "{}", finished.stderr);
    // A program that is no Python is run, and its code passed on.
    assert_eq!(context.run(["watch", "--", "sh", "-c", "exit 9"]).code, 9);
}
