//! Statements that need unlimited resources, each rejected or stopped within seconds, while others continue.

use std::path::Path;

use godwit_tests::data_server::DataServer;
use godwit_tests::needs;

use crate::run::formats::{aligned_sample, run_python, to_lines};

/// The memory limit of the server and of each process that it starts, in KiB.
const MAX_MEMORY_KB: u64 = 512 << 10;

/// Returns the peak memory of a process, in KiB.
pub fn peak_memory_kb(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

#[test]
fn hostile_statements_are_refused_or_stopped_and_others_go_on() {
    needs!("bwa", "samtools", "python3");
    let (_, out) = aligned_sample();
    // Set lower limits than the five seconds and 512 MiB that the test permits, because client and server also take
    // time before and after the statement.
    let served = DataServer::start(&out, &["--statement-time", "1s", "--statement-memory", "400M"]);
    let server = served.process_id();
    let watch = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let watcher = std::thread::spawn({
        let watch = watch.clone();
        move || {
            let mut most = 0;
            while watch.load(std::sync::atomic::Ordering::Relaxed) {
                let workers = godwit_tests::processes::child_processes(server, "godwit-sql");
                most = workers.into_iter().chain([server]).filter_map(peak_memory_kb).fold(most, u64::max);
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            most
        }
    });
    let told = to_lines(&run_python("resource_exhaustion.py", Path::new("-"), &[&served.address, "sample.bam", "30"]));
    watch.store(false, std::sync::atomic::Ordering::Relaxed);
    let most_kb = watcher.join().expect("the watcher ends");
    let (other, statements) = told.split_last().expect("there are statements");
    let bad: Vec<&String> = statements.iter().filter(|line| !line.starts_with("ok ")).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    assert!(statements.len() >= 100, "{}", statements.len());
    assert_eq!(other.split(' ').count(), 3, "the other client failed: {other}");
    assert!(most_kb < MAX_MEMORY_KB, "{most_kb} kB");
    assert!(peak_memory_kb(server).is_some(), "the server is still there");
}
