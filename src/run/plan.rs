//! Which arms a run has, and which cases cannot run at all.

use std::sync::Arc;

use torchleak_protocol::{ArmSpec, Device, Policy};

use super::folder::RunFolder;
use super::outcome::Outcome;
use super::{RunError, RunOptions, control, native};
use crate::bytes::human;
use crate::case::{Case, Resolved, Verdict};
use crate::environment::Environment;
use crate::verdict::Judgement;
use crate::worker::Job;

/// A run that is ready to start.
#[derive(Debug)]
pub struct Plan {
    pub device: Device,
    pub control: Vec<Job>,
    pub cases: Vec<PlannedCase>,
}

/// One case of the run.
#[derive(Debug)]
pub struct PlannedCase {
    pub resolved: Resolved,
    /// The arms, or what the case came to without running.
    pub arms: Result<(RunFolder, Vec<PlannedArm>), Outcome>,
    /// Why the native control that was asked for does not run.
    pub no_native: Option<String>,
}

/// One arm of a case.
#[derive(Debug)]
pub struct PlannedArm {
    pub name: String,
    pub job: Job,
}

/// The device of an environment where the user names none: the GPU that its torch can use, if any.
pub fn default_device(environment: &Environment) -> Device {
    if environment.devices.is_empty() { Device::Cpu } else { Device::Cuda }
}

/// Plans the arms of all cases. `memory` is what the machine has available, where known.
pub fn plan(
    cases: &[Case],
    environment: &Environment,
    options: &RunOptions,
    memory: Option<u64>,
) -> Result<Plan, RunError> {
    let mut numbers = 0..;
    let mut next = move || numbers.next().unwrap_or(u64::MAX);
    let control = control::ARMS
        .iter()
        .map(|(_, policy)| Job {
            spec: control::spec(next(), *policy, options.device),
            slots: 1,
            memory: 0,
            once_per_host: true,
            log: Arc::new(|_| ()),
        })
        .collect();
    let cases = cases
        .iter()
        .map(|case| plan_case(case, environment, options, memory, &mut next))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Plan { device: options.device, control, cases })
}

fn plan_case(
    case: &Case,
    environment: &Environment,
    options: &RunOptions,
    memory: Option<u64>,
    next: &mut impl FnMut() -> u64,
) -> Result<PlannedCase, RunError> {
    let resolved = case.resolved(options.device);
    if let Some(outcome) = cannot_run(case, &resolved, memory, environment) {
        return Ok(PlannedCase { resolved, arms: Err(outcome), no_native: None });
    }
    let folder = RunFolder::create(&options.runs, case, environment)?;
    let program = resolved.program(folder.path())?;
    let measured = resolved.arms.iter().map(|arm| (arm.to_string(), arm.policy()));
    let all = measured.chain([("garbage".to_owned(), Policy::Garbage)]);
    let mut arms: Vec<PlannedArm> = all
        .map(|(name, policy)| PlannedArm {
            job: Job {
                spec: ArmSpec {
                    arm: next(),
                    case: resolved.name.clone(),
                    policy,
                    start: resolved.start,
                    ranks: resolved.ranks,
                    program: program.clone(),
                    device: options.device,
                    steps: resolved.steps,
                    seed: resolved.seed,
                    threads: resolved.threads,
                    memory_limit: options.memory_limit.filter(|_| options.device == Device::Cpu),
                    artifacts: std::path::absolute(folder.path()).ok().map(|path| path.display().to_string()),
                    show_values: options.show_values,
                    executable: None,
                },
                slots: (resolved.threads * resolved.ranks) as usize,
                memory: needs(&resolved).unwrap_or(0),
                once_per_host: false,
                log: folder.log(&name),
            },
            name,
        })
        .collect();
    let mut no_native = None;
    match native::program(&resolved, options) {
        Some(Ok(program)) => {
            let arm = native::arm(&arms[0], next(), program, &folder);
            arms.push(arm);
        }
        Some(Err(reason)) => no_native = Some(reason),
        None => {}
    }
    Ok(PlannedCase { resolved, arms: Ok((folder, arms)), no_native })
}

/// Bytes that an arm needs in one memory, where the case says so: its ranks share the host's, and have a
/// GPU each.
fn needs(case: &Resolved) -> Option<u64> {
    let sharing = if case.device == Device::Cpu { u64::from(case.ranks) } else { 1 };
    case.memory.map(|memory| memory.saturating_mul(sharing))
}

/// Says why there are not enough GPUs for the ranks of a case, if there are not.
fn too_many_ranks(case: &Resolved, gpus: usize) -> Option<String> {
    let lacks = case.device == Device::Cuda && case.ranks > 1 && case.ranks as usize > gpus;
    lacks.then(|| {
        format!(
            "the case trains {} ranks, each on a GPU of its own, and torch sees {gpus} on this machine",
            case.ranks
        )
    })
}

/// Says what a case comes to that cannot run here.
fn cannot_run(
    case: &Case,
    resolved: &Resolved,
    memory: Option<u64>,
    environment: &Environment,
) -> Option<Outcome> {
    if !case.runs_on(resolved.device) {
        let reason = match resolved.device {
            Device::Cpu => "the case is about CUDA and this run is on the CPU",
            Device::Cuda => "the case is about the CPU and this run is on CUDA",
        };
        return Some(Outcome::Skipped { reason: reason.to_owned() });
    }
    if let Some(reason) = too_many_ranks(resolved, environment.devices.len()) {
        return Some(Outcome::Skipped { reason });
    }
    let (has, whose) = match resolved.device {
        Device::Cpu => (memory?, "available on this machine"),
        Device::Cuda => (environment.devices.first()?.memory_bytes, "on this GPU"),
    };
    let needs = needs(resolved).filter(|needs| *needs > has)?;
    let reason = format!(
        "an arm needs {} of memory and {} is {whose}: run it on a larger machine, or lower the case's sizes and its \
         `memory`",
        human(needs as f64),
        human(has as f64),
    );
    Some(Outcome::Judged(Judgement { verdict: Verdict::Error, reason, numbers: None }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_RANKS: &[u8] = b"\
name: two
summary: Two ranks.
ranks: 2
parallel: ddp
model: {block: llama3, layers: 1, dim: 8, heads: 2, ffn_dim: 8}
input: {batch: 1, seq: 4}
memory: 1GiB
expect: [{verdict: fixed}]
";

    #[test]
    fn ranks_have_a_gpu_each_and_share_the_memory_of_the_host() {
        let case = Case::from_bytes("two.yaml", TWO_RANKS).unwrap();
        let on_gpus = case.resolved(Device::Cuda);
        let reason = too_many_ranks(&on_gpus, 1).unwrap();
        assert_eq!(
            reason,
            "the case trains 2 ranks, each on a GPU of its own, and torch sees 1 on this machine"
        );
        assert_eq!(too_many_ranks(&on_gpus, 2), None);
        assert_eq!(needs(&on_gpus), Some(1 << 30));
        let on_host = case.resolved(Device::Cpu);
        assert_eq!(too_many_ranks(&on_host, 0), None);
        assert_eq!(needs(&on_host), Some(2 << 30));
    }
}
