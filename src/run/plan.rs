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
                slots: resolved.threads as usize,
                memory: resolved.memory.unwrap_or(0),
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
    let (has, whose) = match resolved.device {
        Device::Cpu => (memory?, "available on this machine"),
        Device::Cuda => (environment.devices.first()?.memory_bytes, "on this GPU"),
    };
    let needs = resolved.memory.filter(|needs| *needs > has)?;
    let reason = format!(
        "an arm needs {} of memory and {} is {whose}: run it on a larger machine, or lower the case's sizes and its \
         `memory`",
        human(needs as f64),
        human(has as f64),
    );
    Some(Outcome::Judged(Judgement { verdict: Verdict::Error, reason, numbers: None }))
}
