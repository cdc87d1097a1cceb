//! What happens to nodes of a real SLURM cluster at moments drawn from a seed changes no byte.

use std::fs;
use std::path::Path;
use std::time::Duration;

use godwit_tests::random::Random;
use godwit_tests::slurm::{self, Cluster};
use godwit_tests::{needs, scratch, skip};

use super::nodes::{assert_same_by_slurm, wait_until_said};
use super::nodes_requeue::{align, by_one_process};

/// Runs where none are asked for.
const RUNS: u64 = 20;
const NODES: usize = 4;
/// Enough for what nodes keep, and little to fill.
const SCRATCH: &str = "256M";
/// The head's node.
const HEAD: usize = 1;

/// Something that happens to a node, what it is given besides, and what ends it.
struct Strike {
    verb: &'static str,
    argument: Option<&'static str>,
    end: Option<&'static str>,
    /// Whether it is the head's node that it happens to.
    of_head: bool,
}

const fn strike(verb: &'static str, end: Option<&'static str>) -> Strike {
    Strike { verb, argument: None, end, of_head: false }
}

const STRIKES: [Strike; 8] = [
    strike("kill", None),
    strike("cut", None),
    strike("cut", Some("heal")),
    strike("pause", Some("cont")),
    strike("pause", None),
    strike("fill", None),
    Strike { verb: "slow", argument: Some("10"), end: None, of_head: false },
    // The node comes back, for the job needs as many.
    Strike { verb: "kill", argument: None, end: Some("start"), of_head: true },
];

/// A run as a SLURM job over four nodes, one of which is struck at a moment drawn from the seed.
fn survives(seed: u64, of: &[Strike], expected: &Path) {
    let mut random = Random::new(seed);
    let cluster = Cluster::start_with(NODES as u32, &["--scratch", SCRATCH]);
    if !cluster.has_own_nodes() {
        return;
    }
    let out = scratch::directory("slurm-chaos").join("out");
    let run = align(&out)
        .args(["--on", "slurm", "--nodes", &NODES.to_string(), "--json", "--slurm-memory", "300M", "--temp"])
        .arg(cluster.scratch().join("godwit"))
        .env("SLURM_CONF", cluster.configuration())
        .start();
    let moments =
        [("aligned", 1), ("aligned", 20), ("aligned", 60), ("aligned", 110), ("aligned", 142), ("written", 2)];
    let (event, count) = *random.pick(&moments);
    wait_until_said(&out.join("slurm/logs/node-0.err"), event, count, &run);
    let strike = random.pick(of);
    let node = if strike.of_head { HEAD } else { HEAD + 1 + random.below(NODES - 1) };
    let node = format!("gw{node}");
    println!("seed {seed}: {} {node} after {count} {event}", strike.verb);
    cluster.strike_with(strike.verb, &node, strike.argument);
    if let Some(end) = strike.end {
        std::thread::sleep(Duration::from_millis(random.between(100, 9_000) as u64));
        cluster.strike(end, &node);
    }
    let finished = run.finish();
    let attempts = scratch::names(&out.join("slurm/attempts")).len();
    let report = fs::read_to_string(out.join("run.json")).unwrap_or_default();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap_or_default();
    println!("  {attempts} starts: {}", report["exchange"]);
    assert_same_by_slurm(expected, &out, &finished);
}

#[test]
fn a_node_whose_scratch_space_is_full_leaves_and_a_slow_one_stays() {
    needs!("bwa");
    if !slurm::is_installed() {
        skip!("missing-tool", "SLURM and munge are not installed");
    }
    for (seed, strike) in (0..).zip([5..6, 6..7]) {
        survives(seed, &STRIKES[strike], by_one_process());
    }
}

#[test]
#[ignore = "minutes: strikes at random moments on clusters of their own; GODWIT_CHAOS_RUNS of them, 20 where it is not set"]
fn strikes_at_random_moments_change_no_byte() {
    needs!("bwa");
    if !slurm::is_installed() {
        skip!("missing-tool", "SLURM and munge are not installed");
    }
    let number = |name: &str, other| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(other);
    let (first, runs) = (number("GODWIT_CHAOS_SEED", 0), number("GODWIT_CHAOS_RUNS", RUNS));
    (first..first + runs).for_each(|seed| survives(seed, &STRIKES, by_one_process()));
}
