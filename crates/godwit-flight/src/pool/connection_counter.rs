//! Counts the connections of a server that transfer data, and records the leases of clients that have connected.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use http::HeaderMap;
use parking_lot::Mutex;

use crate::lease_header::{MEMBER_LEASE_HEADER, MemberLeaseId, parse_lease_header};

/// Time for which load reports include an arrived lease. Several reports contain the lease, so that one may be lost.
const ARRIVAL_REPORT_PERIOD: Duration = Duration::from_secs(15);
/// Maximum number of arrived leases in a report. The load balancer counts other leases until they expire.
pub(super) const MAX_REPORTED_ARRIVALS: usize = 1024;

/// The number of data connections of a server, and its recently arrived leases.
#[derive(Debug, Default)]
pub struct ConnectionCounter {
    state: Mutex<CounterState>,
    /// Copy of `CounterState::connections` that can be read without the lock.
    connections: AtomicU32,
}

#[derive(Debug, Default)]
struct CounterState {
    connections: u32,
    arrived_leases: VecDeque<(Instant, MemberLeaseId)>,
}

impl ConnectionCounter {
    /// Returns the number of connections and the recently arrived leases, consistently under one lock.
    pub(super) fn connections_and_leases(&self) -> (u32, Vec<MemberLeaseId>) {
        let mut state = self.state.lock();
        while state.arrived_leases.front().is_some_and(|(when, _)| when.elapsed() > ARRIVAL_REPORT_PERIOD) {
            state.arrived_leases.pop_front();
        }
        (state.connections, state.arrived_leases.iter().map(|(_, id)| *id).collect())
    }

    /// Returns the number of connections that transfer data.
    pub fn connections(&self) -> u32 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Records that the client of a lease has connected. Its connection must be counted already.
    pub(crate) fn record_arrival(&self, id: MemberLeaseId) {
        let mut state = self.state.lock();
        if state.arrived_leases.iter().any(|(_, known)| *known == id) {
            return;
        }
        if state.arrived_leases.len() >= MAX_REPORTED_ARRIVALS {
            state.arrived_leases.pop_front();
        }
        state.arrived_leases.push_back((Instant::now(), id));
    }

    fn add_connections(&self, by: i32) {
        let mut state = self.state.lock();
        state.connections = state.connections.saturating_add_signed(by);
        self.connections.store(state.connections, Ordering::Relaxed);
    }
}

/// An open connection, which is counted from its first data call until it is closed.
#[derive(Debug, Default)]
pub(crate) struct ConnectionUse {
    counter: Option<Arc<ConnectionCounter>>,
    is_counted: AtomicBool,
}

impl ConnectionUse {
    pub(crate) fn new(counter: Option<Arc<ConnectionCounter>>) -> Self {
        Self { counter, is_counted: AtomicBool::new(false) }
    }

    /// Counts the connection at its first data call, and records the lease in the headers of the call.
    pub(crate) fn record_data_call(&self, headers: &HeaderMap) {
        let Some(counter) = &self.counter else { return };
        if !self.is_counted.swap(true, Ordering::Relaxed) {
            counter.add_connections(1);
        }
        if let Some(id) = parse_lease_header(headers.get(MEMBER_LEASE_HEADER).map(http::HeaderValue::as_bytes)) {
            counter.record_arrival(id);
        }
    }
}

impl Drop for ConnectionUse {
    fn drop(&mut self) {
        if let Some(counter) = self.counter.take().filter(|_| *self.is_counted.get_mut()) {
            counter.add_connections(-1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease_header::format_lease_header;

    #[test]
    fn a_connection_counts_once_from_its_first_data_to_its_end() {
        let counter = Arc::new(ConnectionCounter::default());
        let idle = ConnectionUse::new(Some(counter.clone()));
        let busy = ConnectionUse::new(Some(counter.clone()));
        let mut headers = HeaderMap::new();
        busy.record_data_call(&headers);
        headers.insert(MEMBER_LEASE_HEADER, format_lease_header(7).parse().unwrap());
        busy.record_data_call(&headers);
        busy.record_data_call(&headers);
        assert_eq!((counter.connections(), counter.connections_and_leases()), (1, (1, vec![7])));
        headers.insert(MEMBER_LEASE_HEADER, "+00000000000000f".parse().unwrap());
        busy.record_data_call(&headers);
        headers.insert(MEMBER_LEASE_HEADER, "f".parse().unwrap());
        busy.record_data_call(&headers);
        drop((idle, busy));
        assert_eq!(counter.connections_and_leases().0, 0);
    }

    #[test]
    fn reported_leases_are_bounded() {
        let counter = ConnectionCounter::default();
        for id in 0..MAX_REPORTED_ARRIVALS as u64 + 10 {
            counter.record_arrival(id);
        }
        let (_, reported) = counter.connections_and_leases();
        assert_eq!((reported.len(), reported[0]), (MAX_REPORTED_ARRIVALS, 10));
    }
}
