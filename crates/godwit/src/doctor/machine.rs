//! Checks of the processors, the memory, the limit of open files, the disks, the kernel, and the cluster scheduler.

use std::path::Path;
use std::process::{Command, Stdio};

use godwit_align::format_bytes;
use godwit_engines::find_on_path;
use godwit_pipeline::host_resources::{self, CgroupLimits};

use super::{Area, Finding, FindingState};

/// Number of open files that a run with many lanes and threads may need.
const MIN_OPEN_FILES: u64 = 256;
/// Minimum memory, in bytes, for godwit and an aligner with the default block size.
const MIN_MEMORY_BYTES: u64 = 2 << 30;
/// Minimum free disk space, in bytes, for real data.
const MIN_DISK_BYTES: u64 = 1 << 30;

/// Checks this host. Also checks the free space and the permissions of each of `directories`, which are pairs of
/// purpose and path.
pub fn machine(directories: &[(&str, &Path)]) -> Vec<Finding> {
    let limits = CgroupLimits::of_this_process();
    let mut findings = vec![kernel(), processors(&limits), memory(&limits), open_files()];
    findings.extend(directories.iter().map(|(purpose, directory)| disk(purpose, directory)));
    findings.push(slurm());
    findings
}

fn kernel() -> Finding {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Finding::new(Area::Machine, "kernel", FindingState::Fine, format!("Linux {}", release.trim()))
}

fn processors(limits: &CgroupLimits) -> Finding {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut found = format!("{threads} threads by default");
    if let Some(quota) = limits.processors {
        found += &format!("; the control group allows {quota:.1} processors");
    }
    Finding::new(Area::Machine, "processors", FindingState::Fine, found)
}

fn memory(limits: &CgroupLimits) -> Finding {
    let show = |bytes: Option<u64>| bytes.map_or("unknown".into(), format_bytes);
    let mut found =
        format!("{}, {} free", show(host_resources::memory_bytes()), show(host_resources::free_memory_bytes()));
    if let Some(bytes) = limits.memory_bytes {
        found += &format!("; the control group allows {}", format_bytes(bytes));
    }
    if host_resources::memory_bytes().is_some_and(|bytes| bytes < MIN_MEMORY_BYTES) {
        return Finding::new(Area::Machine, "memory", FindingState::Warning, found)
            .with_remedy("godwit align with its default block size needs 2G and the index; lower --block-bases");
    }
    Finding::new(Area::Machine, "memory", FindingState::Fine, found)
}

fn open_files() -> Finding {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure outlives the call, which writes to nothing else.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    let found = format!("{} at most, {} on request", limit.rlim_cur, limit.rlim_max);
    if limit.rlim_cur < MIN_OPEN_FILES {
        let wanted = MIN_OPEN_FILES.min(limit.rlim_max);
        return Finding::new(Area::Machine, "open files", FindingState::Warning, found)
            .with_remedy(format!("run `ulimit -n {wanted}`"));
    }
    Finding::new(Area::Machine, "open files", FindingState::Fine, found)
}

fn disk(purpose: &str, directory: &Path) -> Finding {
    let (what, shown) = (purpose, directory.display());
    if let Err(error) = host_resources::check_writable(directory) {
        return Finding::new(Area::Disk, what, FindingState::Missing, format!("{shown} is not writable: {error}"))
            .with_remedy("choose another directory, or change its permissions");
    }
    match host_resources::free_disk_bytes(directory) {
        Ok(free) if free < MIN_DISK_BYTES => {
            Finding::new(Area::Disk, what, FindingState::Warning, format!("{} free in {shown}", format_bytes(free)))
                .with_remedy("free disk space")
        }
        Ok(free) => {
            Finding::new(Area::Disk, what, FindingState::Fine, format!("{} free in {shown}", format_bytes(free)))
        }
        Err(error) => {
            Finding::new(Area::Disk, what, FindingState::Note, format!("free space in {shown} is unknown: {error}"))
        }
    }
}

fn slurm() -> Finding {
    let finding = |state, found| Finding::new(Area::Cluster, "SLURM", state, found);
    let Some(path) = find_on_path("sinfo") else {
        return finding(FindingState::Note, "sinfo is not on PATH; SLURM is not needed on a single host".to_owned());
    };
    match Command::new(&path).arg("--version").stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => {
            let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            finding(FindingState::Fine, format!("{version}, {}", path.display()))
        }
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr).lines().next_back().unwrap_or_default().to_owned();
            finding(
                FindingState::Note,
                format!("{} failed ({why}); SLURM is not needed on a single host", path.display()),
            )
        }
        Err(error) => finding(FindingState::Note, format!("{} cannot be started ({error})", path.display())),
    }
}
