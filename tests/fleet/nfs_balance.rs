//! Clients of NFS at a pool. They request no lease, so no policy assigns them to members: each uses the address that it was given.
//! The test counts the bytes that each member sends over its link.

use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use godwit_tests::host_network::HostNetwork;
use godwit_tests::network_namespace::NetworkNamespace;
use godwit_tests::{needs, skip};

use super::mount_balance::{MEMBERS, MIN_SPEEDUP, speedup};
use super::server_pool::ServerPool;
use crate::transfer::copies::pseudorandom_bytes;

/// Number of clients that read the file at once.
const READERS: usize = 12;
const FILE_BYTES: usize = 10_000_000;
/// Rate of the link of each host, bytes a second: less than this machine can serve.
const LINK_BYTES_PER_S: u64 = 10_000_000;

/// Returns the bytes that each host has sent.
fn sent_bytes(network: &HostNetwork) -> Vec<f64> {
    let sent = |host: &NetworkNamespace| {
        let shown = host.ip("-json -statistics link show dev eth0").stdout;
        let shown: serde_json::Value = serde_json::from_slice(&shown).expect("it is JSON");
        shown[0]["stats64"]["tx"]["bytes"].as_f64().expect("it is a number")
    };
    network.hosts.iter().map(sent).collect()
}

/// Reads the file by all clients at once, which use the addresses of the first `servers` hosts in turn. Returns the bytes that each
/// host has sent, and the time.
fn read_at_once(network: &HostNetwork, servers: usize) -> (Vec<f64>, Duration) {
    let (before, started) = (sent_bytes(network), Instant::now());
    let start = |number: usize| {
        let mut command = network.clients.command("nfs-cat");
        command.arg(format!("nfs://{}/run7/f?nfsport=2049&mountport=2049", HostNetwork::address(number % servers)));
        command.stdout(Stdio::null()).spawn().expect("it starts")
    };
    let programs: Vec<Child> = (0..READERS).map(start).collect();
    for mut program in programs {
        assert!(program.wait().expect("it can be waited for").success());
    }
    let sent = sent_bytes(network).iter().zip(before).map(|(after, before)| after - before).collect();
    (sent, started.elapsed())
}

#[test]
#[ignore = "a full link for 15 s; run it by name, on a machine with nothing else to do"]
fn nfs_clients_that_use_three_addresses_in_turn_load_the_members_evenly() {
    needs!("python3", "ip", "tc", "nfs-cat");
    if !HostNetwork::is_permitted() {
        skip!("network-namespaces", "network namespaces with slow links may not be made");
    }
    let network = HostNetwork::create(MEMBERS);
    network.limit_links(LINK_BYTES_PER_S);
    let pool = ServerPool::start_on_hosts(network, "nfs-balance", "connections", &["--nfs", "0.0.0.0:2049"]);
    fs::create_dir(pool.root.join("run7")).expect("it can be made");
    fs::write(pool.root.join("run7/f"), pseudorandom_bytes(FILE_BYTES)).expect("it can be written");
    let network = pool.network.as_ref().expect("it has hosts");
    for (servers, min_speedup) in [(1, 1.0), (MEMBERS, MIN_SPEEDUP)] {
        let (bytes, time) = read_at_once(network, servers);
        eprintln!(
            "{servers} addresses: bytes {bytes:?} in {time:.2?}, {:.2} times the busiest member",
            speedup(&bytes)
        );
        assert!(bytes.iter().sum::<f64>() >= (READERS * FILE_BYTES) as f64, "{bytes:?}");
        assert!(speedup(&bytes) >= min_speedup, "{bytes:?}");
    }
}
