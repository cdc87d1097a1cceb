//! Session tokens, which a client receives in the Flight handshake in exchange for another credential.
//!
//! A session token contains principal and expiry time, signed by the server or pool that issued it, so that servers
//! need not store sessions. A session ends early if the credential for which it was issued becomes invalid: if a token
//! is removed from the list of identities, or if a JSON Web Token or one of its visas expires.

use std::time::Duration;

use godwit_dataset::{Principal, Visa, decode_base64, encode_base64_url};
use prost::Message;

use super::Credential;
use crate::ticket_key::{TicketKey, now_unix_s};

/// Prefix of session tokens, which the signature includes. It differs from the prefix of tickets, so that neither can
/// be used as the other.
const SESSION_PREFIX: &[u8] = b"gws1.";
/// Maximum lifetime of a session.
const SESSION_LIFETIME: Duration = Duration::from_secs(3600);

/// The content of a session token: a principal and an expiry time.
#[derive(Clone, PartialEq, Message)]
pub struct Session {
    #[prost(string, tag = "1")]
    pub(super) principal: String,
    #[prost(uint64, tag = "2")]
    expires_unix_s: u64,
    /// Hash of the token for which the session was issued; empty if this was a JSON Web Token.
    #[prost(bytes = "vec", tag = "3")]
    token_hash: Vec<u8>,
    #[prost(message, repeated, tag = "4")]
    visas: Vec<Visa>,
}

impl Session {
    /// Issues a session for a principal with a token from the list of identities or a JSON Web Token. `None` for other
    /// credentials, which the client continues to use.
    pub fn issue(principal: &Principal) -> Option<Self> {
        let longest = now_unix_s() + SESSION_LIFETIME.as_secs();
        let (token_hash, expires_unix_s) = match principal.extension::<Credential>()? {
            Credential::Token(hash) => (hash.as_bytes().to_vec(), longest),
            Credential::Jwt(until) => (Vec::new(), longest.min(*until)),
        };
        Some(Self {
            principal: principal.name().to_owned(),
            expires_unix_s,
            token_hash,
            visas: principal.visas().to_vec(),
        })
    }

    /// Encodes and signs the session as a token.
    pub fn to_token(&self, key: &TicketKey) -> String {
        let body = self.encode_to_vec();
        let mac = key.mac(SESSION_PREFIX, &body);
        format!(
            "{}{}",
            String::from_utf8_lossy(SESSION_PREFIX),
            encode_base64_url(&[mac.as_bytes(), &body[..]].concat())
        )
    }

    /// Returns the session in a token if this key signed the token and the session has not expired.
    pub fn verify_token(token: &[u8], key: &TicketKey) -> Option<Self> {
        let bytes = decode_base64(token.strip_prefix(SESSION_PREFIX)?)?;
        let (mac, body) = bytes.split_first_chunk::<{ blake3::OUT_LEN }>()?;
        // `blake3::Hash` compares in constant time, which prevents timing attacks.
        if key.mac(SESSION_PREFIX, body) != blake3::Hash::from_bytes(*mac) {
            return None;
        }
        let session = Self::decode(body).ok()?;
        (now_unix_s() < session.expires_unix_s).then_some(session)
    }

    /// Returns the hash of the token for which the session was issued; `None` if this was a JSON Web Token.
    pub(super) fn token_hash(&self) -> Option<blake3::Hash> {
        Some(blake3::Hash::from_bytes(self.token_hash[..].try_into().ok()?))
    }

    pub(super) fn to_principal(&self) -> Principal {
        Principal::named(&self.principal).with_visas(self.visas.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Authenticator, Identities};
    use super::*;
    use crate::reload_handle::ReloadHandle;
    use crate::token::Token;

    fn key() -> TicketKey {
        TicketKey::new(b"a secret of thirty-two characters")
    }

    #[test]
    fn a_session_is_valid_as_long_as_the_credential_it_was_issued_for() {
        let token = Token::new("t0ken-of-alice").unwrap();
        let current = ReloadHandle::new(Identities::parse(&Identities::format_line("alice", &token)).unwrap());
        let authenticator = Authenticator::Identities(current.clone());
        let principal = current.get().authenticate(b"t0ken-of-alice").unwrap();
        let shown = Session::issue(&principal).unwrap().to_token(&key());
        let session = Session::verify_token(shown.as_bytes(), &key()).unwrap();
        let resumed = authenticator.authenticate_session(&session).unwrap();
        assert_eq!(resumed.name(), "alice");
        assert!(Session::issue(&resumed).is_none(), "a session gives no other");
        assert!(Authenticator::Disabled.authenticate_session(&session).is_err());
        for other in ["bob", "alice"] {
            let token = Token::new("an0ther").unwrap();
            current.set(Identities::parse(&Identities::format_line(other, &token)).unwrap());
            assert!(authenticator.authenticate_session(&session).is_err(), "her token is not on the list any more");
        }
    }

    #[test]
    fn tokens_that_were_not_issued_as_sessions_are_rejected() {
        let visa = Visa { value: "dataset".to_owned(), ..Visa::default() };
        let given = Principal::named("alice").with_visas(vec![visa.clone()]);
        let given = given.with_extension(Credential::Jwt(u64::MAX));
        let token = Session::issue(&given).unwrap().to_token(&key());
        let back = Session::verify_token(token.as_bytes(), &key()).unwrap().to_principal();
        assert_eq!((back.name(), back.visas()), ("alice", &[visa][..]));
        for at in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[at] ^= 1;
            // The last Base64 character may contain unused bits; changing them does not change the token.
            let same = Session::verify_token(&changed, &key()).is_some_and(|session| session.to_principal() == back);
            assert!(!same || at == token.len() - 1, "{at}");
            assert!(Session::verify_token(&token.as_bytes()[..at], &key()).is_none(), "{at}");
        }
        assert!(
            Session::verify_token(token.as_bytes(), &TicketKey::new(b"another secret, also of 32 letters")).is_none()
        );
        let mut late = Session::issue(&Principal::named("alice").with_extension(Credential::Jwt(1))).unwrap();
        assert!(Session::verify_token(late.to_token(&key()).as_bytes(), &key()).is_none(), "it has ended");
        // A ticket that the same key signed is not accepted as a session.
        late.expires_unix_s = u64::MAX;
        let body = late.encode_to_vec();
        let ticket = [key().ticket_mac(&body).as_bytes(), &body[..]].concat();
        let dressed = [SESSION_PREFIX, encode_base64_url(&ticket).as_bytes()].concat();
        assert!(Session::verify_token(&dressed, &key()).is_none());
    }
}
