//! Memory, processors and disk space that this host allows a process to use. Only Linux is supported; `None` means
//! unknown.

use std::ffi::CString;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Resource limits of the control groups (cgroups) of a process. For each resource, the tightest limit of all levels
/// counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CgroupLimits {
    /// Memory limit, bytes.
    pub memory_bytes: Option<u64>,
    /// Free memory below that limit, bytes. Inactive pages of the file cache count as free.
    pub memory_free_bytes: Option<u64>,
    /// Number of processors that the quota of CPU time allows; may be a fraction.
    pub processors: Option<f64>,
}

impl CgroupLimits {
    /// Returns the cgroup limits of this process.
    pub fn of_this_process() -> Self {
        let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self::read(&membership, Path::new("/sys/fs/cgroup"))
    }

    /// Reads the limits of a process. `membership`: content of its `/proc/PID/cgroup`. `mount`: the mount point of the
    /// control groups.
    fn read(membership: &str, mount: &Path) -> Self {
        let mut limits = Self::default();
        for line in membership.lines() {
            let [_, controllers, path] = line.splitn(3, ':').collect::<Vec<_>>()[..] else { continue };
            let has = |name| controllers.split(',').any(|controller| controller == name);
            if controllers.is_empty() {
                cgroup_levels(mount, path).for_each(|level| limits.tighten_v2(&level));
            }
            if has("memory") {
                cgroup_levels(&mount.join("memory"), path).for_each(|level| limits.tighten_memory_v1(&level));
            }
            if has("cpu") {
                cgroup_levels(&mount.join("cpu"), path).for_each(|level| limits.tighten_cpu_v1(&level));
            }
        }
        limits
    }

    fn tighten_v2(&mut self, level: &Path) {
        self.tighten_memory(level, "memory.max", "memory.current", "inactive_file ");
        let text = fs::read_to_string(level.join("cpu.max")).unwrap_or_default();
        let mut words = text.split_whitespace().map(str::parse::<f64>);
        if let (Some(Ok(quota)), Some(Ok(period))) = (words.next(), words.next()) {
            self.tighten_processors(quota / period);
        }
    }

    fn tighten_memory_v1(&mut self, level: &Path) {
        self.tighten_memory(level, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ");
    }

    fn tighten_cpu_v1(&mut self, level: &Path) {
        let quota = read_number(&level.join("cpu.cfs_quota_us"));
        if let (Some(quota), Some(period)) = (quota, read_number(&level.join("cpu.cfs_period_us"))) {
            self.tighten_processors(quota as f64 / period.max(1) as f64);
        }
    }

    fn tighten_memory(&mut self, level: &Path, limit: &str, usage: &str, files: &str) {
        // Control groups of version 1 represent "no limit" by a number that is larger than any memory.
        let Some(limit_bytes) = read_number(&level.join(limit)).filter(|bytes| *bytes < 1 << 60) else { return };
        let statistics = fs::read_to_string(level.join("memory.stat")).unwrap_or_default();
        let file_bytes = statistics.lines().find_map(|line| line.strip_prefix(files)?.trim().parse().ok()).unwrap_or(0);
        let used_bytes = read_number(&level.join(usage)).unwrap_or(0).saturating_sub(file_bytes);
        let tightest = |known: Option<u64>, bytes: u64| Some(known.map_or(bytes, |known| known.min(bytes)));
        self.memory_bytes = tightest(self.memory_bytes, limit_bytes);
        self.memory_free_bytes = tightest(self.memory_free_bytes, limit_bytes.saturating_sub(used_bytes));
    }

    fn tighten_processors(&mut self, processors: f64) {
        self.processors = Some(self.processors.map_or(processors, |known| known.min(processors)));
    }
}

/// Returns the directories of a control group and of its parents. In a container, `path` may be a path of the host;
/// then only the mount point exists.
fn cgroup_levels(mount: &Path, path: &str) -> impl Iterator<Item = PathBuf> + use<> {
    let (mount, path) = (mount.to_owned(), PathBuf::from(path.trim_start_matches('/')));
    let all: Vec<PathBuf> = path.ancestors().map(|level| mount.join(level)).collect();
    all.into_iter()
}

fn read_number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns a value of `/proc/meminfo`, converted to bytes.
fn meminfo_bytes(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kibibytes =
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().strip_suffix(" kB"))?;
    kibibytes.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the maximum memory of this process, bytes: the memory of the host, or the limit of its control groups if
/// that is smaller.
pub fn memory_bytes() -> Option<u64> {
    let group = CgroupLimits::of_this_process().memory_bytes;
    meminfo_bytes("MemTotal").into_iter().chain(group).min()
}

/// Returns the memory that this process can allocate now without displacing the memory of other processes, bytes.
pub fn free_memory_bytes() -> Option<u64> {
    let group = CgroupLimits::of_this_process().memory_free_bytes;
    meminfo_bytes("MemAvailable").into_iter().chain(group).min()
}

/// Measures the rate at which the first 64 MiB of a file are read, bytes/s. The file may be on disk or in the page
/// cache.
///
/// # Errors
/// The I/O error of the operating system.
pub fn read_bytes_per_s(path: &Path) -> io::Result<f64> {
    let mut file = fs::File::open(path)?.take(64 << 20);
    let mut buffer = vec![0; 1 << 20];
    let (started, mut bytes) = (Instant::now(), 0);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(bytes as f64 / started.elapsed().as_secs_f64().max(1e-9)),
            read => bytes += read,
        }
    }
}

