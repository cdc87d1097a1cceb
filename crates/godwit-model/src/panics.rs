//! Panics of decoders of untrusted bytes, turned into errors.
//!
//! Libraries that read Arrow and Parquet panic on some malformed input. Callers of [`catch_panic`] return an error for it; a
//! program's panic hook calls [`is_catching_panics`] and does not report these panics.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// Depth of nested calls of [`catch_panic`] in this thread.
    static CATCH_DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// A guard: while it exists, panics of this thread are caught.
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

/// Runs a decoder; returns `None` if it panics. The caller must not use the decoder's state after a panic.
pub fn catch_panic<T>(decode: impl FnOnce() -> T) -> Option<T> {
    let _guard = CatchGuard::new();
    catch_unwind(AssertUnwindSafe(decode)).ok()
}

/// Reports whether [`catch_panic`] would catch a panic of this thread.
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
