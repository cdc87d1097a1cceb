//! Panics of decoders of foreign bytes, which are answers and no bugs.
//!
//! Libraries that read Arrow and Parquet give up on some malformed input by a panic. Whoever runs them here gets an error of it; a program's
//! hook for panics asks [`is_caught`], and says nothing of those.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// How many decoders this thread is in.
    static CAUGHT: Cell<usize> = const { Cell::new(0) };
}

/// While it lives, panics of this thread are caught.
struct Guard;

impl Guard {
    fn new() -> Self {
        CAUGHT.set(CAUGHT.get() + 1);
        Self
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        CAUGHT.set(CAUGHT.get() - 1);
    }
}

/// Runs a decoder; `None` where it panics. Nothing that it holds is to be used after that.
pub fn unless_it_panics<T>(decode: impl FnOnce() -> T) -> Option<T> {
    let _guard = Guard::new();
    catch_unwind(AssertUnwindSafe(decode)).ok()
}

/// Whether a panic of this thread would be caught by [`unless_it_panics`].
pub fn is_caught() -> bool {
    CAUGHT.get() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_caught_within_and_no_longer_after_it() {
        assert!(!is_caught());
        let outcome = unless_it_panics(|| {
            assert_eq!(unless_it_panics(|| u8::try_from(300_u16).expect("a panic on purpose")), None);
            is_caught()
        });
        assert_eq!(outcome, Some(true));
        assert!(!is_caught());
        assert!(!std::thread::spawn(is_caught).join().unwrap());
    }
}
