//! Looks after the pool that a run reads from and stores to: connections and bytes a second of each node, over time.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use godwit_flight::pool::Member;
use godwit_flight::{Client, Tuning};
use godwit_pipeline::{StorageMoment, StorageNode, WatchStorage};
use serde_json::Value;

use super::access::credentials;
use crate::cli::AccessArgs;
use crate::failure::Failure;
use crate::pool_file::PoolFile;

/// How often a node is asked how the pool is, at first.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long it may take to be reached and to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Moments that are kept; then every second one is, and nodes are asked half as often.
const MOST_MOMENTS: usize = 1000;

/// A pool over time. Whoever looks after it ends when the last one who holds this lets go.
#[derive(Debug)]
pub struct StorageWatch {
    started: Instant,
    moments: Mutex<Vec<StorageMoment>>,
}

impl StorageWatch {
    /// Looks after the pool of a file from now on.
    pub fn start(file: &Path, access: &AccessArgs) -> Result<Arc<Self>, Failure> {
        let members = PoolFile::read(file)?.members(&credentials(access)?)?;
        let watch = Arc::new(Self { started: Instant::now(), moments: Mutex::default() });
        let watched = Arc::downgrade(&watch);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            // A run goes on where nobody can look at its storage.
            if let Ok(runtime) = runtime {
                runtime.block_on(look_on(&members, &watched));
            }
        });
        Ok(watch)
    }

    /// How nodes were when they were last asked.
    pub fn last(&self) -> Vec<StorageNode> {
        let moments = self.moments.lock().unwrap_or_else(PoisonError::into_inner);
        moments.last().map(|moment| moment.nodes.clone()).unwrap_or_default()
    }

    /// Keeps a moment; whether every second one was forgotten.
    fn add(&self, nodes: Vec<StorageNode>) -> bool {
        let seconds = (self.started.elapsed().as_secs_f64() * 1000.0).round() / 1000.0;
        let mut moments = self.moments.lock().unwrap_or_else(PoisonError::into_inner);
        moments.push(StorageMoment { seconds, nodes });
        let thins = moments.len() > MOST_MOMENTS;
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

impl WatchStorage for StorageWatch {
    fn moments(&self) -> Vec<StorageMoment> {
        self.moments.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn look_on(members: &[Member], watched: &Weak<StorageWatch>) {
    let (mut asked, mut interval): (Option<(usize, Client)>, _) = (None, INTERVAL);
    loop {
        let nodes = pool_now(members, &mut asked).await;
        let Some(watch) = watched.upgrade() else { return };
        if watch.add(nodes) {
            interval *= 2;
        }
        drop(watch);
        tokio::time::sleep(interval).await;
    }
}

/// The pool as the node that was asked last sees it, or the next one that answers; all are gone where none does.
async fn pool_now(members: &[Member], asked: &mut Option<(usize, Client)>) -> Vec<StorageNode> {
    let first = asked.as_ref().map_or(0, |(member, _)| *member);
    for step in 0..members.len() {
        let member = (first + step) % members.len();
        let known = asked.take().filter(|(of, client)| *of == member && client.is_open());
        let answered = async {
            let client = match known {
                Some((_, client)) => client,
                None => {
                    let Member { address, access, .. } = &members[member];
                    Client::connect(address, access.clone(), Tuning::default()).await.ok()?
                }
            };
            let answer = client.act("Status", Vec::new()).await.ok()?;
            let nodes = nodes_in(answer.first()?)?;
            Some((client, nodes))
        };
        if let Ok(Some((client, nodes))) = tokio::time::timeout(ANSWER_WITHIN, answered).await {
            *asked = Some((member, client));
            return nodes;
        }
    }
    let gone = |member: &Member| StorageNode { location: member.location.clone(), ..StorageNode::default() };
    members.iter().map(gone).collect()
}

/// What a node says of its pool.
fn nodes_in(answer: &[u8]) -> Option<Vec<StorageNode>> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    let node = |node: &Value| StorageNode {
        location: node["location"].as_str().unwrap_or_default().to_owned(),
        healthy: node["healthy"].as_bool().unwrap_or_default(),
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
        let watch = StorageWatch { started: Instant::now(), moments: Mutex::default() };
        let node = |connections| vec![StorageNode { connections, ..StorageNode::default() }];
        let thinned = (0..3 * MOST_MOMENTS as u64).filter(|number| watch.add(node(*number))).count();
        let kept: Vec<u64> = watch.moments().iter().map(|moment| moment.nodes[0].connections).collect();
        assert!(thinned >= 2 && kept.len() <= MOST_MOMENTS && kept[0] == 0 && kept.is_sorted());
        assert_eq!(watch.last(), node(3 * MOST_MOMENTS as u64 - 1));
    }

    #[test]
    fn what_a_node_says_of_its_pool_is_read_as_far_as_it_is_there() {
        let said = br#"{"pool":{"nodes":[{"location":"a","healthy":true,"connections":3,"bytes_per_s":10.4},{}]}}"#;
        let nodes = nodes_in(said).unwrap();
        assert_eq!((nodes[0].connections, nodes[0].bytes_per_s, nodes[0].healthy), (3, 10.0, true));
        assert_eq!(nodes[1], StorageNode::default());
        assert!(nodes_in(b"{}").is_none() && nodes_in(b"x").is_none());
    }
}
