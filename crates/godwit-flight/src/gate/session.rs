//! Sessions: what a client is given by a handshake for what it showed, to show from then on.
//!
//! A session says by itself who it is for and until when, under the signature of the server (or pool) that gave it, so that nothing is
//! kept of it. It is good for as long as what it was given for: a token that is taken off the list ends it, and so does
//! the end of a signed token or of a visa in it.

use std::sync::Arc;
use std::time::Duration;

use prost::Message;

use super::{Caller, Proof, Visa};
use crate::encoding::{decode_base64, encode_base64_url};
use crate::tickets::{TicketKey, now_unix_s};

/// What sessions begin with, as text and under their signature: no ticket is one.
const MARK: &[u8] = b"gws1.";
/// How long one is good, at most.
const LIFETIME: Duration = Duration::from_secs(3600);

/// Who somebody is, until when.
#[derive(Clone, PartialEq, Message)]
pub struct Session {
    #[prost(string, tag = "1")]
    pub(super) caller: String,
    #[prost(uint64, tag = "2")]
    expires_unix_s: u64,
    /// The hash of the token that it was given for; empty where that was a signed one.
    #[prost(bytes = "vec", tag = "3")]
    token_hash: Vec<u8>,
    #[prost(message, repeated, tag = "4")]
    visas: Vec<Visa>,
}

impl Session {
    /// One for a caller that showed what sessions are given for; others show what they have again.
    pub(crate) fn of(caller: &Caller) -> Option<Self> {
        let longest = now_unix_s() + LIFETIME.as_secs();
        let (token_hash, expires_unix_s) = match caller.proof() {
            Proof::Token(hash) => (hash.as_bytes().to_vec(), longest),
            Proof::Signed(until) => (Vec::new(), longest.min(until)),
            Proof::None | Proof::Session => return None,
        };
        Some(Self { caller: caller.name().to_owned(), expires_unix_s, token_hash, visas: caller.visas().to_vec() })
    }

    /// As a token to show.
    pub(crate) fn token(&self, key: &TicketKey) -> String {
        let body = self.encode_to_vec();
        let mac = key.mac(MARK, &body);
        format!("{}{}", String::from_utf8_lossy(MARK), encode_base64_url(&[mac.as_bytes(), &body[..]].concat()))
    }

    /// One that this key gave and that has not ended.
    pub(crate) fn read(token: &[u8], key: &TicketKey) -> Option<Self> {
        let bytes = decode_base64(token.strip_prefix(MARK)?)?;
        let (mac, body) = bytes.split_first_chunk::<{ blake3::OUT_LEN }>()?;
        // Compared in constant time by its type.
        if key.mac(MARK, body) != blake3::Hash::from_bytes(*mac) {
            return None;
        }
        let session = Self::decode(body).ok()?;
        (now_unix_s() < session.expires_unix_s).then_some(session)
    }

    /// The hash of the token that it was given for, where that is one of a list.
    pub(super) fn token_hash(&self) -> Option<blake3::Hash> {
        Some(blake3::Hash::from_bytes(self.token_hash[..].try_into().ok()?))
    }

    pub(super) fn of_whom(&self) -> Caller {
        let (name, visas) = (Some(Arc::from(self.caller.as_str())), self.visas.clone().into());
        Caller { name, visas, proof: Proof::Session, ..Caller::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Gate, Identities};
    use super::*;
    use crate::current::Current;
    use crate::transport::Token;

    fn key() -> TicketKey {
        TicketKey::new(b"a secret of thirty-two characters")
    }

    #[test]
    fn a_session_is_good_for_as_long_as_what_it_was_given_for() {
        let token = Token::new("t0ken-of-alice").unwrap();
        let current = Current::new(Identities::parse(&Identities::line_of("alice", &token)).unwrap());
        let gate = Gate::Identities(current.clone());
        let caller = current.get().who_has(b"t0ken-of-alice").unwrap();
        let shown = Session::of(&caller).unwrap().token(&key());
        let session = Session::read(shown.as_bytes(), &key()).unwrap();
        let resumed = gate.resume(&session).unwrap();
        assert_eq!(resumed.name(), "alice");
        assert!(Session::of(&resumed).is_none(), "a session gives no other");
        assert!(Gate::Open.resume(&session).is_err());
        for other in ["bob", "alice"] {
            let token = Token::new("an0ther").unwrap();
            current.set(Identities::parse(&Identities::line_of(other, &token)).unwrap());
            assert!(gate.resume(&session).is_err(), "her token is not on the list any more");
        }
    }

    #[test]
    fn sessions_that_were_not_given_are_none() {
        let visa = Visa { value: "dataset".to_owned(), ..Visa::default() };
        let given = Caller { proof: Proof::Signed(u64::MAX), ..Caller::named("alice").with_visas(vec![visa.clone()]) };
        let token = Session::of(&given).unwrap().token(&key());
        let back = Session::read(token.as_bytes(), &key()).unwrap().of_whom();
        assert_eq!((back.name(), back.visas()), ("alice", &[visa][..]));
        for at in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[at] ^= 1;
            // The last letter of base64 may have bits that say nothing.
            let same = Session::read(&changed, &key()).is_some_and(|session| session.of_whom() == back);
            assert!(!same || at == token.len() - 1, "{at}");
            assert!(Session::read(&token.as_bytes()[..at], &key()).is_none(), "{at}");
        }
        assert!(Session::read(token.as_bytes(), &TicketKey::new(b"another secret, also of 32 letters")).is_none());
        let late = Session::of(&Caller { proof: Proof::Signed(1), ..Caller::named("alice") }).unwrap();
        assert!(Session::read(late.token(&key()).as_bytes(), &key()).is_none(), "it has ended");
        // What is signed by the same key for something else is no session.
        let claim = crate::tickets::Claim::new(&Caller::named("alice"), LIFETIME).sign(&key());
        let dressed = [MARK, encode_base64_url(&claim[4..]).as_bytes()].concat();
        assert!(Session::read(&dressed, &key()).is_none());
    }
}
