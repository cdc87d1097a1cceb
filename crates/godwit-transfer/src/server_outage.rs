//! The time for which no server has answered the calls of a client, over all its connections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use godwit_flight::FlightError;
use parking_lot::Mutex;

/// Time without an answer after which it is logged. A server that restarts, and the loss of a pool member, are shorter.
const LOG_DELAY: Duration = Duration::from_secs(5);

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
        if let Some(Outage { since, is_logged: true }) = ended {
            (self.log)(&format!("{} answers again after {} s", self.server, since.elapsed().as_secs()));
        }
    }

    /// Records an attempt since `since` that has failed without an answer. Returns the time for which no server has
    /// answered.
    pub(crate) fn record_failure(&self, since: Instant, error: &FlightError) -> Duration {
        let mut current = self.current.lock();
        let outage = current.get_or_insert(Outage { since, is_logged: false });
        outage.since = outage.since.min(since);
        let duration = outage.since.elapsed();
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
        outage.record_failure(Instant::now(), &error);
        outage.record_answer();
        assert!(messages.lock().is_empty());
        for _ in 0..3 {
            let long_ago = Instant::now() - 2 * LOG_DELAY;
            assert!(outage.record_failure(long_ago, &error) >= 2 * LOG_DELAY);
            assert!(outage.record_failure(Instant::now(), &error) >= 2 * LOG_DELAY);
        }
        outage.record_answer();
        outage.record_answer();
        let messages = messages.lock().clone();
        assert_eq!(messages.len(), 2, "{messages:?}");
        assert!(messages[0].starts_with("grpc+tls://storage has not answered for "), "{messages:?}");
        assert!(messages[1].starts_with("grpc+tls://storage answers again after "), "{messages:?}");
    }
}
