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

/// Returns an identifier of 32 random bytes that cannot be guessed, as 64 lowercase hexadecimal digits.
///
/// # Examples
///
/// ```
/// use godwit_auth::random_id;
///
/// let id = random_id();
/// assert!(id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit()));
/// assert_ne!(id, random_id());
/// ```
pub fn random_id() -> String {
    blake3::Hash::from_bytes(random_bytes()).to_hex().to_string()
}
