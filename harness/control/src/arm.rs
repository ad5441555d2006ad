//! The arm: its steps, measured by the same counters as those of the Python arms, and what it reports.

use std::fs::File;
use std::io::{self, Write};
use std::time::Instant;

use tch::{Cuda, Device};
use torchleak_protocol::{self as protocol, ArmEvent, ArmFacts, ArmSpec, Memory, Program, StepRecord};

use crate::libtorch;
use crate::training::Training;

/// Variables that set an allocator begin so.
const ALLOCATOR_VARIABLES: [&str; 4] = ["MALLOC_", "GLIBC_TUNABLES", "PYTORCH_", "CUBLAS_"];

/// Runs the arm and reports to `events`.
///
/// # Errors
/// Nobody reads the pipe any more.
pub fn run(spec: &ArmSpec, events: &mut File) -> io::Result<()> {
    let Program::Llama3(block) = &spec.program else {
        panic!("libtorch alone trains only the llama3 model, not a program of Python");
    };
    tch::set_num_threads(spec.threads.cast_signed());
    let device = device(spec.device);
    let mut training = Training::new(block, spec.seed, device);
    send(events, &ArmEvent::Began(Box::new(facts(device))))?;
    for step in 1..=spec.steps {
        torchleak_memory::reset_peak();
        if device.is_cuda() {
            libtorch::cuda_reset_peak();
        }
        let started = Instant::now();
        let (loss, norm) = training.step(step);
        if let Device::Cuda(index) = device {
            Cuda::synchronize(index as i64);
        }
        let seconds = started.elapsed().as_secs_f64();
        let memory = read(device);
        let (loss, loss_is) = if loss.is_finite() { (Some(loss), None) } else { (None, Some(word(loss))) };
        let record = StepRecord {
            step,
            loss,
            loss_is,
            grad_norm: norm.is_finite().then_some(norm),
            seconds,
            tokens: Some(training.tokens()),
            memory,
            census: protocol::Census::new(),
            collected: None,
            foreign_collections: 0,
        };
        send(events, &ArmEvent::Step(Box::new(record)))?;
    }
    send(events, &ArmEvent::Ended { steps: spec.steps })
}

/// Writes one event as a line.
pub fn send(events: &mut File, event: &ArmEvent) -> io::Result<()> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    events.write_all(&line)
}

fn device(wanted: protocol::Device) -> Device {
    match wanted {
        protocol::Device::Cpu => Device::Cpu,
        protocol::Device::Cuda => {
            assert!(Cuda::is_available(), "libtorch finds no CUDA device in this process");
            libtorch::be_deterministic();
            Device::Cuda(0)
        }
    }
}

fn read(device: Device) -> Memory {
    let mut memory = torchleak_memory::read(true);
    memory.device = device.is_cuda().then(libtorch::cuda_memory);
    memory
}

fn facts(device: Device) -> ArmFacts {
    let settings = std::env::vars()
        .filter(|(name, _)| ALLOCATOR_VARIABLES.iter().any(|prefix| name.starts_with(prefix)))
        .map(|(name, value)| format!("{name}={value}"));
    ArmFacts {
        python: "none".to_owned(),
        torch: libtorch::version(),
        torch_commit: None,
        device_name: if device.is_cuda() { "cuda" } else { "cpu" }.to_owned(),
        device_memory: device.is_cuda().then(libtorch::cuda_total),
        gc_enabled: false,
        frozen_objects: 0,
        threads: tch::get_num_threads().cast_unsigned(),
        allocator_settings: settings.collect(),
        memory: read(device),
        flops_per_token: None,
    }
}

/// A loss for which JSON has no number, as Python writes it.
fn word(loss: f64) -> String {
    loss.to_string().to_lowercase()
}
