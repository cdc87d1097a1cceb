//! Tokens that somebody else signs: JSON Web Tokens (RFC 7519), by the public keys of their issuer (RFC 7517).
//!
//! Three ways of signing are known (RFC 7518 §3.1, RFC 8037): RS256, ES256 and EdDSA. Which one a token is to be checked by is said by the
//! key, never by the token: one that says to be signed in another way, or not at all, is nobody's.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde_json::{Map, Value};

/// How far clocks may be apart, seconds.
const LEEWAY_S: f64 = 60.0;
/// Bytes of a token; those of issuers with many claims have some thousand.
const TOKEN_BYTES: usize = 16 << 10;
/// The shortest modulus that is taken, bytes (RFC 7518 §3.3).
const RSA_BYTES: usize = 256;
/// The claim that names somebody, where nothing else is said.
pub const SUBJECT: &str = "sub";

/// Why keys cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    /// They are no set of keys.
    #[error("it is no JSON Web Key Set: {problem}")]
    Text {
        /// Why.
        problem: String,
    },
    /// None of them is known how to use.
    #[error("it has no key for RS256, ES256 or EdDSA")]
    NoKey,
}

/// Whose tokens are taken.
#[derive(Clone)]
pub struct Issuer {
    keys: Vec<Key>,
    name: String,
    audience: String,
    claim: String,
}

impl std::fmt::Debug for Issuer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issuer").field("name", &self.name).field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}

#[derive(Clone)]
struct Key {
    id: Option<String>,
    public: Public,
}

#[derive(Clone)]
enum Public {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl Public {
    fn of(key: &Map<String, Value>) -> Option<Self> {
        let text = |name: &str| key.get(name).and_then(Value::as_str);
        let bytes = |name: &str| text(name).and_then(|text| super::decode_base64(text.as_bytes()));
        // A key for something else is none for this (RFC 7517 §4.2, §4.4).
        if text("use").is_some_and(|used| used != "sig") {
            return None;
        }
        let for_algorithm = |name: &str| text("alg").is_none_or(|algorithm| algorithm == name);
        match (text("kty")?, text("crv")) {
            ("RSA", _) if for_algorithm("RS256") => {
                let (modulus, exponent) = (bytes("n")?, bytes("e")?);
                (modulus.len() >= RSA_BYTES).then_some(Self::Rsa { modulus, exponent })
            }
            ("EC", Some("P-256")) if for_algorithm("ES256") => {
                let (x, y) = (bytes("x")?, bytes("y")?);
                // SEC 1 §2.3.3: uncompressed.
                (x.len() == 32 && y.len() == 32).then(|| Self::P256([&[4][..], &x, &y].concat()))
            }
            ("OKP", Some("Ed25519")) if for_algorithm("EdDSA") => {
                bytes("x").filter(|x| x.len() == 32).map(Self::Ed25519)
            }
            _ => None,
        }
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Self::Rsa { .. } => "RS256",
            Self::P256(_) => "ES256",
            Self::Ed25519(_) => "EdDSA",
        }
    }

    fn vouches_for(&self, signed: &[u8], mark: &[u8]) -> bool {
        match self {
            Self::Rsa { modulus, exponent } => RsaPublicKeyComponents { n: modulus, e: exponent }
                .verify(&signature::RSA_PKCS1_2048_8192_SHA256, signed, mark)
                .is_ok(),
            Self::P256(point) => {
                UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point).verify(signed, mark).is_ok()
            }
            Self::Ed25519(point) => UnparsedPublicKey::new(&signature::ED25519, point).verify(signed, mark).is_ok(),
        }
    }
}

impl Issuer {
    /// The tokens that an issuer makes for an audience, checked by a set of keys; a claim names who it is.
    ///
    /// # Errors
    /// [`KeysError`].
    pub fn new(keys: &str, name: &str, audience: &str, claim: &str) -> Result<Self, KeysError> {
        let problem = |problem: &str| KeysError::Text { problem: problem.to_owned() };
        let set: Value = serde_json::from_str(keys).map_err(|error| problem(&error.to_string()))?;
        let listed = set.get("keys").and_then(Value::as_array).ok_or_else(|| problem("it has no list `keys`"))?;
        let usable = listed.iter().filter_map(Value::as_object).filter_map(|key| {
            let id = key.get("kid").and_then(Value::as_str).map(str::to_owned);
            Some(Key { id, public: Public::of(key)? })
        });
        let keys: Vec<Key> = usable.collect();
        if keys.is_empty() {
            return Err(KeysError::NoKey);
        }
        Ok(Self { keys, name: name.to_owned(), audience: audience.to_owned(), claim: claim.to_owned() })
    }

    /// Whether a token is one of this kind, whoever signed it.
    pub(super) fn is_token(token: &[u8]) -> bool {
        token.iter().filter(|byte| **byte == b'.').count() == 2
    }

    /// Who shows a token, where it is good now.
    pub(super) fn admit(&self, token: &[u8]) -> Option<Arc<str>> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        self.admit_at(token, now.as_secs_f64())
    }

    fn admit_at(&self, token: &[u8], now_unix_s: f64) -> Option<Arc<str>> {
        if token.len() > TOKEN_BYTES {
            return None;
        }
        let mut parts = token.split(|byte| *byte == b'.');
        let (head, body, mark) = (parts.next()?, parts.next()?, parts.next()?);
        let signed = &token[..head.len() + 1 + body.len()];
        let header = object(head)?;
        // What a token says has to be understood is not understood here (RFC 7515 §4.1.11).
        if header.contains_key("crit") {
            return None;
        }
        let id = header.get("kid").map(Value::as_str);
        let algorithm = header.get("alg")?.as_str()?;
        let fits = |key: &&Key| match id {
            Some(id) => id.is_some() && key.id.as_deref() == id,
            None => self.keys.len() == 1,
        };
        let key = self.keys.iter().filter(fits).find(|key| key.public.algorithm() == algorithm)?;
        if !key.public.vouches_for(signed, &super::decode_base64(mark)?) {
            return None;
        }
        self.named(&object(body)?, now_unix_s)
    }

    /// Whom the claims of a token name, where they are for this server and now.
    fn named(&self, claims: &Map<String, Value>, now_unix_s: f64) -> Option<Arc<str>> {
        let time = |name: &str| claims.get(name).map(|time| time.as_f64().unwrap_or(f64::NAN));
        // A token without an end is not taken. A time that is none compares as false.
        let in_time = time("exp").is_some_and(|end| now_unix_s < end + LEEWAY_S)
            && time("nbf").is_none_or(|start| start - LEEWAY_S <= now_unix_s);
        let from_issuer = claims.get("iss").and_then(Value::as_str) == Some(&self.name);
        let for_audience = match claims.get("aud") {
            Some(Value::String(audience)) => *audience == self.audience,
            Some(Value::Array(several)) => several.iter().any(|one| one.as_str() == Some(&self.audience)),
            _ => false,
        };
        let name = claims.get(&self.claim).and_then(Value::as_str).filter(|name| is_name(name))?;
        (in_time && from_issuer && for_audience).then(|| Arc::from(name))
    }
}

/// A name as `godwit token` takes it.
fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(|character: char| character.is_whitespace() || character.is_control())
}

fn object(part: &[u8]) -> Option<Map<String, Value>> {
    match serde_json::from_slice(&super::decode_base64(part)?).ok()? {
        Value::Object(object) => Some(object),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
