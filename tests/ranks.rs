//! Cases on two ranks, on real PyTorch: what they measure, and how they end.
//!
//! Each arm starts three interpreters, so all tests share two runs.

mod support;

use std::path::Path;
use std::process::Stdio;
use std::sync::OnceLock;

use rstest::rstest;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{Context, case, is_running, wait_until};

const HEADLINE: &str = "sac-disable-recompute-fsdp2";
const TWIN: &str = "sac-stock-fsdp2";

/// The headline's leak, in which each rank is a replica.
const DDP: &str = "\
name: on-both
summary: The headline on two replicas.
device: cpu
ranks: 2
parallel: ddp
model: {block: llama3, layers: 2, dim: 64, heads: 2, ffn_dim: 64}
input: {batch: 2, seq: 128}
checkpoint: {mode: selective}
compile: {disable: torch._disable_dynamo}
tolerance: 16KiB
retains: {tensors: [{name: block output, shape: [batch*seq, dim], per: layer}], rng_states: 1}
expect: [{verdict: reproduced}]
";

/// What every program does: a collective in each step, and then `body`.
fn program(body: &str) -> String {
    format!(
        "\
import os, signal, time
import torch.distributed as dist

def setup(ctx):
    ctx.step = 0
    with open(os.path.join(os.path.dirname(__file__), 'pids'), 'a') as file:
        file.write(f'{{os.getpid()}}\\n{{os.getppid()}}\\n')
    return ctx

def leak(ctx):
    one = [ctx.torch.zeros(200_000)]
    one.append(one)

def step(ctx):
    ctx.step += 1
    sum = ctx.torch.ones(())
    dist.all_reduce(sum)
    assert (sum.item(), dist.get_rank()) == (ctx.world_size, ctx.rank)
    third, last = ctx.step == 3, ctx.rank == 1
    {body}
    return 1.0
"
    )
}

const KEYS: &str = "device: cpu\nranks: 2\ntolerance: 64KiB";

fn pids(context: &Context) -> Vec<i32> {
    let text = std::fs::read_to_string(context.path().join("pids")).unwrap();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

struct Ran {
    document: Value,
    context: Context,
}

/// One torchleak with the shipped cases, and with programs of which one rank fails.
fn ran() -> &'static Ran {
    static RAN: OnceLock<Ran> = OnceLock::new();
    RAN.get_or_init(|| {
        let context = Context::new();
        let fails = |name, body| context.program_case(name, &program(body), KEYS).display().to_string();
        let killed = fails("is-killed", "if third and last: os.kill(os.getpid(), signal.SIGKILL)");
        let raises = fails("raises", "if third and last: raise ValueError('the third step is bad')");
        let (document, _) = context.run_json(&["--device", "cpu", HEADLINE, TWIN, &killed, &raises]);
        Ran { document, context }
    })
}

fn ranks(name: &str) -> &'static [Value] {
    let case = case(&ran().document, name);
    assert_eq!(case["ok"], true, "{}", case["reason"]);
    case["ranks"].as_array().unwrap()
}

