//! Conversion of panics into errors, for decoders of untrusted bytes.
//!
//! Libraries that read Arrow and Parquet panic on some malformed input. Callers of [`catch_panic`] return an error for
//! such input. The panic hook of a program calls [`is_catching_panics`] and does not report panics that are caught.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// Depth of nested calls of [`catch_panic`] in this thread.
    static CATCH_DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// A guard that increments the thread's [`CATCH_DEPTH`] when it is created and decrements the depth when it is dropped.
struct CatchGuard;

impl CatchGuard {
    fn new() -> Self {
        CATCH_DEPTH.set(CATCH_DEPTH.get() + 1);
        Self
    }
}

impl Drop for CatchGuard {
    fn drop(&mut self) {
        CATCH_DEPTH.set(CATCH_DEPTH.get() - 1);
    }
}

/// Calls `decode`; returns `None` if the call panics. The caller must not use the state of the decoder after a panic.
///
/// # Examples
///
/// ```
/// use godwit_model::panics::catch_panic;
///
/// // A decoder that panics on fewer than four bytes.
/// let decode = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
/// assert_eq!(catch_panic(|| decode(&[150, 0, 0, 0])), Some(150));
/// assert_eq!(catch_panic(|| decode(&[150, 0])), None);
/// ```
pub fn catch_panic<T>(decode: impl FnOnce() -> T) -> Option<T> {
    let _guard = CatchGuard::new();
    catch_unwind(AssertUnwindSafe(decode)).ok()
}

/// Returns whether [`catch_panic`] would catch a panic of the current thread.
///
/// # Examples
///
/// ```
/// use godwit_model::panics::{catch_panic, is_catching_panics};
///
/// assert_eq!(catch_panic(is_catching_panics), Some(true));
/// assert!(!is_catching_panics());
/// ```
pub fn is_catching_panics() -> bool {
    CATCH_DEPTH.get() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_caught_within_and_no_longer_after_it() {
        assert!(!is_catching_panics());
        let outcome = catch_panic(|| {
            assert_eq!(catch_panic(|| u8::try_from(300_u16).expect("a panic on purpose")), None);
            is_catching_panics()
        });
        assert_eq!(outcome, Some(true));
        assert!(!is_catching_panics());
        assert!(!std::thread::spawn(is_catching_panics).join().unwrap());
    }
}
