//! What a server counts of itself: connections over which data go, and grants that have come.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::HeaderMap;

use super::picker::GrantId;

/// How a client shows the grant that brought it: 16 hexadecimal digits.
pub(crate) const GRANT_HEADER: &str = "godwit-grant";

/// How long it is told that a grant has come: several reports, so that one may be lost.
const TOLD: Duration = Duration::from_secs(15);
/// Grants that are told at a time, at most; others count until they are old.
pub(super) const MOST_TOLD: usize = 1024;

/// Counts of a server.
#[derive(Debug, Default)]
pub struct Meter {
    state: Mutex<State>,
    /// For who only wants the number.
    connections: AtomicU32,
}

#[derive(Debug, Default)]
struct State {
    connections: u32,
    come: VecDeque<(Instant, GrantId)>,
}

impl Meter {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connections, and the grants among them and before: both of one moment.
    pub(super) fn counts(&self) -> (u32, Vec<GrantId>) {
        let mut state = self.state();
        while state.come.front().is_some_and(|(when, _)| when.elapsed() > TOLD) {
            state.come.pop_front();
        }
        (state.connections, state.come.iter().map(|(_, id)| *id).collect())
    }

    /// Connections over which data go.
    pub fn connections(&self) -> u32 {
        self.connections.load(Ordering::Relaxed)
    }

    /// A grant has come over a connection that is counted.
    pub(crate) fn came(&self, id: GrantId) {
        let mut state = self.state();
        if state.come.iter().any(|(_, known)| *known == id) {
            return;
        }
        if state.come.len() >= MOST_TOLD {
            state.come.pop_front();
        }
        state.come.push_back((Instant::now(), id));
    }

    fn changed(&self, by: i32) {
        let mut state = self.state();
        state.connections = state.connections.saturating_add_signed(by);
        self.connections.store(state.connections, Ordering::Relaxed);
    }
}

/// A connection, counted from its first data until it ends.
#[derive(Debug, Default)]
pub(crate) struct ConnectionUse {
    meter: Option<Arc<Meter>>,
    counted: AtomicBool,
}

impl ConnectionUse {
    pub(crate) fn new(meter: Option<Arc<Meter>>) -> Self {
        Self { meter, counted: AtomicBool::new(false) }
    }

    /// Data go over it, for who shows these headers.
    pub(crate) fn data(&self, headers: &HeaderMap) {
        let Some(meter) = &self.meter else { return };
        if !self.counted.swap(true, Ordering::Relaxed) {
            meter.changed(1);
        }
        if let Some(id) = grant_in(headers.get(GRANT_HEADER).map(http::HeaderValue::as_bytes)) {
            meter.came(id);
        }
    }
}

impl Drop for ConnectionUse {
    fn drop(&mut self) {
        if let Some(meter) = self.meter.take().filter(|_| *self.counted.get_mut()) {
            meter.changed(-1);
        }
    }
}

/// The grant that a header names.
pub(crate) fn grant_in(header: Option<&[u8]>) -> Option<GrantId> {
    let text = std::str::from_utf8(header?).ok().filter(|text| text.len() == 16)?;
    GrantId::from_str_radix(text, 16).ok()
}

/// The header that names a grant.
pub(crate) fn grant_header(id: GrantId) -> String {
    format!("{id:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_counts_once_from_its_first_data_to_its_end() {
        let meter = Arc::new(Meter::default());
        let idle = ConnectionUse::new(Some(meter.clone()));
        let busy = ConnectionUse::new(Some(meter.clone()));
        let mut headers = HeaderMap::new();
        busy.data(&headers);
        headers.insert(GRANT_HEADER, grant_header(7).parse().unwrap());
        busy.data(&headers);
        busy.data(&headers);
        assert_eq!((meter.connections(), meter.counts()), (1, (1, vec![7])));
        headers.insert(GRANT_HEADER, "+00000000000000f".parse().unwrap());
        busy.data(&headers);
        headers.insert(GRANT_HEADER, "f".parse().unwrap());
        busy.data(&headers);
        drop((idle, busy));
        assert_eq!(meter.counts().0, 0);
    }

    #[test]
    fn what_is_told_of_grants_is_bounded() {
        let meter = Meter::default();
        for id in 0..MOST_TOLD as u64 + 10 {
            meter.came(id);
        }
        let (_, told) = meter.counts();
        assert_eq!((told.len(), told[0]), (MOST_TOLD, 10));
    }
}
