//! What nodes of a pool and their clients say to each other: small messages of JSON, each checked before it counts.

use serde::{Deserialize, Serialize};

use super::meter::MOST_TOLD;
use super::picker::{GrantId, Load};

/// The action that tells a node's load.
pub(crate) const STATUS: &str = "PoolStatus";
/// The action that asks which node to use.
pub(crate) const GRANT: &str = "PoolGrant";
/// What a node may do at another that lets it in by the pool's secret. No path is like it, which other purposes are.
pub(crate) const PURPOSE: &str = "\0pool";

/// Bytes of such a message, at most.
pub(crate) const MESSAGE_LIMIT_BYTES: usize = 256 << 10;
/// Nodes that a request names to be avoided, at most.
const MOST_AVOIDED: usize = 256;

/// How a node is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NodeStatus {
    /// Drawn when the server started, as text: JSON's numbers end at 2^53 for some who read them.
    pub(crate) instance: String,
    pub(crate) pool: String,
    pub(crate) version: String,
    /// It is ending, and takes nothing new.
    pub(crate) draining: bool,
    pub(crate) connections: u32,
    pub(crate) cpu: f64,
    pub(crate) throughput: f64,
    pub(crate) capacity: f64,
    /// Grants that have come lately, 16 hexadecimal digits each.
    pub(crate) come: Vec<String>,
}

impl NodeStatus {
    /// Reads what another node says; `None` where it is not what a node can be like.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let status: Self = within(bytes)?;
        let fine = status.come.len() <= MOST_TOLD
            && status.instance.len() <= 64
            && status.pool.len() <= 256
            && (0.0..=1.0).contains(&status.cpu)
            && (0.0..=1e15).contains(&status.throughput)
            && (1.0..=1e15).contains(&status.capacity);
        fine.then_some(status)
    }

    pub(crate) fn load(&self) -> Load {
        let Self { connections, cpu, throughput, capacity, .. } = *self;
        Load { connections, cpu, throughput, capacity }
    }

    pub(crate) fn come(&self) -> Vec<GrantId> {
        self.come.iter().filter_map(|text| GrantId::from_str_radix(text, 16).ok()).collect()
    }
}

/// Asks which node to use.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GrantRequest {
    /// 16 hexadecimal digits.
    pub(crate) id: String,
    /// Nodes that were not there for who asks.
    #[serde(default)]
    pub(crate) avoid: Vec<String>,
    /// Another node asks for its client.
    #[serde(default)]
    pub(crate) forwarded: bool,
}

impl GrantRequest {
    pub(crate) fn read(bytes: &[u8]) -> Option<(GrantId, Self)> {
        let request: Self = within(bytes)?;
        let id = GrantId::from_str_radix(&request.id, 16).ok()?;
        (request.avoid.len() <= MOST_AVOIDED).then_some((id, request))
    }
}

/// Which node to use, and which after it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Granted {
    pub(crate) pool: String,
    pub(crate) locations: Vec<String>,
}

/// A message, where it is one and not too long.
pub(crate) fn within<'m, T: Deserialize<'m>>(bytes: &'m [u8]) -> Option<T> {
    (bytes.len() <= MESSAGE_LIMIT_BYTES).then(|| serde_json::from_slice(bytes).ok()).flatten()
}

/// A pool as one of its nodes sees it.
#[derive(Clone, Debug, Serialize)]
pub struct PoolState {
    /// Its name.
    pub name: String,
    /// By what nodes are chosen.
    pub policy: &'static str,
    /// Its nodes, in the order of its file.
    pub nodes: Vec<MemberState>,
}

/// A node of a pool as another sees it.
#[derive(Clone, Debug, Serialize)]
pub struct MemberState {
    /// Where it is.
    pub location: String,
    /// Whether it answers.
    pub healthy: bool,
    /// Connections over which it gives or takes data.
    pub connections: u32,
    /// Grants of which it has not told that they came.
    pub pending: u32,
    /// Share of its processors that is busy.
    pub cpu: f64,
    /// What it sends or receives, bytes a second.
    pub bytes_per_s: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(change: impl FnOnce(&mut NodeStatus)) -> Vec<u8> {
        let mut status = NodeStatus {
            instance: "a".into(),
            pool: "p".into(),
            version: "1".into(),
            draining: false,
            connections: 3,
            cpu: 0.5,
            throughput: 1e9,
            capacity: 2e9,
            come: vec!["00000000000000ff".into(), "zz".into()],
        };
        change(&mut status);
        serde_json::to_vec(&status).unwrap()
    }

    #[test]
    fn what_no_node_can_be_like_is_no_status() {
        let read = NodeStatus::read(&status(|_| {})).unwrap();
        assert_eq!((read.come(), read.load().connections), (vec![255], 3));
        let wrong: [fn(&mut NodeStatus); 6] = [
            |status| status.cpu = -0.1,
            |status| status.cpu = 1.5,
            |status| status.throughput = f64::NAN,
            |status| status.capacity = 0.0,
            |status| status.come = vec!["0".into(); MOST_TOLD + 1],
            |status| status.pool = "p".repeat(1000),
        ];
        for change in wrong {
            assert!(NodeStatus::read(&status(change)).is_none());
        }
        assert!(NodeStatus::read(&vec![b' '; MESSAGE_LIMIT_BYTES + 1]).is_none());
        assert!(NodeStatus::read(b"{}").is_none());
    }

    #[test]
    fn requests_that_name_too_much_or_no_number_are_refused() {
        let read = |text: &str| GrantRequest::read(text.as_bytes()).map(|(id, _)| id);
        assert_eq!(read(r#"{"id":"10"}"#), Some(16));
        assert_eq!(read(r#"{"id":"x"}"#), None);
        assert_eq!(read(&format!(r#"{{"id":"1","avoid":{:?}}}"#, vec!["n"; MOST_AVOIDED + 1])), None);
    }
}
