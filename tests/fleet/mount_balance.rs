//! Mounts of a pool, as of many hosts: each policy spreads them evenly over the members. The tests count the calls and
//! bytes in the metrics of the members.

use std::fs;

use godwit_tests::data_server::DataServer;
use godwit_tests::needs;
use godwit_tests::wait::wait_until;

use super::mounted_files::{MountedFiles, mount_or_skip};
use super::server_pool::{ServerPool, path_text};
use crate::serve::http_client::get;
use crate::transfer::copies::pseudorandom_bytes;

pub(super) const MEMBERS: usize = 3;
/// Number of connections of a mount. Each has a lease, and serves one of this number of opens.
const CONNECTIONS: usize = 4;
/// Size of the file that all readers read: many requests, so that their number decides and not the size of the last one.
const LARGE_BYTES: usize = 40_000_000;
/// Number of members whose work the pool does at least.
pub(super) const MIN_SPEEDUP: f64 = 2.3;

/// Returns the sum of a metric of a server for calls of one kind.
pub(super) fn call_metric(served: &DataServer, name: &str, verb: &str) -> f64 {
    let text = get(served, "/metrics", &[]).body;
    let (start, label) = (format!("{name}{{"), format!("verb=\"{verb}\""));
    let counted = text.lines().filter(|line| line.starts_with(&start) && line.contains(&label));
    counted.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// Returns a metric of the downloads of each member.
fn download_metric(pool: &ServerPool, name: &str) -> Vec<f64> {
    pool.members.iter().flatten().map(|member| call_metric(member, name, "DoGet")).collect()
}

/// Returns the work of all members divided by that of the busiest one.
pub(super) fn speedup(work: &[f64]) -> f64 {
    work.iter().sum::<f64>() / work.iter().fold(0.0, |most, one| f64::max(most, *one))
}

/// Lets each mount call its function in a thread.
fn run_at_once(mounts: &[MountedFiles], read: impl Fn(&MountedFiles) + Sync) {
    std::thread::scope(|scope| {
        for mounted in mounts {
            scope.spawn(|| read(mounted));
        }
    });
}

/// Opens small files through mounts at once, and then reads a large one through each of `reader_count` mounts.
fn check_balance(policy: &str, mount_count: usize, reader_count: usize) {
    let pool = ServerPool::start("mount-balance", policy, MEMBERS, &[]);
    for number in 0..CONNECTIONS {
        fs::write(pool.root.join(format!("small{number}")), "small").expect("it can be written");
    }
    fs::write(pool.root.join("large"), pseudorandom_bytes(LARGE_BYTES)).expect("it can be written");
    let (url, description) = (ServerPool::url(""), path_text(&pool.description));
    let mut mounts = Vec::new();
    for _ in 0..mount_count {
        mounts.push(mount_or_skip!("mount-balance-point", &url, "--pool", description, "--wait", "1m"));
    }
    run_at_once(&mounts, |mounted| {
        for number in 0..CONNECTIONS {
            assert_eq!(fs::read(mounted.point.join(format!("small{number}"))).expect("it can be read"), b"small");
        }
    });
    let opens = (mount_count * CONNECTIONS) as f64;
    wait_until("all opens are counted", || download_metric(&pool, "godwit_calls_total").iter().sum::<f64>() == opens);
    let each = download_metric(&pool, "godwit_calls_total");
    let even = opens / MEMBERS as f64;
    let is_even = match policy {
        "round-robin" | "connections" => each.iter().all(|count| (count - even).abs() <= 1.0),
        // These policies follow the load of the members.
        _ => speedup(&each) >= MIN_SPEEDUP,
    };
    assert!(is_even, "{policy}: {each:?}");
    if reader_count == 0 {
        return;
    }
    run_at_once(&mounts[..reader_count], |mounted| {
        assert_eq!(fs::read(mounted.point.join("large")).expect("it can be read").len(), LARGE_BYTES);
    });
    let bytes = download_metric(&pool, "godwit_sent_bytes_total");
    eprintln!("{policy}: opens {each:?}, bytes {bytes:?}, {:.2} times the busiest member", speedup(&bytes));
    assert!(speedup(&bytes) >= MIN_SPEEDUP, "{policy}: {bytes:?}");
}

#[test]
fn the_connections_of_mounts_are_spread_over_the_members() {
    needs!("python3", "curl");
    check_balance("round-robin", 3, 0);
}

#[test]
#[ignore = "30 mounts for each policy; run it by name, on a machine with nothing else to do"]
fn a_burst_of_opens_and_twelve_readers_are_even_by_each_policy() {
    needs!("python3", "curl");
    for policy in ["round-robin", "connections", "cpu", "throughput"] {
        check_balance(policy, 30, 12);
    }
}
