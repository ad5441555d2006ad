//! The Python extension of torchleak's workers: it reads memory counters, counts tensors and writes
//! every message.
//!
//! It is built against the stable ABI of Python 3.10, so one build serves every later interpreter,
//! and it links neither libpython nor libtorch. What it knows of torch it asks of the interpreter it
//! is loaded into.

mod census;
mod collections;
mod garbage;
mod graph;
mod heap;
mod memory;
mod messages;
mod process;
mod torch;

use pyo3::prelude::*;

/// Memory counters, tensor census and messages of a torchleak worker.
#[pymodule]
mod torchleak_probe {
    #[pymodule_export]
    use crate::census::census;
    #[pymodule_export]
    use crate::collections::OtherCollections;
    #[pymodule_export]
    use crate::garbage::{GarbageLook, look};
    #[pymodule_export]
    use crate::graph::{cycles, live_storages, retained_by};
    #[pymodule_export]
    use crate::memory::{in_use, memory, reset_peak};
    #[pymodule_export]
    use crate::messages::{send_arm, send_host, send_watch};
    #[pymodule_export]
    use crate::process::{adopt_orphans, die_with_parent, thread_count};
}
