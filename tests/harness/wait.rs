//! Waiting for a condition by polling it, never by sleeping for a guessed time.

use std::time::{Duration, Instant};

/// The longest wait of a test for a condition. It does not measure anything: only a defect takes so long, even on a busy
/// machine.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(150);

/// The interval of polling.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Waits until `done` returns true.
///
/// # Panics
/// With `what`, when that does not happen within [`WAIT_TIMEOUT`].
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    wait_for(what, || done().then_some(()));
}

/// Waits until `found` returns a value, and returns it.
///
/// # Panics
/// With `what`, when it returns none within [`WAIT_TIMEOUT`].
pub fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(started.elapsed() < WAIT_TIMEOUT, "waited {WAIT_TIMEOUT:?} in vain: {what}");
        std::thread::sleep(POLL_INTERVAL);
    }
}
