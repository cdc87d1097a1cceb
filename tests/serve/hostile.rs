//! Statements that ask for what no server should give, each refused or stopped in a moment, while others go on.

use std::path::Path;

use godwit_tests::needs;
use godwit_tests::served::Served;

use crate::run::formats::{aligned, lines, run_python};

/// What the server and each process that it starts may have, kB.
const MOST_KB: u64 = 512 << 10;

/// The most memory that a process had at a time, kB.
pub fn peak_kb(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

#[test]
fn hostile_statements_are_refused_or_stopped_and_others_go_on() {
    needs!("bwa", "samtools", "python3");
    let (_, out) = aligned();
    // Less than the five seconds and 512 MiB that each may take, because there is a wait on both sides of them.
    let served = Served::start(&out, &["--statement-time", "2s", "--statement-memory", "400M"]);
    let server = served.process_id();
    let watch = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let watcher = std::thread::spawn({
        let watch = watch.clone();
        move || {
            let mut most = 0;
            while watch.load(std::sync::atomic::Ordering::Relaxed) {
                let workers = godwit_tests::processes::children(server, "sql-worker");
                most = workers.into_iter().chain([server]).filter_map(peak_kb).fold(most, u64::max);
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            most
        }
    });
    let told = lines(&run_python("resource_exhaustion.py", Path::new("-"), &[&served.address, "sample.bam", "30"]));
    watch.store(false, std::sync::atomic::Ordering::Relaxed);
    let most_kb = watcher.join().expect("the watcher ends");
    let (other, statements) = told.split_last().expect("there are statements");
    let bad: Vec<&String> = statements.iter().filter(|line| !line.starts_with("ok ")).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    assert!(statements.len() >= 100, "{}", statements.len());
    assert_eq!(other.split(' ').count(), 3, "the other client failed: {other}");
    assert!(most_kb < MOST_KB, "{most_kb} kB");
    assert!(peak_kb(server).is_some(), "the server is still there");
}
