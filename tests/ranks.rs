//! Cases on two ranks, on real PyTorch: what they measure, and every way in which a rank can end.

mod support;

use std::path::Path;
use std::process::Stdio;
use std::sync::OnceLock;

use rstest::rstest;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{Context, case, is_running, wait_until};

/// One torchleak with all that it was asked for.
struct Ran {
    document: Value,
    code: i32,
    context: Context,
}

impl Ran {
    fn new(context: Context, arguments: &[&str]) -> Self {
        let (document, code) = context.run_json(arguments);
        Self { document, code, context }
    }

    fn events(&self, name: &str) -> Vec<Value> {
        let run = self.context.path().join(case(&self.document, name)["run_dir"].as_str().unwrap());
        let text = std::fs::read_to_string(run.join("events.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// A block that leaks as the headline does, in which each rank is a replica.
const DDP: &str = "\
name: sac-disable-recompute-ddp
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

const HEADLINE: &str = "sac-disable-recompute-fsdp2";

fn leaks() -> &'static Ran {
    static RAN: OnceLock<Ran> = OnceLock::new();
    RAN.get_or_init(|| {
        let context = Context::new();
        let ddp = context.write("sac-disable-recompute-ddp.yaml", DDP).display().to_string();
        Ran::new(context, &["--device", "cpu", HEADLINE, "sac-stock-fsdp2", &ddp])
    })
}

fn ranks<'a>(ran: &'a Ran, name: &str) -> &'a [Value] {
    let ranks = case(&ran.document, name)["ranks"].as_array().unwrap();
    assert_eq!(ranks.len(), 2, "{:#}", case(&ran.document, name)["reason"]);
    ranks
}

#[rstest]
#[case::sharded(HEADLINE, 2 * (2 * 128 * 512 * 4 + 5056))]
#[case::replicated("sac-disable-recompute-ddp", 2 * (2 * 128 * 64 * 4 + 5056))]
fn the_leak_is_reproduced_on_every_rank_to_the_byte(#[case] name: &str, #[case] bytes: u64) {
    assert_eq!(case(&leaks().document, name)["verdict"], "reproduced");
    for rank in ranks(leaks(), name) {
        assert_eq!(rank["verdict"], "reproduced", "{}", rank["reason"]);
        assert_eq!(rank["predicted_bytes_per_step"], bytes);
        for step in rank["arms"]["garbage"]["steps"].as_array().unwrap() {
            assert_eq!(step["census"]["cpu"]["bytes"], bytes, "{step:#}");
        }
        let sentence = rank["cycles"][0]["sentence"].as_str().unwrap();
        assert!(
            sentence.contains("`torch._disable_dynamo` stored its wrapper on `recompute_fn`"),
            "{sentence}"
        );
    }
    assert_eq!(leaks().code, 0);
}

#[test]
fn the_clean_twin_is_fixed_on_every_rank_with_a_control_in_each_of_its_processes() {
    assert_eq!(case(&leaks().document, "sac-stock-fsdp2")["verdict"], "fixed");
    for rank in ranks(leaks(), "sac-stock-fsdp2") {
        assert_eq!(rank["verdict"], "fixed", "{}", rank["reason"]);
    }
    let events = leaks().events("sac-stock-fsdp2");
    let controls: Vec<&Value> = events.iter().filter(|event| event["event"] == "control").collect();
    assert_eq!(controls.len(), 3 * 2);
    assert!(controls.iter().all(|control| control["detected"] == true), "{controls:#?}");
}

#[test]
fn ranks_train_on_data_of_their_own_and_share_what_they_learn() {
    let steps: Vec<&Value> =
        ranks(leaks(), HEADLINE).iter().map(|rank| &rank["arms"]["uncollected"]["steps"]).collect();
    for (one, other) in steps[0].as_array().unwrap().iter().zip(steps[1].as_array().unwrap()) {
        assert_ne!(one["loss"], other["loss"]);
        assert_eq!(one["grad_norm"], other["grad_norm"], "the norm is that of all ranks");
    }
}

#[test]
fn a_report_for_people_tells_each_rank_and_an_equal_finding_once() {
    let context = Context::new();
    let path = context.write("sac-disable-recompute-ddp.yaml", DDP);
    let said = context.run(["run", "--device", "cpu", path.to_str().unwrap()]).stdout;
    for rank in ["  rank 0: reproduced, 141184 in garbage, ", "  rank 1: reproduced, 141184 in garbage, "] {
        assert!(said.contains(rank), "{said}");
    }
    assert_eq!(said.matches("why").count(), 1, "{said}");
}

/// What every program does: a collective in each step, and then `body`.
fn program(body: &str) -> String {
    format!(
        "\
import os, signal, sys, time
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

/// Every program runs in one torchleak.
fn programs() -> &'static Ran {
    static RAN: OnceLock<Ran> = OnceLock::new();
    RAN.get_or_init(|| {
        let context = Context::new();
        let paths: Vec<String> = [
            ("clean", "pass"),
            ("leaks-on-one-rank", "leak(ctx) if last else None"),
            ("is-killed", "if third and last: os.kill(os.getpid(), signal.SIGKILL)"),
            ("raises", "if third and last: raise ValueError('the third step is bad')"),
            ("leaves-early", "if ctx.step == 5 and last: os._exit(0)"),
        ]
        .iter()
        .map(|(name, body)| context.program_case(name, &program(body), KEYS).display().to_string())
        .collect();
        let arguments: Vec<&str> =
            ["--device", "cpu"].into_iter().chain(paths.iter().map(String::as_str)).collect();
        Ran::new(context, &arguments)
    })
}

#[test]
fn ranks_without_a_common_model_are_judged_alike() {
    let clean = case(&programs().document, "clean");
    assert_eq!(clean["verdict"], "fixed", "{}", clean["reason"]);
}

#[test]
fn ranks_that_differ_have_no_common_verdict_and_are_told() {
    let case = case(&programs().document, "leaks-on-one-rank");
    assert_eq!(case["verdict"], "inconclusive");
    let reason = case["reason"].as_str().unwrap();
    assert!(reason.contains("the ranks differ: rank 0 is fixed and rank 1 reproduced"), "{reason}");
    let verdicts: Vec<&Value> =
        ranks(programs(), "leaks-on-one-rank").iter().map(|rank| &rank["verdict"]).collect();
    assert_eq!(verdicts, ["fixed", "reproduced"]);
}

#[rstest]
#[case("is-killed", "failed on rank 1, which was killed by signal 9 (SIGKILL)")]
#[case("raises", "failed on rank 1, which raised ValueError: the third step is bad")]
#[case("leaves-early", "failed on rank 1, which exited with code 0 before its last step")]
fn a_rank_that_fails_is_named_and_no_sample_is_lost(#[case] name: &str, #[case] reason: &str) {
    let case = case(&programs().document, name);
    assert_eq!(case["verdict"], "error");
    let said = case["reason"].as_str().unwrap();
    assert!(said.contains(reason), "{said}");
    for rank in 0..2 {
        let events = programs().events(name);
        let of_rank = |event: &&Value| {
            (&event["arm"], &event["rank"], &event["event"])
                == (&"uncollected".into(), &rank.into(), &"step".into())
        };
        assert!(events.iter().filter(of_rank).count() >= 2, "rank {rank} of {name}");
    }
}

fn pids(folder: &Path) -> Vec<i32> {
    let text = std::fs::read_to_string(folder.join("pids")).unwrap();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn no_rank_and_no_launcher_outlives_its_arm() {
    let pids = pids(programs().context.path());
    assert!(pids.len() >= 5 * 3 * 2 * 2, "{} processes", pids.len());
    let left: Vec<&i32> = pids.iter().filter(|pid| is_running(**pid)).collect();
    assert!(left.is_empty(), "{left:?} run still");
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
    let events = || {
        let run = std::fs::read_dir(context.path().join("runs")).ok()?.next()?.ok()?.path();
        std::fs::read_to_string(run.join("events.jsonl")).ok()
    };
    let has_steps = |rank: u32| {
        let steps = format!(r#","rank":{rank},"event":"step","#);
        events().is_some_and(|text| text.matches(&steps).count() >= 2)
    };
    wait_until("two steps of both ranks on disk", 240, || has_steps(0) && has_steps(1));
    kill_process(Pid::from_child(&child), with).unwrap();
    let output = child.wait_with_output().unwrap();
    if with == Signal::INT {
        assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(has_steps(0) && has_steps(1));
    wait_until("every process gone", 10, || !pids(context.path()).into_iter().any(is_running));
}
