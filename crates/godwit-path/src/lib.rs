//! An emulator of a long-distance network path between two network namespaces. It emulates rate, round-trip time,
//! queue, loss, jitter and outages for each packet, and also works on kernels without netem.
//!
//! The emulator is written in C. The first lines of `emulator.c` describe the model and the settings. It must run in a
//! process of its own, which enters both namespaces and runs until it receives a signal.

use std::ffi::{CString, NulError, c_char, c_int};

unsafe extern "C" {
    fn godwit_path_emulator(count: c_int, words: *const *const c_char) -> c_int;
}

/// Emulates a path until the process receives a signal. `settings` are `key=value` words, which the first lines of
/// `emulator.c` describe. Requires the capabilities `CAP_NET_ADMIN` and `CAP_SYS_ADMIN`, and `/dev/net/tun`. If one of
/// them is missing, the function prints an error on stderr and exits the process. Returns 0, or 2 for an unknown word.
///
/// # Errors
/// [`NulError`] if a word contains a null character.
pub fn run_emulator(settings: &[String]) -> Result<i32, NulError> {
    let words: Result<Vec<CString>, NulError> =
        ["emulator"].into_iter().chain(settings.iter().map(String::as_str)).map(CString::new).collect();
    let words = words?;
    let pointers: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
    // SAFETY: the array contains `pointers.len()` pointers to null-terminated strings, which outlive the call.
    Ok(unsafe { godwit_path_emulator(pointers.len() as c_int, pointers.as_ptr()) })
}
