//! What tch does not expose of libtorch; `libtorch.cpp` is the other half.

use std::ffi::{CStr, c_char};

use torchleak_protocol::DeviceMemory;

unsafe extern "C" {
    safe fn torchleak_torch_version() -> *const c_char;
    safe fn torchleak_be_deterministic();
    safe fn torchleak_cuda_total(index: i8) -> u64;
    safe fn torchleak_cuda_reset_peak(index: i8);
    fn torchleak_cuda_stats(index: i8, out: *mut i64);
}

/// The GPU of a process that was told of no other.
const FIRST: i8 = 0;

/// The release whose headers this was compiled with.
pub fn version() -> String {
    // SAFETY: the function returns a string literal.
    unsafe { CStr::from_ptr(torchleak_torch_version()) }.to_string_lossy().into_owned()
}

/// Sums in the same order at every run, as the Python arms do.
pub fn be_deterministic() {
    torchleak_be_deterministic();
}

/// Bytes of the GPU.
pub fn cuda_total() -> u64 {
    torchleak_cuda_total(FIRST)
}

/// Begins a new interval for the peaks.
pub fn cuda_reset_peak() {
    torchleak_cuda_reset_peak(FIRST);
}

/// The counters of the caching allocator.
pub fn cuda_memory() -> DeviceMemory {
    let mut stats = [0; 7];
    // SAFETY: the function writes seven numbers.
    unsafe { torchleak_cuda_stats(FIRST, stats.as_mut_ptr()) };
    let [allocated, active, reserved, peak_allocated, peak_reserved, alloc_retries, ooms] =
        stats.map(i64::cast_unsigned);
    DeviceMemory { allocated, active, reserved, peak_allocated, peak_reserved, alloc_retries, ooms }
}
