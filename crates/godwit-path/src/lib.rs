//! A long network path between two network namespaces: rate, round-trip time, queue, loss, jitter and outages, packet by
//! packet, for kernels with and without netem.
//!
//! The emulator is one C file, `emulator.c`, which says at its top what it models and what it can be told. It is a process of
//! its own: it enters both namespaces, and ends by a signal.

use std::ffi::{CString, NulError, c_char, c_int};

unsafe extern "C" {
    fn godwit_path_emulator(count: c_int, words: *const *const c_char) -> c_int;
}

/// Emulates a path until the process is told to end: `key=value` words, as the C file explains them. Needs the capabilities
/// `CAP_NET_ADMIN` and `CAP_SYS_ADMIN`, and `/dev/net/tun`; says on stderr what is missing and ends the process. Returns 0, or 2
/// where a word is not understood.
///
/// # Errors
/// Where a word has a null character.
pub fn emulate(words: &[String]) -> Result<i32, NulError> {
    let words: Result<Vec<CString>, NulError> =
        ["emulator"].into_iter().chain(words.iter().map(String::as_str)).map(CString::new).collect();
    let words = words?;
    let pointers: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
    // SAFETY: the pointers are to texts that end with a null character, as many as are told, and outlive the call.
    Ok(unsafe { godwit_path_emulator(pointers.len() as c_int, pointers.as_ptr()) })
}
