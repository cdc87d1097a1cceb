//! Faults of the hosts of a real SLURM cluster, at moments drawn from a seed, change no byte of the output.

use std::fs;
use std::path::Path;
use std::time::Duration;

use godwit_tests::random::Random;
use godwit_tests::slurm::{self, SlurmCluster};
use godwit_tests::{needs, needs_host_namespaces, scratch, skip};

use super::cluster::{assert_same_from_slurm_job, wait_for_event};
use super::cluster_requeue::{align, by_one_process};

/// The default number of runs.
const DEFAULT_RUNS: u64 = 20;
const HOSTS: usize = 4;
/// Size of the scratch space of a host: enough for the data of a worker, but small, so that a test can fill it quickly.
const SCRATCH_SIZE: &str = "256M";
/// The host of the head.
const HEAD_HOST: usize = 1;

/// A fault of a host, its argument, and the verb that ends it.
struct HostFault {
    verb: &'static str,
    argument: Option<&'static str>,
    recovery_verb: Option<&'static str>,
    /// True if the host of the head has the fault.
    on_head_host: bool,
}

const fn host_fault(verb: &'static str, recovery_verb: Option<&'static str>) -> HostFault {
    HostFault { verb, argument: None, recovery_verb, on_head_host: false }
}

const HOST_FAULTS: [HostFault; 8] = [
    host_fault("kill", None),
    host_fault("cut", None),
    host_fault("cut", Some("heal")),
    host_fault("pause", Some("cont")),
    host_fault("pause", None),
    host_fault("fill", None),
    HostFault { verb: "slow", argument: Some("10"), recovery_verb: None, on_head_host: false },
    // Start the host again after the fault, because the job requires all hosts.
    HostFault { verb: "kill", argument: None, recovery_verb: Some("start"), on_head_host: true },
];

fn start_cluster() -> SlurmCluster {
    SlurmCluster::start_with(HOSTS as u32, &["--scratch", SCRATCH_SIZE])
}

/// Runs a SLURM job over the hosts of a cluster, with a fault of one of them at a moment drawn from the seed.
fn assert_fault_changes_no_byte(cluster: &SlurmCluster, seed: u64, of: &[HostFault], expected: &Path) {
    let mut random = Random::new(seed);
    let out = scratch::directory("slurm-chaos").join("out");
    let run = align(&out)
        .args(["--on", "slurm", "--nodes", &HOSTS.to_string(), "--json", "--slurm-memory", "300M", "--temp"])
        .arg(cluster.scratch().join("godwit"))
        .env("SLURM_CONF", cluster.slurm_conf())
        .spawn();
    let moments =
        [("aligned", 1), ("aligned", 20), ("aligned", 60), ("aligned", 110), ("aligned", 142), ("written", 2)];
    let (event, count) = *random.pick(&moments);
    wait_for_event(&out.join("slurm/logs/node-0.err"), event, count, &run);
    let strike = random.pick(of);
    let node = if strike.on_head_host { HEAD_HOST } else { HEAD_HOST + 1 + random.below(HOSTS - 1) };
    let node = format!("gw{node}");
    println!("seed {seed}: {} {node} after {count} {event}", strike.verb);
    cluster.inject_fault_with_argument(strike.verb, &node, strike.argument);
    if let Some(end) = strike.recovery_verb {
        std::thread::sleep(Duration::from_millis(random.between(100, 9_000) as u64));
        cluster.inject_fault(end, &node);
    }
    let finished = run.wait_with_output();
    let attempts = scratch::entry_names(&out.join("slurm/attempts")).len();
    let report = fs::read_to_string(out.join("run.json")).unwrap_or_default();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap_or_default();
    println!("  {attempts} starts: {}", report["exchange"]);
    assert_same_from_slurm_job(expected, &out, &finished);
}

#[test]
fn a_worker_with_full_scratch_space_leaves_and_a_slow_one_stays() {
    needs!("bwa");
    if !slurm::is_installed() {
        skip!("missing-tool", "SLURM and munge are not installed");
    }
    for (seed, strike) in (0..).zip([5..6, 6..7]) {
        let cluster = start_cluster();
        needs_host_namespaces!(cluster);
        assert_fault_changes_no_byte(&cluster, seed, &HOST_FAULTS[strike], by_one_process());
    }
}

#[test]
#[ignore = "minutes: faults at random moments on separate clusters; GODWIT_CHAOS_RUNS sets their number, 20 by default"]
fn strikes_at_random_moments_change_no_byte() {
    needs!("bwa");
    if !slurm::is_installed() {
        skip!("missing-tool", "SLURM and munge are not installed");
    }
    let number = |name: &str, other| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(other);
    let (first, runs) = (number("GODWIT_CHAOS_SEED", 0), number("GODWIT_CHAOS_RUNS", DEFAULT_RUNS));
    for seed in first..first + runs {
        let cluster = start_cluster();
        needs_host_namespaces!(cluster);
        assert_fault_changes_no_byte(&cluster, seed, &HOST_FAULTS, by_one_process());
    }
}
