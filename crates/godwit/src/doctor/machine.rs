//! Processors, memory, open files, disks, kernel and cluster.

use std::path::Path;
use std::process::{Command, Stdio};

use godwit_pipeline::machine::{self, CgroupLimits};
use godwit_pipeline::show_bytes;

use super::engines::find;
use super::{Area, Finding, State};

/// Open files that a run with many lanes and threads may need.
const OPEN_FILES: u64 = 256;
/// Memory below which the default block size does not fit: godwit's own least, and the aligner beside it.
const LEAST_MEMORY_BYTES: u64 = 2 << 30;
/// Free disk below which nothing but toys can be written.
const LEAST_DISK_BYTES: u64 = 1 << 30;

/// Everything about this machine; `directories` are checked for room and permission, with what each is for.
pub fn machine(directories: &[(&str, &Path)]) -> Vec<Finding> {
    let limits = CgroupLimits::of_this_process();
    let mut findings = vec![kernel(), processors(&limits), memory(&limits), open_files()];
    findings.extend(directories.iter().map(|(purpose, directory)| disk(purpose, directory)));
    findings.push(slurm());
    findings
}

fn kernel() -> Finding {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Finding::new(Area::Machine, "kernel", State::Fine, format!("Linux {}", release.trim()))
}

fn processors(limits: &CgroupLimits) -> Finding {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut found = format!("{threads} threads by default");
    if let Some(quota) = limits.processors {
        found += &format!("; the control group allows {quota:.1} processors");
    }
    Finding::new(Area::Machine, "processors", State::Fine, found)
}

fn memory(limits: &CgroupLimits) -> Finding {
    let show = |bytes: Option<u64>| bytes.map_or("unknown".into(), show_bytes);
    let mut found = format!("{}, {} free", show(machine::memory_bytes()), show(machine::free_memory_bytes()));
    if let Some(bytes) = limits.memory_bytes {
        found += &format!("; the control group allows {}", show_bytes(bytes));
    }
    if machine::memory_bytes().is_some_and(|bytes| bytes < LEAST_MEMORY_BYTES) {
        return Finding::new(Area::Machine, "memory", State::Warning, found)
            .remedy("godwit align with its default block size needs 2G and the index; lower --block-bases");
    }
    Finding::new(Area::Machine, "memory", State::Fine, found)
}

fn open_files() -> Finding {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure lives through the call, which writes nothing else.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    let found = format!("{} at most, {} on request", limit.rlim_cur, limit.rlim_max);
    if limit.rlim_cur < OPEN_FILES {
        let wanted = OPEN_FILES.min(limit.rlim_max);
        return Finding::new(Area::Machine, "open files", State::Warning, found)
            .remedy(format!("run `ulimit -n {wanted}`"));
    }
    Finding::new(Area::Machine, "open files", State::Fine, found)
}

fn disk(purpose: &str, directory: &Path) -> Finding {
    let (what, shown) = (purpose, directory.display());
    if let Err(error) = machine::check_writable(directory) {
        return Finding::new(Area::Disk, what, State::Missing, format!("{shown} cannot be written: {error}"))
            .remedy("choose another directory, or change its permissions");
    }
    match machine::free_disk_bytes(directory) {
        Ok(free) if free < LEAST_DISK_BYTES => {
            Finding::new(Area::Disk, what, State::Warning, format!("{} free in {shown}", show_bytes(free)))
                .remedy("make room")
        }
        Ok(free) => Finding::new(Area::Disk, what, State::Fine, format!("{} free in {shown}", show_bytes(free))),
        Err(error) => Finding::new(Area::Disk, what, State::Note, format!("free room in {shown} is unknown: {error}")),
    }
}

fn slurm() -> Finding {
    let finding = |state, found| Finding::new(Area::Cluster, "SLURM", state, found);
    let Some(path) = find("sinfo") else {
        return finding(State::Note, "no sinfo on PATH; not needed on one machine".to_owned());
    };
    match Command::new(&path).arg("--version").stdin(Stdio::null()).output() {
        Ok(said) if said.status.success() => {
            let version = String::from_utf8_lossy(&said.stdout).trim().to_owned();
            finding(State::Fine, format!("{version}, {}", path.display()))
        }
        Ok(said) => {
            let why = String::from_utf8_lossy(&said.stderr).lines().next_back().unwrap_or_default().to_owned();
            finding(State::Note, format!("{} does not work ({why}); not needed on one machine", path.display()))
        }
        Err(error) => finding(State::Note, format!("{} does not start ({error})", path.display())),
    }
}