/// Returns the disk space that unprivileged users may use on the file system of a path, bytes. If the path does not
/// exist, its nearest existing parent directory is used.
///
/// # Errors
/// The I/O error of the operating system.
pub fn free_disk_bytes(path: &Path) -> io::Result<u64> {
    let path = CString::new(nearest_existing(path).as_os_str().as_bytes())?;
    // SAFETY: all fields of statvfs are numbers, for which zero is valid.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with a zero byte, and the structure is valid during the call.
    match unsafe { libc::statvfs(path.as_ptr(), &mut found) } {
        0 => Ok(found.f_bavail as u64 * found.f_frsize as u64),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Checks that this process may create files in a directory. If the directory does not exist, checks that it may be
/// created.
///
/// # Errors
/// The I/O error that creating a file would cause.
pub fn check_writable(directory: &Path) -> io::Result<()> {
    let there = nearest_existing(directory);
    if !there.is_dir() {
        return Err(io::Error::from(io::ErrorKind::NotADirectory));
    }
    let path = CString::new(there.as_os_str().as_bytes())?;
    // SAFETY: the path ends with a zero byte.
    match unsafe { libc::access(path.as_ptr(), libc::W_OK | libc::X_OK) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the path itself if it exists, or its nearest existing parent directory.
pub fn nearest_existing(path: &Path) -> &Path {
    let above = path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."));
    if above.as_os_str().is_empty() { Path::new(".") } else { above }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn the_tightest_level_of_version_2_counts() {
        let root = tempfile::tempdir().unwrap();
        let files = [
            ("a/memory.max", "4000\n"),
            ("a/memory.current", "1500\n"),
            ("a/memory.stat", "anon 1000\ninactive_file 500\n"),
            ("a/cpu.max", "150000 100000\n"),
            ("a/b/memory.max", "max\n"),
            ("a/b/cpu.max", "max 100000\n"),
        ];
        write(root.path(), &files);
        let limits = CgroupLimits::read("0::/a/b\n", root.path());
        let expected = CgroupLimits { memory_bytes: Some(4000), memory_free_bytes: Some(3000), processors: Some(1.5) };
        assert_eq!(limits, expected);
    }

    #[test]
    fn version_1_is_read_too_and_no_limit_is_none() {
        let root = tempfile::tempdir().unwrap();
        let files = [
            ("memory/a/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/memory.limit_in_bytes", "8000\n"),
            ("memory/memory.usage_in_bytes", "8500\n"),
            ("cpu/a/cpu.cfs_quota_us", "-1\n"),
            ("cpu/cpu.cfs_quota_us", "200000\n"),
            ("cpu/cpu.cfs_period_us", "100000\n"),
        ];
        write(root.path(), &files);
        let limits = CgroupLimits::read("4:memory:/a\n3:cpu,cpuacct:/a\n", root.path());
        let expected = CgroupLimits { memory_bytes: Some(8000), memory_free_bytes: Some(0), processors: Some(2.0) };
        assert_eq!(limits, expected);
    }

    #[test]
    fn a_directory_that_can_be_made_can_be_written() {
        let root = tempfile::tempdir().unwrap();
        assert!(check_writable(&root.path().join("a/b")).is_ok());
        fs::write(root.path().join("file"), "").unwrap();
        assert!(check_writable(&root.path().join("file/below")).is_err());
        assert!(free_disk_bytes(&root.path().join("a/b")).unwrap() > 0);
    }
}
