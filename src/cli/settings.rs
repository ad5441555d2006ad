//! The options of every command that runs cases: on which device, how long, how many at once.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::error::CliError;
use crate::cache::Cache;
use crate::run::{Settings, WantedDevice};

const DEVICE_VARIABLE: &str = "TORCHLEAK_DEVICE";

/// How arms are run.
#[derive(Debug, Args)]
pub struct SettingsArgs {
    // Not clap's `env`, which takes an empty variable for a value.
    /// Where to train [env: TORCHLEAK_DEVICE] [default: auto]
    #[arg(long, value_enum)]
    device: Option<WantedDevice>,
    /// Folder for run folders
    #[arg(long, value_name = "FOLDER", default_value = "runs")]
    runs: PathBuf,
    /// Seconds that one arm may run
    #[arg(long, value_name = "SECONDS", default_value_t = 900, value_parser = clap::value_parser!(u64).range(1..))]
    deadline: u64,
    /// Threads' worth of arms to run at once [default: the machine's cores; always 1 arm on CUDA]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Show strings and numbers that the program holds in findings; without it only types and lengths
    #[arg(long)]
    show_values: bool,
    /// Limit of each arm's address space, such as 16GiB (CPU only)
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory_limit: Option<u64>,
}

impl SettingsArgs {
    /// The settings that the options and the variable name.
    ///
    /// # Errors
    /// The variable names no device.
    pub fn settings(&self, cache: &Cache) -> Result<Settings, CliError> {
        Ok(Settings {
            device: wanted_device(self.device, std::env::var_os(DEVICE_VARIABLE))?,
            deadline: Duration::from_secs(self.deadline),
            jobs: self.jobs.map_or_else(cores, usize::from),
            memory_limit: self.memory_limit,
            show_values: self.show_values,
            runs: self.runs.clone(),
            worker: cache.worker(),
        })
    }
}

/// A size such as 16GiB.
pub fn parse_size(text: &str) -> Result<u64, String> {
    text.parse::<bytesize::ByteSize>().map(|size| size.0)
}

/// The device that the option names, else the variable; an empty variable is as good as none.
fn wanted_device(option: Option<WantedDevice>, variable: Option<OsString>) -> Result<WantedDevice, CliError> {
    match (option, variable.filter(|value| !value.is_empty())) {
        (Some(device), _) => Ok(device),
        (None, None) => Ok(WantedDevice::Auto),
        (None, Some(value)) => {
            let given = value.to_string_lossy().into_owned();
            WantedDevice::from_str(&given, true).map_err(|_| CliError::BadDevice { given })
        }
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
