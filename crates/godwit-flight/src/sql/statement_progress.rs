//! The progress of a running statement, which its engine provides and other calls read.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

/// A function that returns the fraction of a statement that is done.
type Fraction = Arc<dyn Fn() -> f32 + Send + Sync>;

/// The progress of a statement. Clones share it.
///
/// # Examples
///
/// ```
/// use godwit_flight::StatementProgress;
///
/// let progress = StatementProgress::default();
/// assert_eq!(progress.fraction(), 0.0);
/// progress.provide(|| 0.25);
/// assert_eq!(progress.clone().fraction(), 0.25);
/// ```
#[derive(Clone, Default)]
pub struct StatementProgress(Arc<Mutex<Option<Fraction>>>);

impl fmt::Debug for StatementProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StatementProgress").field(&self.fraction()).finish()
    }
}

impl StatementProgress {
    /// Sets the function that returns the fraction that is done. The engine calls this when the statement starts.
    pub fn provide(&self, fraction: impl Fn() -> f32 + Send + Sync + 'static) {
        *self.0.lock() = Some(Arc::new(fraction));
    }

    /// Returns the fraction that is done, from 0 to 1; 0 before the statement starts, and where it is not known.
    pub fn fraction(&self) -> f32 {
        let fraction = self.0.lock().clone();
        fraction.map_or(0.0, |fraction| fraction().clamp(0.0, 1.0))
    }
}
