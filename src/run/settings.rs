//! What a user wants of a run before it is known in which environment.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use torchleak_protocol::Device;

use super::{RunError, RunOptions, default_device};
use crate::environment::Environment;

/// The device that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WantedDevice {
    /// CUDA where torch sees a GPU, else the CPU
    Auto,
    Cpu,
    Cuda,
}

/// [`RunOptions`] but for what depends on the environment.
#[derive(Debug, Clone)]
pub struct Settings {
    pub device: WantedDevice,
    /// How long one arm may run.
    pub deadline: Duration,
    /// How many threads' worth of arms run at once.
    pub jobs: usize,
    /// Limit of an arm's address space in bytes, on the CPU.
    pub memory_limit: Option<u64>,
    /// Whether a diagnosis may show values that the program computed.
    pub show_values: bool,
    /// The folder for run folders.
    pub runs: PathBuf,
    /// The folder for the unpacked worker.
    pub worker: PathBuf,
}

impl Settings {
    /// The options of a run in that environment.
    ///
    /// # Errors
    /// A GPU is asked for, and the environment sees none.
    pub fn on(&self, environment: &Environment) -> Result<RunOptions, RunError> {
        let device = match self.device {
            WantedDevice::Auto => default_device(environment),
            WantedDevice::Cpu => Device::Cpu,
            WantedDevice::Cuda if environment.devices.is_empty() => {
                return Err(RunError::NoDevice { torch: environment.facts.torch.clone() });
            }
            WantedDevice::Cuda => Device::Cuda,
        };
        Ok(RunOptions {
            device,
            deadline: self.deadline,
            jobs: self.jobs,
            memory_limit: self.memory_limit,
            show_values: self.show_values,
            runs: self.runs.clone(),
            worker: self.worker.clone(),
            native: None,
        })
    }
}
