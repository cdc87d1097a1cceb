//! The time for which no server has answered the calls of a client, over all its connections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use godwit_flight::FlightError;
use parking_lot::Mutex;

/// Time without an answer after which it is logged. A server that restarts, and the loss of a pool member, are shorter.
const LOG_DELAY: Duration = Duration::from_secs(5);
/// Longest time between two failed attempts of the same outage, many times as long as an attempt. After a longer time
/// without calls, it is unknown whether the server answered in between.
const MAX_FAILURE_GAP: Duration = Duration::from_secs(60);

/// Receives messages for a log.
pub type OutageLog = Arc<dyn Fn(&str) + Send + Sync>;

/// Whether the server or pool of a client answers.
pub(crate) struct ServerOutage {
    /// URI of the server or pool.
    server: String,
    log: OutageLog,
    current: Mutex<Option<Outage>>,
}

/// A time without answers.
struct Outage {
    since: Instant,
    /// End of the last attempt that failed.
    last_failure: Instant,
    is_logged: bool,
}

impl ServerOutage {
    /// Returns the state of a server that answers. An outage is logged once, and its end.
    pub(crate) fn new(server: String, log: OutageLog) -> Self {
        Self { server, log, current: Mutex::default() }
    }

    /// Records that a server has answered a call.
    pub(crate) fn record_answer(&self) {
        let ended = self.current.lock().take();
        if let Some(Outage { since, is_logged: true, .. }) = ended {
            (self.log)(&format!("{} answers again after {} s", self.server, since.elapsed().as_secs()));
        }
    }

    /// Returns whether an outage began after `time`; if it is `None`, whether there is an outage.
    pub(crate) fn has_begun_after(&self, time: Option<Instant>) -> bool {
        self.current.lock().as_ref().is_some_and(|outage| time.is_none_or(|time| time < outage.since))
    }

    /// Records an attempt from `since` to `now` that has failed without an answer. Returns the time for which no server
    /// has answered.
    pub(crate) fn record_failure(&self, since: Instant, now: Instant, error: &FlightError) -> Duration {
        let mut current = self.current.lock();
        current.take_if(|outage| since.saturating_duration_since(outage.last_failure) > MAX_FAILURE_GAP);
        let outage = current.get_or_insert(Outage { since, last_failure: now, is_logged: false });
        outage.since = outage.since.min(since);
        outage.last_failure = outage.last_failure.max(now);
        let duration = now.saturating_duration_since(outage.since);
        if duration >= LOG_DELAY && !std::mem::replace(&mut outage.is_logged, true) {
            drop(current);
            let cause = godwit_model::message_with_causes(error);
            (self.log)(&format!("{} has not answered for {} s: {cause}", self.server, duration.as_secs()));
        }
        duration
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_and_its_end_are_logged_once_and_short_ones_are_not() {
        let messages = Arc::new(Mutex::new(Vec::new()));
        let received = messages.clone();
        let log = Arc::new(move |message: &str| received.lock().push(message.to_owned()));
        let outage = ServerOutage::new("grpc+tls://storage".to_owned(), log);
        let error = FlightError::MissingStatus { peer: "storage".to_owned() };
        let start = Instant::now();
        outage.record_failure(start, start, &error);
        outage.record_answer();
        assert!(messages.lock().is_empty());
        for _ in 0..3 {
            let now = start + 2 * LOG_DELAY;
            assert_eq!(outage.record_failure(start, now, &error), 2 * LOG_DELAY);
            assert_eq!(outage.record_failure(now, now, &error), 2 * LOG_DELAY);
        }
        outage.record_answer();
        outage.record_answer();
        let messages = messages.lock().clone();
        assert_eq!(messages.len(), 2, "{messages:?}");
        assert!(messages[0].starts_with("grpc+tls://storage has not answered for "), "{messages:?}");
        assert!(messages[1].starts_with("grpc+tls://storage answers again after "), "{messages:?}");
    }

    #[test]
    fn a_failure_long_after_the_previous_one_begins_another_outage() {
        let outage = ServerOutage::new("grpc+tls://storage".to_owned(), Arc::new(|_: &str| ()));
        let error = FlightError::MissingStatus { peer: "storage".to_owned() };
        let start = Instant::now();
        outage.record_failure(start, start, &error);
        let soon = start + MAX_FAILURE_GAP;
        assert_eq!(outage.record_failure(soon, soon, &error), MAX_FAILURE_GAP);
        let late = soon + 2 * MAX_FAILURE_GAP;
        assert_eq!(outage.record_failure(late, late, &error), Duration::ZERO);
    }

    #[test]
    fn connections_from_before_an_outage_are_recognised() {
        let outage = ServerOutage::new("grpc+tls://storage".to_owned(), Arc::new(|_: &str| ()));
        let error = FlightError::MissingStatus { peer: "storage".to_owned() };
        let opened = Instant::now();
        assert!(!outage.has_begun_after(Some(opened)) && !outage.has_begun_after(None));
        let failed = opened + Duration::from_secs(1);
        outage.record_failure(failed, failed, &error);
        assert!(outage.has_begun_after(Some(opened)) && outage.has_begun_after(None));
        assert!(!outage.has_begun_after(Some(failed + Duration::from_secs(1))));
    }
}
