//! A long network path between two network namespaces: rate, round-trip time, queue, loss, jitter and outages, packet by
//! packet, for kernels with and without netem.
//!
//! The emulator is one C file, `emulator.c`, whose first lines describe its model and its settings. It is a separate
//! process: it enters both namespaces, and ends by a signal.

use std::ffi::{CString, NulError, c_char, c_int};

unsafe extern "C" {
    fn godwit_path_emulator(count: c_int, words: *const *const c_char) -> c_int;
}

/// Emulates a path until the process receives a signal. `settings`: `key=value` words, as in the C file. Requires the
/// capabilities `CAP_NET_ADMIN` and `CAP_SYS_ADMIN`, and `/dev/net/tun`; if one is missing, it prints that on stderr and
/// ends the process. Returns 0, or 2 for an unknown word.
///
/// # Errors
/// [`NulError`] if a word has a null character.
pub fn run_emulator(settings: &[String]) -> Result<i32, NulError> {
    let words: Result<Vec<CString>, NulError> =
        ["emulator"].into_iter().chain(settings.iter().map(String::as_str)).map(CString::new).collect();
    let words = words?;
    let pointers: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
    // SAFETY: the pointers lead to `pointers.len()` null-terminated texts, which outlive the call.
    Ok(unsafe { godwit_path_emulator(pointers.len() as c_int, pointers.as_ptr()) })
}
