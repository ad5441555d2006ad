//! What the machine has: memory, within the limit of a container or a batch job.

use std::fs;
use std::path::{Path, PathBuf};

/// Memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    pub total: u64,
    /// What programs can take without swapping.
    pub available: u64,
}

/// The memory that this process can use, where the kernel tells.
pub fn memory() -> Option<Memory> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    Some(within_limits(whole(&meminfo)?, &group_folders(&groups, Path::new("/sys/fs/cgroup"))))
}

/// The machine's memory, from `/proc/meminfo`.
fn whole(meminfo: &str) -> Option<Memory> {
    Some(Memory { total: value(meminfo, "MemTotal")?, available: value(meminfo, "MemAvailable")? })
}

fn value(meminfo: &str, name: &str) -> Option<u64> {
    let rest = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The folders of this process's control group (version 2) and of those that it lies in. In a container
/// the first of them is often the root, which there holds the container's own limit.
fn group_folders(groups: &str, root: &Path) -> Vec<PathBuf> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    let folder = root.join(group.trim_start_matches('/'));
    folder.ancestors().take_while(|folder| folder.starts_with(root)).map(Path::to_owned).collect()
}

fn within_limits(mut memory: Memory, groups: &[PathBuf]) -> Memory {
    for group in groups {
        let read = |name| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
        let Some(limit) = read("memory.max") else { continue };
        let used = read("memory.current").unwrap_or(0);
        memory.total = memory.total.min(limit);
        memory.available = memory.available.min(limit.saturating_sub(used));
    }
    memory
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:       16000 kB\nMemAvailable:    8000 kB\nHugePages_Total: 0\n";

    #[test]
    fn meminfo_is_read_in_bytes() {
        assert_eq!(whole(MEMINFO), Some(Memory { total: 16000 * 1024, available: 8000 * 1024 }));
        assert_eq!(value(MEMINFO, "MemAvail"), None);
        assert_eq!(value(MEMINFO, "HugePages_Total"), None);
    }

    #[test]
    fn the_smallest_limit_of_the_group_and_its_parents_holds() {
        let root = tempfile::tempdir().unwrap();
        let job = root.path().join("batch/job");
        fs::create_dir_all(&job).unwrap();
        let groups = group_folders("0::/batch/job\n", root.path());
        assert_eq!(groups.len(), 3);
        let all = whole(MEMINFO).unwrap();
        assert_eq!(within_limits(all, &groups), all);
        fs::write(job.join("memory.max"), "max\n").unwrap();
        fs::write(root.path().join("batch/memory.max"), "5000\n").unwrap();
        fs::write(root.path().join("batch/memory.current"), "2000\n").unwrap();
        assert_eq!(within_limits(all, &groups), Memory { total: 5000, available: 3000 });
    }
}
