//! The GPUs that an environment's torch sees on this machine.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::check;
use super::error::EnvironmentError;
use super::facts::{Device, Facts};
use super::progress::Progress;
use crate::cache::{Cache, write_whole};

/// A kept answer, and for which machine state it holds.
#[derive(Serialize, Deserialize)]
struct Kept {
    surroundings: String,
    devices: Vec<Device>,
}

/// Asks torch for its devices, or takes the kept answer if nothing it depends on has changed.
pub(super) fn find(
    python: &Path,
    facts: &Facts,
    cache: &Cache,
    progress: &dyn Progress,
) -> Result<Vec<Device>, EnvironmentError> {
    if !facts.can_use_gpu() || !has_driver() {
        return Ok(Vec::new());
    }
    let surroundings = surroundings(facts);
    let id = Sha256::digest(python.as_os_str().as_encoded_bytes());
    let id: String = id.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let path = cache.checked().join(format!("{id}.devices.json"));
    let kept = fs::read_to_string(&path).ok().and_then(|text| serde_json::from_str::<Kept>(&text).ok());
    if let Some(kept) = kept.filter(|kept| kept.surroundings == surroundings) {
        return Ok(kept.devices);
    }
    progress.begin("asking torch for its GPUs");
    let devices = match check::devices(python) {
        Ok(devices) => devices,
        Err(error) if error.is_interrupted() => return Err(error),
        Err(error) => {
            // A GPU that does not work is no reason not to run on the CPU; it is not kept, as it may be mended.
            progress.note(&format!("warning: torch cannot use the GPUs of this machine: {error}"));
            return Ok(Vec::new());
        }
    };
    let kept = Kept { surroundings, devices };
    let text = serde_json::to_string(&kept).unwrap_or_default();
    if let Err(error) = cache.prepare(&cache.checked()).map(|()| write_whole(&path, &text)) {
        tracing::debug!("cannot keep the list of GPUs: {error}");
    }
    Ok(kept.devices)
}

/// Without the driver's device files there is no GPU, and asking torch would only take seconds.
fn has_driver() -> bool {
    ["/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/kfd"].iter().any(|path| Path::new(path).exists())
}

/// Everything that a kept list depends on: a cache in a home folder is shared by many machines.
fn surroundings(facts: &Facts) -> String {
    let mut all = format!("{}\n", facts.torch);
    for path in
        ["/proc/sys/kernel/hostname", "/proc/sys/kernel/random/boot_id", "/proc/driver/nvidia/version"]
    {
        all += fs::read_to_string(path).unwrap_or_default().trim();
        all.push('\n');
    }
    for name in ["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"]
    {
        all += &format!("{name}={:?}\n", std::env::var_os(name));
    }
    let mut files: Vec<_> = fs::read_dir("/dev")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("nvidia"))
        .collect();
    files.sort();
    all + &files.join(" ")
}
