//! Delegation tokens. With a token, another server may read below a path, or send the blocks of an upload session, on
//! behalf of a principal.
//!
//! A token is signed, expires, and is valid for one path or one session. The server that issues a token stores nothing
//! about it.

use std::time::Duration;

use godwit_auth::{now_unix_s, random_bytes};
use godwit_dataset::Principal;
use serde::{Deserialize, Serialize};

use crate::copy_protocol::to_json;
use crate::error::TransferError;

/// Prefix of the tokens of this format version.
const TOKEN_PREFIX: &str = "gwg1.";
/// Lifetime of a token. A copy that takes longer requests a new token.
const TOKEN_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// The signed content of a token.
#[derive(Debug, Serialize, Deserialize)]
struct Delegation {
    /// Name of the principal that delegates its right.
    #[serde(rename = "caller")]
    principal: String,
    /// Path below which the holder of the token may read.
    path: String,
    /// Upload session to which the holder of the token may write; `None` for a token that permits reading.
    #[serde(default)]
    session: Option<String>,
    /// Expiry time, seconds since 1970 (Unix time).
    expires_unix_s: u64,
}

/// The random key with which a server signs its tokens. A restart of the server invalidates all its tokens.
#[derive(Clone)]
pub(crate) struct DelegationKey([u8; blake3::KEY_LEN]);

impl std::fmt::Debug for DelegationKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DelegationKey(..)")
    }
}

impl DelegationKey {
    /// Returns a random key.
    pub(crate) fn random() -> Self {
        Self(blake3::derive_key("godwit 2026-11 grants of files", &random_bytes::<32>()))
    }

    /// Returns a token that permits reading below a path.
    pub(crate) fn issue_read_token(&self, principal: &Principal, path: &str) -> Result<String, TransferError> {
        self.issue_read_token_until(principal, path, now_unix_s() + TOKEN_LIFETIME.as_secs())
    }

    fn issue_read_token_until(
        &self,
        principal: &Principal,
        path: &str,
        expires_unix_s: u64,
    ) -> Result<String, TransferError> {
        let path = path.trim_matches('/').to_owned();
        self.sign_delegation(&Delegation {
            principal: principal.name().to_owned(),
            path,
            session: None,
            expires_unix_s,
        })
    }

    /// Returns a token that permits sending the blocks of an upload session of the principal.
    pub(crate) fn issue_write_token(&self, principal: &Principal, session: &str) -> Result<String, TransferError> {
        let expires_unix_s = now_unix_s() + TOKEN_LIFETIME.as_secs();
        let (principal, session) = (principal.name().to_owned(), Some(session.to_owned()));
        self.sign_delegation(&Delegation { principal, path: String::new(), session, expires_unix_s })
    }

    fn sign_delegation(&self, grant: &Delegation) -> Result<String, TransferError> {
        let body = to_json(grant)?;
        let mac = blake3::keyed_hash(&self.0, &body).to_hex();
        Ok(format!("{TOKEN_PREFIX}{mac}{}", hex::encode(body)))
    }

    /// Verifies a token; returns its principal, limited to the path or session of the token. `None` if the token is
    /// invalid.
    pub(crate) fn authenticate(&self, token: &[u8]) -> Option<Principal> {
        let token = std::str::from_utf8(token.strip_prefix(TOKEN_PREFIX.as_bytes())?).ok()?;
        let (mac, digits) = token.split_at_checked(2 * blake3::OUT_LEN)?;
        let body = hex::decode(digits).ok()?;
        // `blake3::Hash` compares in constant time, so response times do not reveal the signature.
        if blake3::keyed_hash(&self.0, &body) != blake3::Hash::from_hex(mac).ok()? {
            return None;
        }
        let grant: Delegation = serde_json::from_slice(&body).ok()?;
        let purpose = grant.session.as_deref().map_or(grant.path, write_purpose);
        (grant.expires_unix_s > now_unix_s()).then(|| Principal::with_scope(&grant.principal, &purpose))
    }
}

/// Returns the scope of a token that permits writing to a session. It differs from all scopes for reading, because
/// their paths do not start with `/`.
fn write_purpose(session: &str) -> String {
    format!("/writing {session}")
}

/// Rejects a principal whose scope excludes writing to this session. A principal without a scope is accepted.
pub(crate) fn authorize_write(principal: &Principal, session: &str) -> Result<(), TransferError> {
    let is_granted = principal.scope().is_none_or(|purpose| purpose == write_purpose(session));
    if is_granted { Ok(()) } else { Err(TransferError::rejected("the token does not permit writing to this session")) }
}

/// Rejects a principal whose scope excludes reading this path. A principal without a scope is accepted.
pub(crate) fn authorize_read(principal: &Principal, path: &str) -> Result<(), TransferError> {
    let Some(granted) = principal.scope() else { return Ok(()) };
    let path = path.trim_matches('/');
    let is_below =
        granted.is_empty() || path.strip_prefix(granted).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    // Reject `..` in the path here too, so that this check does not depend on the checks of its callers.
    let plain = path.split('/').all(|part| part != "..");
    if is_below && plain {
        Ok(())
    } else {
        Err(TransferError::rejected(format!("the token does not permit reading {path:?}")))
    }
}

/// Rejects a principal with a scope: the action requires unrestricted access.
pub(crate) fn authorize_unrestricted(principal: &Principal) -> Result<(), TransferError> {
    if principal.scope().is_none() { Ok(()) } else { Err(TransferError::rejected("the token permits reading only")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_for_a_session_authorizes_nothing_else() {
        let key = DelegationKey::random();
        let principal =
            key.authenticate(key.issue_write_token(&Principal::default(), "s1").unwrap().as_bytes()).unwrap();
        assert!(authorize_write(&principal, "s1").is_ok() && authorize_write(&principal, "s2").is_err());
        assert!(authorize_unrestricted(&principal).is_err());
        for path in ["", "s1", "/s1", "writing s1", "/writing s1"] {
            assert!(authorize_read(&principal, path).is_err(), "{path}");
        }
        // A read token does not permit writing, even if its path looks like the scope of a write token.
        let reader =
            key.authenticate(key.issue_read_token(&Principal::default(), "/writing s1").unwrap().as_bytes()).unwrap();
        assert!(authorize_write(&reader, "s1").is_err() && authorize_write(&Principal::default(), "s1").is_ok());
    }

    #[test]
    fn a_read_token_is_for_one_path_and_cannot_be_forged_or_changed() {
        let key = DelegationKey::random();
        let token = key.issue_read_token(&Principal::default(), "/runs/7/").unwrap();
        let principal = key.authenticate(token.as_bytes()).unwrap();
        for fine in ["runs/7", "/runs/7/S.bam", "runs/7/a/b"] {
            assert!(authorize_read(&principal, fine).is_ok(), "{fine}");
        }
        for wrong in ["", "runs", "runs/77", "runs/8/S.bam", "runs/7/../8"] {
            assert!(authorize_read(&principal, wrong).is_err(), "{wrong}");
        }
        assert!(authorize_unrestricted(&principal).is_err() && authorize_unrestricted(&Principal::default()).is_ok());
        for at in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[at] ^= 1;
            assert!(key.authenticate(&changed).is_none(), "{at}");
            assert!(key.authenticate(&token.as_bytes()[..at]).is_none(), "{at}");
        }
        assert!(DelegationKey::random().authenticate(token.as_bytes()).is_none());
        let late = key.issue_read_token_until(&Principal::default(), "runs", 1).unwrap();
        assert!(key.authenticate(late.as_bytes()).is_none());
    }
}