fn events(name: &str) -> Vec<Value> {
    let run = ran().context.path().join(case(&ran().document, name)["run_dir"].as_str().unwrap());
    let text = std::fs::read_to_string(run.join("events.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_leak_is_reproduced_on_every_rank_to_the_byte() {
    let bytes = 2 * (2 * 128 * 512 * 4 + 5056);
    assert_eq!(ranks(HEADLINE).len(), 2);
    for rank in ranks(HEADLINE) {
        assert_eq!(rank["verdict"], "reproduced", "{}", rank["reason"]);
        assert_eq!(rank["predicted_bytes_per_step"], bytes);
        for step in rank["arms"]["garbage"]["steps"].as_array().unwrap() {
            assert_eq!(step["census"]["cpu"]["bytes"], bytes, "{step:#}");
        }
        let sentence = rank["cycles"][0]["sentence"].as_str().unwrap();
        let blamed = "`torch._disable_dynamo` stored its wrapper on `recompute_fn`";
        assert!(sentence.contains(blamed), "{sentence}");
    }
}

#[test]
fn the_clean_twin_is_fixed_on_every_rank_with_a_control_in_each_of_its_processes() {
    assert_eq!(ranks(TWIN).len(), 2);
    for rank in ranks(TWIN) {
        assert_eq!(rank["verdict"], "fixed", "{}", rank["reason"]);
    }
    let events = events(TWIN);
    let controls: Vec<&Value> = events.iter().filter(|event| event["event"] == "control").collect();
    assert_eq!(controls.len(), 3 * 2);
    assert!(controls.iter().all(|control| control["detected"] == true), "{controls:#?}");
}

#[test]
fn ranks_train_on_data_of_their_own_and_share_what_they_learn() {
    let steps = |rank: &'static Value| rank["arms"]["uncollected"]["steps"].as_array().unwrap();
    let [one, other] = ranks(HEADLINE) else { panic!("two ranks") };
    for (one, other) in steps(one).iter().zip(steps(other)) {
        assert_ne!(one["loss"], other["loss"]);
        assert_eq!(one["grad_norm"], other["grad_norm"], "the norm is that of all ranks");
    }
}

#[rstest]
#[case("is-killed", "failed on rank 1, which was killed by signal 9 (SIGKILL)")]
#[case("raises", "failed on rank 1, which raised ValueError: the third step is bad")]
fn a_rank_that_fails_is_named_and_no_sample_is_lost(#[case] name: &str, #[case] reason: &str) {
    let case = case(&ran().document, name);
    assert_eq!(case["verdict"], "error");
    let said = case["reason"].as_str().unwrap();
    assert!(said.contains(reason), "{said}");
    let events = events(name);
    for rank in 0..2 {
        let steps = events.iter().filter(|event| {
            event["arm"] == "uncollected" && event["rank"] == rank && event["event"] == "step"
        });
        assert!(steps.count() >= 2, "rank {rank}: {events:#?}");
    }
}

#[test]
fn no_rank_and_no_launcher_outlives_its_arm() {
    let pids = pids(&ran().context);
    assert!(pids.len() >= 2 * 3 * 2 * 2, "{} processes", pids.len());
    let left: Vec<&i32> = pids.iter().filter(|pid| is_running(**pid)).collect();
    assert!(left.is_empty(), "{left:?} run still");
}

#[test]
fn people_are_told_each_rank_equal_findings_once_and_how_ranks_differ() {
    let context = Context::new();
    let on_both = context.write("on-both.yaml", DDP);
    let on_one = context.program_case("on-one", &program("leak(ctx) if last else None"), KEYS);
    let said = context.run([Path::new("run"), Path::new("--device=cpu"), &on_both, &on_one]).stdout;
    let (on_both, on_one) = said.split_once("\non-one\n").unwrap();
    let bytes = 2 * (2 * 128 * 64 * 4 + 5056);
    for rank in 0..2 {
        assert!(on_both.contains(&format!("  rank {rank}: reproduced, {bytes} in garbage, ")), "{said}");
    }
    assert_eq!(on_both.matches("  why: ").count(), 1, "{said}");
    assert!(on_one.contains("  rank 0: fixed, 0 in garbage, "), "{said}");
    assert!(on_one.contains("  rank 1: reproduced, 800000 in garbage, "), "{said}");
    assert!(on_one.contains("  the ranks differ: rank 0 is fixed and rank 1 reproduced; "), "{said}");
    assert!(on_one.contains("  why (rank 1): "), "{said}");
}

#[rstest]
#[case::ctrl_c(Signal::INT)]
#[case::killed(Signal::KILL)]
fn an_interrupted_run_keeps_the_events_of_all_ranks_and_leaves_no_process(#[case] with: Signal) {
    let context = Context::new();
    let yaml = context.program_case("slow", &program("time.sleep(0.2)"), KEYS);
    let long = std::fs::read_to_string(&yaml).unwrap().replace("steps: 5", "steps: 500");
    context.write("slow.yaml", &long);
    let mut command = context.command();
    command.args(["run", "--device", "cpu"]).arg(yaml).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let has_steps = |rank: u32| {
        let run = std::fs::read_dir(context.path().join("runs")).ok()?.next()?.ok()?.path();
        let text = std::fs::read_to_string(run.join("events.jsonl")).ok()?;
        Some(text.matches(&format!(r#","rank":{rank},"event":"step","#)).count() >= 2)
    };
    let both_have_steps = || has_steps(0) == Some(true) && has_steps(1) == Some(true);
    wait_until("two steps of both ranks on disk", 240, both_have_steps);
    kill_process(Pid::from_child(&child), with).unwrap();
    let output = child.wait_with_output().unwrap();
    if with == Signal::INT {
        assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(both_have_steps());
    wait_until("every process gone", 10, || !pids(&context).into_iter().any(is_running));
}
