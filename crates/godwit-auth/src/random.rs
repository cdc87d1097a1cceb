//! Random numbers for handles, tickets, tokens and identifiers.

/// Returns cryptographically secure random bytes.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let filled = getrandom::fill(&mut bytes);
    // Linux provides secure random numbers since 3.17. Without them no handle, ticket or token would be secure, so
    // panic.
    filled.expect("the system gives random bytes");
    bytes
}
