//! Memory counters of this process. They live apart from the probe, which is a Python extension, so that the native
//! control reads the very same ones.

use torchleak_protocol::Memory;

/// Reads the counters; `device` is for the caller to fill in. `in_use` can be left out: glibc walks over
/// all free chunks for it, which takes long in a process that has millions of them.
pub fn read(with_in_use: bool) -> Memory {
    // The allocator is read first, before anything here allocates.
    let in_use = if with_in_use { in_use() } else { None };
    Memory { in_use, rss: rss_bytes(), peak_rss: peak_rss_bytes(), device: None }
}

/// Begins a new interval for `peak_rss`. Returns false where the kernel refuses: the peak is then that
/// of the process.
pub fn reset_peak() -> bool {
    cfg!(target_os = "linux") && std::fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// glibc's `struct mallinfo2`; every member is a `size_t`.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[repr(C)]
struct MallInfo2 {
    arena: usize,
    ordblks: usize,
    smblks: usize,
    hblks: usize,
    hblkhd: usize,
    usmblks: usize,
    fsmblks: usize,
    uordblks: usize,
    fordblks: usize,
    keepcost: usize,
}

/// Bytes handed out by glibc: chunks in its arenas (`uordblks`) and chunks mapped one by one
/// (`hblkhd`). Absent before glibc 2.33, whose older counter wraps at 2 GiB.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn in_use() -> Option<u64> {
    type Mallinfo2 = unsafe extern "C" fn() -> MallInfo2;
    static FUNCTION: std::sync::OnceLock<Option<Mallinfo2>> = std::sync::OnceLock::new();
    let function = FUNCTION.get_or_init(|| {
        // The symbol is looked up at run time so that what links this also loads on an older glibc.
        // SAFETY: dlsym is given a valid C string, and glibc documents the type of what it finds.
        unsafe {
            let symbol = libc::dlsym(libc::RTLD_DEFAULT, c"mallinfo2".as_ptr());
            if symbol.is_null() {
                None
            } else {
                Some(std::mem::transmute::<*mut libc::c_void, Mallinfo2>(symbol))
            }
        }
    });
    function.map(|mallinfo2| {
        // SAFETY: mallinfo2 takes no arguments, locks the arenas itself and returns by value.
        let info = unsafe { mallinfo2() };
        (info.uordblks + info.hblkhd) as u64
    })
}

/// Absent: this platform does not tell.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn in_use() -> Option<u64> {
    None
}

#[cfg(target_os = "linux")]
fn rss_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    // SAFETY: sysconf only reads a constant of the system.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Some(pages * u64::try_from(page).ok()?)
}

#[cfg(target_os = "linux")]
fn peak_rss_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(not(target_os = "linux"))]
fn rss_bytes() -> Option<u64> {
    None
}

#[cfg(not(target_os = "linux"))]
fn peak_rss_bytes() -> Option<u64> {
    None
}
