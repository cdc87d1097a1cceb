//! Waiting for what takes a moment: by looking again, never by sleeping for a guessed time.

use std::time::{Duration, Instant};

/// How long a test waits for what takes a moment. Nothing is measured by it: only a defect takes so long, on a busy machine too.
pub const PATIENCE: Duration = Duration::from_secs(150);

/// How often it is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Waits until `done`.
///
/// # Panics
/// With `what`, when that does not come within [`PATIENCE`].
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    wait_for(what, || done().then_some(()));
}

/// Waits until there is something, and returns it.
///
/// # Panics
/// With `what`, when nothing comes within [`PATIENCE`].
pub fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain: {what}");
        std::thread::sleep(LOOK_AGAIN);
    }
}
