//! The key that signs tickets and session tokens, and the clock by which they expire.

use std::time::{SystemTime, UNIX_EPOCH};

/// The key with which a server or a pool signs its tickets.
#[derive(Clone)]
pub struct TicketKey([u8; blake3::KEY_LEN]);

impl std::fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TicketKey(..)")
    }
}

impl TicketKey {
    /// Derives a key from a secret, which should consist of 32 or more random bytes.
    pub fn new(secret: &[u8]) -> Self {
        Self(blake3::derive_key("godwit 2026-11 tickets", secret))
    }

    /// Returns the message authentication code (MAC) of a ticket.
    pub fn ticket_mac(&self, body: &[u8]) -> blake3::Hash {
        blake3::keyed_hash(&self.0, body)
    }

    /// Returns the message authentication code (MAC) of another signed token than a ticket. `prefix` identifies the
    /// kind of token.
    pub(crate) fn mac(&self, prefix: &[u8], body: &[u8]) -> blake3::Hash {
        blake3::Hasher::new_keyed(&self.0).update(prefix).update(body).finalize()
    }
}

/// Returns the seconds since 1970.
pub fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
