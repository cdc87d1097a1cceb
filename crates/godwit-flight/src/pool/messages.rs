//! JSON messages that members of a pool and their clients exchange. Received messages are validated before use.

use serde::{Deserialize, Serialize};

use super::connection_counter::MAX_REPORTED_ARRIVALS;
use super::load_balancer::Load;
use crate::lease_header::MemberLeaseId;

/// The Flight action that returns the status and load of a member.
pub(crate) const POOL_STATUS_ACTION: &str = "PoolStatus";
/// The Flight action that requests a lease.
pub(crate) const POOL_LEASE_ACTION: &str = "PoolGrant";
/// The scope of the principal of a member that authenticates by the token of the pool. No other scope can be equal,
/// because other scopes are paths.
pub(crate) const POOL_SCOPE: &str = "\0pool";

/// Maximum size of a message, bytes.
pub(crate) const MAX_MESSAGE_BYTES: usize = 256 << 10;
/// Maximum number of members that a lease request can exclude.
const MAX_AVOIDED_MEMBERS: usize = 256;

/// The status of a pool member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MemberStatus {
    /// Random number that identifies the server process, as text because some JSON parsers are exact only up to 2^53.
    pub(crate) instance: String,
    pub(crate) pool: String,
    pub(crate) version: String,
    /// True if the member is shutting down and should receive no new clients.
    pub(crate) draining: bool,
    pub(crate) connections: u32,
    pub(crate) cpu: f64,
    #[serde(rename = "throughput")]
    pub(crate) bytes_per_s: f64,
    #[serde(rename = "capacity")]
    pub(crate) capacity_bytes_per_s: f64,
    /// Leases whose clients have connected recently, as 16 hexadecimal digits each.
    #[serde(rename = "come")]
    pub(crate) arrived_leases: Vec<String>,
}

impl MemberStatus {
    /// Parses the status of another member; `None` if it is malformed or a value is out of range.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let status: Self = parse_message(bytes)?;
        let fine = status.arrived_leases.len() <= MAX_REPORTED_ARRIVALS
            && status.instance.len() <= 64
            && status.pool.len() <= 256
            && (0.0..=1.0).contains(&status.cpu)
            && (0.0..=1e15).contains(&status.bytes_per_s)
            && (1.0..=1e15).contains(&status.capacity_bytes_per_s);
        fine.then_some(status)
    }

    pub(crate) fn load(&self) -> Load {
        let Self { connections, cpu, bytes_per_s, capacity_bytes_per_s, .. } = *self;
        Load { connections, cpu, bytes_per_s, capacity_bytes_per_s }
    }

    pub(crate) fn arrived_leases(&self) -> Vec<MemberLeaseId> {
        self.arrived_leases.iter().filter_map(|text| MemberLeaseId::from_str_radix(text, 16).ok()).collect()
    }
}

/// A request for a lease.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MemberLeaseRequest {
    /// Identifier of the lease, 16 hexadecimal digits.
    pub(crate) id: String,
    /// Locations of members that the client could not reach.
    #[serde(default)]
    pub(crate) avoid: Vec<String>,
    /// True if another member forwards the request on behalf of a client.
    #[serde(default)]
    pub(crate) forwarded: bool,
}

impl MemberLeaseRequest {
    pub(crate) fn parse(bytes: &[u8]) -> Option<(MemberLeaseId, Self)> {
        let request: Self = parse_message(bytes)?;
        let id = MemberLeaseId::from_str_radix(&request.id, 16).ok()?;
        (request.avoid.len() <= MAX_AVOIDED_MEMBERS).then_some((id, request))
    }
}

/// The response to a lease request: locations of the assigned member and of alternatives, in order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MemberLeaseResponse {
    pub(crate) pool: String,
    pub(crate) locations: Vec<String>,
}

/// Parses a JSON message; `None` if it is too long or malformed.
pub(crate) fn parse_message<'m, T: Deserialize<'m>>(bytes: &'m [u8]) -> Option<T> {
    (bytes.len() <= MAX_MESSAGE_BYTES).then(|| serde_json::from_slice(bytes).ok()).flatten()
}

/// The state of a pool from the view of one of its members.
#[derive(Clone, Debug, Serialize)]
pub struct PoolState {
    /// Name of the pool.
    pub name: String,
    /// Name of the policy by which members are selected.
    pub policy: &'static str,
    /// The members, in the order of the pool file.
    #[serde(rename = "nodes")]
    pub members: Vec<MemberState>,
}

/// The state of a member from the view of another member.
#[derive(Clone, Debug, Serialize)]
pub struct MemberState {
    /// Flight location of the member.
    pub location: String,
    /// True if the member answers probes.
    pub healthy: bool,
    /// Number of connections that transfer data, as the member reports.
    pub connections: u32,
    /// Number of leases for which the member has not yet reported a connection.
    #[serde(rename = "pending")]
    pub unreported_leases: u32,
    /// Busy fraction of the processors of the member, 0 to 1.
    pub cpu: f64,
    /// The larger of sent and received bytes per second.
    pub bytes_per_s: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(change: impl FnOnce(&mut MemberStatus)) -> Vec<u8> {
        let mut status = MemberStatus {
            instance: "a".into(),
            pool: "p".into(),
            version: "1".into(),
            draining: false,
            connections: 3,
            cpu: 0.5,
            bytes_per_s: 1e9,
            capacity_bytes_per_s: 2e9,
            arrived_leases: vec!["00000000000000ff".into(), "zz".into()],
        };
        change(&mut status);
        serde_json::to_vec(&status).unwrap()
    }

    #[test]
    fn a_status_with_impossible_values_is_rejected() {
        let read = MemberStatus::parse(&status(|_| {})).unwrap();
        assert_eq!((read.arrived_leases(), read.load().connections), (vec![255], 3));
        let wrong: [fn(&mut MemberStatus); 6] = [
            |status| status.cpu = -0.1,
            |status| status.cpu = 1.5,
            |status| status.bytes_per_s = f64::NAN,
            |status| status.capacity_bytes_per_s = 0.0,
            |status| status.arrived_leases = vec!["0".into(); MAX_REPORTED_ARRIVALS + 1],
            |status| status.pool = "p".repeat(1000),
        ];
        for change in wrong {
            assert!(MemberStatus::parse(&status(change)).is_none());
        }
        assert!(MemberStatus::parse(&vec![b' '; MAX_MESSAGE_BYTES + 1]).is_none());
        assert!(MemberStatus::parse(b"{}").is_none());
    }

    #[test]
    fn requests_that_name_too_much_or_no_number_are_refused() {
        let read = |text: &str| MemberLeaseRequest::parse(text.as_bytes()).map(|(id, _)| id);
        assert_eq!(read(r#"{"id":"10"}"#), Some(16));
        assert_eq!(read(r#"{"id":"x"}"#), None);
        assert_eq!(read(&format!(r#"{{"id":"1","avoid":{:?}}}"#, vec!["n"; MAX_AVOIDED_MEMBERS + 1])), None);
    }
}
