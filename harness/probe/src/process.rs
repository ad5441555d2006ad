//! What a worker process needs of the operating system and Python's standard library lacks.

use pyo3::prelude::*;

/// Asks the kernel to kill this process when its parent dies, so that no arm outlives its host.
/// Returns false where the platform has no such request.
#[pyfunction]
pub fn die_with_parent() -> bool {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: prctl with these arguments reads no memory of ours.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0 }
    }
    #[cfg(not(target_os = "linux"))]
    false
}

/// Asks the kernel for the descendants of this process whose parents die, so that it can end them.
/// Returns false where the platform has no such request.
#[pyfunction]
pub fn adopt_orphans() -> bool {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: prctl with these arguments reads no memory of ours.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) == 0 }
    }
    #[cfg(not(target_os = "linux"))]
    false
}

/// How many threads this process has, or None where the platform does not tell. Forking is only
/// safe with one.
#[pyfunction]
pub fn thread_count() -> Option<usize> {
    std::fs::read_dir("/proc/self/task").ok().map(Iterator::count)
}
