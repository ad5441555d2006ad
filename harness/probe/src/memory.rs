//! Memory counters of this process, for Python.

use pyo3::prelude::*;

use crate::messages::to_python;

/// Reads the counters: a dict with `in_use`, `rss` and `peak_rss` in bytes (None where the platform
/// does not tell) and `device`, which the caller fills in.
#[pyfunction]
pub fn memory(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    to_python(py, &torchleak_memory::read())
}

/// Reads only the bytes that the C allocator has handed out, or None where the platform does not tell.
#[pyfunction]
pub fn in_use() -> Option<u64> {
    torchleak_memory::in_use()
}

/// Begins a new interval for `peak_rss`. Returns false where the kernel refuses: the peak is then that
/// of the process.
#[pyfunction]
pub fn reset_peak() -> bool {
    torchleak_memory::reset_peak()
}
