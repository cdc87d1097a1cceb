//! Monitors the pool of servers from which a run reads and to which it copies outputs. Records the number of
//! connections and the bytes per second of each member over time.

use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use godwit_cli::cli::AccessArgs;
use godwit_cli::failure::Failure;
use godwit_flight::pool::Member;
use godwit_flight::{Client, SERVER_STATUS, TransportOptions};
use godwit_workflow::{StorageMonitor, StoragePoolMember, StorageSnapshot};
use parking_lot::Mutex;
use serde_json::Value;

use super::credentials::read_credentials;
use crate::pool_file::PoolFile;

/// Initial interval at which the pool is polled.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Timeout for connecting to a pool member and receiving its response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of snapshots. If there are more, every second snapshot is dropped, and the poll interval is doubled.
const MAX_MOMENTS: usize = 1000;

/// A monitor of a pool, which stores snapshots of its members over time. Polling stops when the last `Arc` is dropped.
#[derive(Debug)]
pub struct StoragePoolMonitor {
    started: Instant,
    moments: Mutex<Vec<StorageSnapshot>>,
}

impl StoragePoolMonitor {
    /// Starts to monitor the pool that a pool file describes.
    pub fn start(file: &Path, access: &AccessArgs) -> Result<Arc<Self>, Failure> {
        let members = PoolFile::read(file)?.resolve_members(&read_credentials(access)?)?;
        let watch = Arc::new(Self { started: Instant::now(), moments: Mutex::default() });
        let watched = Arc::downgrade(&watch);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            // If the runtime cannot be created, the run continues without monitoring.
            if let Ok(runtime) = runtime {
                runtime.block_on(poll_pool(&members, &watched));
            }
        });
        Ok(watch)
    }

    /// Returns the state of the pool members in the last snapshot.
    pub fn latest_nodes(&self) -> Vec<StoragePoolMember> {
        let moments = self.moments.lock();
        moments.last().map(|moment| moment.members.clone()).unwrap_or_default()
    }

    /// Adds a snapshot. Returns true if every second snapshot was dropped, so that the poll interval must be doubled.
    fn add_moment(&self, members: Vec<StoragePoolMember>) -> bool {
        let seconds = (self.started.elapsed().as_secs_f64() * 1000.0).round() / 1000.0;
        let mut moments = self.moments.lock();
        moments.push(StorageSnapshot { seconds, members });
        let thins = moments.len() > MAX_MOMENTS;
        if thins {
            let mut kept = false;
            moments.retain(|_| {
                kept = !kept;
                kept
            });
        }
        thins
    }
}

impl StorageMonitor for StoragePoolMonitor {
    fn snapshots(&self) -> Vec<StorageSnapshot> {
        self.moments.lock().clone()
    }
}

async fn poll_pool(members: &[Member], watched: &Weak<StoragePoolMonitor>) {
    let (mut connection, mut interval): (Option<(usize, Client)>, _) = (None, POLL_INTERVAL);
    loop {
        let nodes = current_pool_nodes(members, &mut connection).await;
        let Some(watch) = watched.upgrade() else { return };
        if watch.add_moment(nodes) {
            interval *= 2;
        }
        drop(watch);
        tokio::time::sleep(interval).await;
    }
}

/// Requests the status of the pool from the member that responded last, otherwise from the next one that responds. If
/// no member responds, returns all members as unhealthy.
async fn current_pool_nodes(members: &[Member], connection: &mut Option<(usize, Client)>) -> Vec<StoragePoolMember> {
    let first = connection.as_ref().map_or(0, |(member, _)| *member);
    for step in 0..members.len() {
        let member = (first + step) % members.len();
        let known = connection.take().filter(|(of, client)| *of == member && client.is_open());
        let response = async {
            let client = match known {
                Some((_, client)) => client,
                None => {
                    let Member { address, security, .. } = &members[member];
                    Client::connect(address, security.clone(), TransportOptions::default()).await.ok()?
                }
            };
            let answer = client.do_action(SERVER_STATUS, "").await.ok()?;
            let nodes = parse_pool_status(answer.first()?)?;
            Some((client, nodes))
        };
        if let Ok(Some((client, nodes))) = tokio::time::timeout(RESPONSE_TIMEOUT, response).await {
            *connection = Some((member, client));
            return nodes;
        }
    }
    let gone =
        |member: &Member| StoragePoolMember { location: member.location.clone(), ..StoragePoolMember::default() };
    members.iter().map(gone).collect()
}

/// Parses the status of the pool in the response of a member; returns `None` if the response is invalid.
fn parse_pool_status(answer: &[u8]) -> Option<Vec<StoragePoolMember>> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    let node = |node: &Value| StoragePoolMember {
        location: node["location"].as_str().unwrap_or_default().to_owned(),
        is_healthy: node["healthy"].as_bool().unwrap_or_default(),
        connections: node["connections"].as_u64().unwrap_or_default(),
        bytes_per_s: node["bytes_per_s"].as_f64().unwrap_or_default().round(),
    };
    Some(answer["pool"]["nodes"].as_array()?.iter().map(node).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_keeps_moments_of_all_of_it() {
        let watch = StoragePoolMonitor { started: Instant::now(), moments: Mutex::default() };
        let node = |connections| vec![StoragePoolMember { connections, ..StoragePoolMember::default() }];
        let thinned = (0..3 * MAX_MOMENTS as u64).filter(|number| watch.add_moment(node(*number))).count();
        let kept: Vec<u64> = watch.snapshots().iter().map(|moment| moment.members[0].connections).collect();
        assert!(thinned >= 2 && kept.len() <= MAX_MOMENTS && kept[0] == 0 && kept.is_sorted());
        assert_eq!(watch.latest_nodes(), node(3 * MAX_MOMENTS as u64 - 1));
    }

    #[test]
    fn a_partial_pool_status_is_parsed() {
        let status_json =
            br#"{"pool":{"nodes":[{"location":"a","healthy":true,"connections":3,"bytes_per_s":10.4},{}]}}"#;
        let nodes = parse_pool_status(status_json).unwrap();
        assert_eq!((nodes[0].connections, nodes[0].bytes_per_s, nodes[0].is_healthy), (3, 10.0, true));
        assert_eq!(nodes[1], StoragePoolMember::default());
        assert!(parse_pool_status(b"{}").is_none() && parse_pool_status(b"x").is_none());
    }
}
