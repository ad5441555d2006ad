//! What is known of an environment once it was checked.

use serde::{Deserialize, Serialize};

/// What an interpreter is and what torch it has. It does not change with the machine's devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// `torch.__version__`, such as `2.13.0+cu130`.
    pub torch: String,
    /// The commit torch was built from.
    pub torch_commit: Option<String>,
    /// The CUDA release torch was built for; none in a CPU build.
    pub cuda: Option<String>,
    /// The ROCm release torch was built for.
    pub hip: Option<String>,
    /// The full Python version, such as `3.11.7`.
    pub python: String,
    /// `CPython` in every usable environment.
    pub implementation: String,
    /// Whether Python was built without the global lock.
    pub free_threaded: bool,
    /// What `platform.platform()` says.
    pub platform: String,
    /// The processor architecture.
    pub machine: String,
    /// The C library's version; none where it is not glibc.
    pub glibc: Option<String>,
    /// numpy's version, if it is there.
    pub numpy: Option<String>,
}

impl Facts {
    /// Whether this torch can use a GPU at all.
    pub fn can_use_gpu(&self) -> bool {
        self.cuda.is_some() || self.hip.is_some()
    }
}

/// One GPU as torch sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its memory in bytes.
    pub memory_bytes: u64,
    /// Its compute capability, such as `9.0`.
    pub capability: String,
}
