//! Grants: a server lets somebody read one place, or send what one session takes, for a while, by a token that another server can show.
//!
//! A grant is signed, expires, and is for reading below one path, or for writing the blocks of one session. It needs no memory of the
//! server that gives it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use godwit_flight::{Caller, Status};
use serde::{Deserialize, Serialize};

use crate::error::TransferError;
use crate::protocol::json;

/// What grants of this version start with.
const MARK: &str = "gwg1.";
/// How long a grant is good; a copy that takes longer asks for another.
const LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// What is granted.
#[derive(Debug, Serialize, Deserialize)]
struct Grant {
    /// Who may do it, and lets another.
    caller: String,
    /// Below which path, where it is for reading.
    path: String,
    /// Into which session, where it is for writing.
    #[serde(default)]
    session: Option<String>,
    /// Seconds since 1970.
    expires_unix_s: u64,
}

/// The key that a server signs grants with. It lasts as long as the process.
#[derive(Clone)]
pub(crate) struct GrantKey([u8; blake3::KEY_LEN]);

impl std::fmt::Debug for GrantKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GrantKey(..)")
    }
}

fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl GrantKey {
    /// One that nobody can guess.
    pub(crate) fn random() -> Result<Self, Status> {
        let mut secret = [0; 32];
        let filled = getrandom::fill(&mut secret);
        filled.map_err(|error| Status::internal(format!("no random numbers: {error}")))?;
        Ok(Self(blake3::derive_key("godwit 2026-11 grants of files", &secret)))
    }

    /// A token for reading below a path.
    pub(crate) fn grant(&self, caller: &Caller, path: &str) -> Result<String, TransferError> {
        self.grant_until(caller, path, now_unix_s() + LIFETIME.as_secs())
    }

    fn grant_until(&self, caller: &Caller, path: &str, expires_unix_s: u64) -> Result<String, TransferError> {
        let path = path.trim_matches('/').to_owned();
        self.sign(&Grant { caller: caller.name().to_owned(), path, session: None, expires_unix_s })
    }

    /// A token for sending the blocks of a session of the caller's.
    pub(crate) fn grant_writing(&self, caller: &Caller, session: &str) -> Result<String, TransferError> {
        let expires_unix_s = now_unix_s() + LIFETIME.as_secs();
        let (caller, session) = (caller.name().to_owned(), Some(session.to_owned()));
        self.sign(&Grant { caller, path: String::new(), session, expires_unix_s })
    }

    fn sign(&self, grant: &Grant) -> Result<String, TransferError> {
        let body = json(grant)?;
        let mac = blake3::keyed_hash(&self.0, &body).to_hex();
        let digits: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(format!("{MARK}{mac}{digits}"))
    }

    /// Who shows a token of [`GrantKey::grant`] that is still good.
    pub(crate) fn admit(&self, token: &[u8]) -> Option<Caller> {
        let token = std::str::from_utf8(token.strip_prefix(MARK.as_bytes())?).ok()?;
        let (mac, digits) = token.split_at_checked(2 * blake3::OUT_LEN)?;
        let body: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(byte_of).collect();
        let body = body?;
        // Hashes are compared in constant time.
        if blake3::keyed_hash(&self.0, &body) != blake3::Hash::from_hex(mac).ok()? {
            return None;
        }
        let grant: Grant = serde_json::from_slice(&body).ok()?;
        let purpose = grant.session.as_deref().map_or(grant.path, writing);
        (grant.expires_unix_s > now_unix_s()).then(|| Caller::granted(&grant.caller, &purpose))
    }
}

fn byte_of(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok().filter(|_| digits.len() == 2)
}

/// The purpose of who may write into one session. No path that is granted begins with `/`.
fn writing(session: &str) -> String {
    format!("/writing {session}")
}

/// Fails where a caller may do one thing only, and it is not writing into this session.
pub(crate) fn check_writing(caller: &Caller, session: &str) -> Result<(), TransferError> {
    let is_granted = caller.purpose().is_none_or(|purpose| purpose == writing(session));
    if is_granted { Ok(()) } else { Err(TransferError::refused("writing here was not granted")) }
}

/// Fails where a caller may do one thing only, and it is not reading this path.
pub(crate) fn check_reading(caller: &Caller, path: &str) -> Result<(), TransferError> {
    let Some(granted) = caller.purpose() else { return Ok(()) };
    let path = path.trim_matches('/');
    let is_below =
        granted.is_empty() || path.strip_prefix(granted).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    // `..` is refused wherever paths are used, but a grant does not depend on that.
    let plain = path.split('/').all(|part| part != "..");
    if is_below && plain { Ok(()) } else { Err(TransferError::refused(format!("{path:?} was not granted"))) }
}

/// Fails where a caller may do one thing only.
pub(crate) fn check_unlimited(caller: &Caller) -> Result<(), TransferError> {
    if caller.purpose().is_none() { Ok(()) } else { Err(TransferError::refused("only reading was granted")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_for_a_session_is_for_nothing_else() {
        let key = GrantKey::random().unwrap();
        let caller = key.admit(key.grant_writing(&Caller::default(), "s1").unwrap().as_bytes()).unwrap();
        assert!(check_writing(&caller, "s1").is_ok() && check_writing(&caller, "s2").is_err());
        assert!(check_unlimited(&caller).is_err());
        for path in ["", "s1", "/s1", "writing s1", "/writing s1"] {
            assert!(check_reading(&caller, path).is_err(), "{path}");
        }
        // Nor does one for reading let write, whatever its path is like.
        let reader = key.admit(key.grant(&Caller::default(), "/writing s1").unwrap().as_bytes()).unwrap();
        assert!(check_writing(&reader, "s1").is_err() && check_writing(&Caller::default(), "s1").is_ok());
    }

    #[test]
    fn a_grant_is_for_reading_below_one_path_and_cannot_be_made_or_changed() {
        let key = GrantKey::random().unwrap();
        let token = key.grant(&Caller::default(), "/runs/7/").unwrap();
        let caller = key.admit(token.as_bytes()).unwrap();
        for fine in ["runs/7", "/runs/7/S.bam", "runs/7/a/b"] {
            assert!(check_reading(&caller, fine).is_ok(), "{fine}");
        }
        for wrong in ["", "runs", "runs/77", "runs/8/S.bam", "runs/7/../8"] {
            assert!(check_reading(&caller, wrong).is_err(), "{wrong}");
        }
        assert!(check_unlimited(&caller).is_err() && check_unlimited(&Caller::default()).is_ok());
        for at in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[at] ^= 1;
            assert!(key.admit(&changed).is_none(), "{at}");
            assert!(key.admit(&token.as_bytes()[..at]).is_none(), "{at}");
        }
        assert!(GrantKey::random().unwrap().admit(token.as_bytes()).is_none());
        let late = key.grant_until(&Caller::default(), "runs", 1).unwrap();
        assert!(key.admit(late.as_bytes()).is_none());
    }
}
