//! Memory counters of this process, for Python.

use pyo3::prelude::*;

use crate::messages::to_python;

/// Reads the counters: a dict with `in_use`, `rss` and `peak_rss` in bytes (None where the platform
/// does not tell) and `device`, which the caller fills in. `in_use` can be left out: glibc walks over
/// all free chunks for it, which takes long in a process that has millions of them.
#[pyfunction]
#[pyo3(signature = (with_in_use = true))]
pub fn memory(py: Python<'_>, with_in_use: bool) -> PyResult<Bound<'_, PyAny>> {
    to_python(py, &torchleak_memory::read(with_in_use))
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
