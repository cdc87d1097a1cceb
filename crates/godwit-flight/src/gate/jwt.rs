//! Tokens that somebody else signs: JSON Web Tokens (RFC 7519), by the public keys of their issuer (RFC 7517).
//!
//! Three ways of signing are known (RFC 7518 §3.1, RFC 8037): RS256, ES256 and EdDSA. Which one a token is to be checked by is said by the
//! key, never by the token: one that says to be signed in another way, or not at all, is nobody's.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::passport::{PASSPORT_TYPE, Visa, VisaIssuer, visas_in};
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
    keys: KeySet,
    name: String,
    audience: String,
    claim: String,
    /// Whose visas are taken that come in its passports; none: it gives no passports.
    visas: Arc<[VisaIssuer]>,
}

impl std::fmt::Debug for Issuer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issuer").field("name", &self.name).field("keys", &self.keys.0.len()).finish_non_exhaustive()
    }
}

/// Who shows a token.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) name: Arc<str>,
    /// What others grant it.
    pub(super) visas: Vec<Visa>,
    /// Until when all of this is so, seconds since 1970.
    pub(super) until_unix_s: u64,
}

/// The public keys of somebody who signs.
#[derive(Clone)]
pub(super) struct KeySet(Vec<Key>);

#[derive(Clone)]
pub(super) struct Key {
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

impl KeySet {
    /// Those of a JSON Web Key Set that can be used.
    pub(super) fn parse(keys: &str) -> Result<Self, KeysError> {
        let problem = |problem: &str| KeysError::Text { problem: problem.to_owned() };
        let set: Value = serde_json::from_str(keys).map_err(|error| problem(&error.to_string()))?;
        let listed = set.get("keys").and_then(Value::as_array).ok_or_else(|| problem("it has no list `keys`"))?;
        let usable = listed.iter().filter_map(Value::as_object).filter_map(|key| {
            let id = key.get("kid").and_then(Value::as_str).map(str::to_owned);
            Some(Key { id, public: Public::of(key)? })
        });
        let keys: Vec<Key> = usable.collect();
        if keys.is_empty() { Err(KeysError::NoKey) } else { Ok(Self(keys)) }
    }

    /// The claims of a token that one of these keys signed, whatever they say. The header is [`Unchecked::header`].
    pub(super) fn claims(&self, token: &Unchecked) -> Option<Map<String, Value>> {
        // What a token says has to be understood is not understood here (RFC 7515 §4.1.11).
        if token.header.contains_key("crit") {
            return None;
        }
        let id = token.header.get("kid").map(Value::as_str);
        let algorithm = token.header.get("alg")?.as_str()?;
        let fits = |key: &&Key| match id {
            Some(id) => id.is_some() && key.id.as_deref() == id,
            None => self.0.len() == 1,
        };
        let key = self.0.iter().filter(fits).find(|key| key.public.algorithm() == algorithm)?;
        key.public.vouches_for(token.signed, &super::decode_base64(token.mark)?).then(|| object(token.body)).flatten()
    }
}

/// A token that nobody has vouched for.
pub(super) struct Unchecked<'a> {
    pub(super) header: Map<String, Value>,
    signed: &'a [u8],
    body: &'a [u8],
    mark: &'a [u8],
}

impl<'a> Unchecked<'a> {
    /// The parts of a token that is not too long.
    pub(super) fn parse(token: &'a [u8]) -> Option<Self> {
        if token.len() > TOKEN_BYTES {
            return None;
        }
        let mut parts = token.split(|byte| *byte == b'.');
        let (head, body, mark) = (parts.next()?, parts.next()?, parts.next()?);
        let signed = &token[..head.len() + 1 + body.len()];
        parts.next().is_none().then_some(Self { header: object(head)?, signed, body, mark })
    }

    /// The claim `iss`, which says whose keys are to be asked, and nothing before they were.
    pub(super) fn said_issuer(&self) -> Option<String> {
        Some(object(self.body)?.get("iss")?.as_str()?.to_owned())
    }
}

/// Until when claims hold that hold now, seconds since 1970. A token without an end is not taken.
pub(super) fn end_of(claims: &Map<String, Value>, now_unix_s: f64) -> Option<u64> {
    let time = |name: &str| claims.get(name).map(|time| time.as_f64().unwrap_or(f64::NAN));
    // A time that is none compares as false.
    let end = time("exp").filter(|end| now_unix_s < end + LEEWAY_S)?;
    time("nbf").is_none_or(|start| start - LEEWAY_S <= now_unix_s).then_some((end + LEEWAY_S) as u64)
}

impl Issuer {
    /// The tokens that an issuer makes for an audience, checked by a set of keys; a claim names who it is.
    ///
    /// # Errors
    /// [`KeysError`].
    pub fn new(keys: &str, name: &str, audience: &str, claim: &str) -> Result<Self, KeysError> {
        let (name, audience, claim) = (name.to_owned(), audience.to_owned(), claim.to_owned());
        Ok(Self { keys: KeySet::parse(keys)?, name, audience, claim, visas: Arc::default() })
    }

    /// The same, where its tokens may be passports of the GA4GH, with visas of these issuers.
    #[must_use]
    pub fn with_visas(self, visas: Vec<VisaIssuer>) -> Self {
        Self { visas: visas.into(), ..self }
    }

    /// Whether a token is one of this kind, whoever signed it.
    pub(super) fn is_token(token: &[u8]) -> bool {
        token.iter().filter(|byte| **byte == b'.').count() == 2
    }

    /// Who shows a token, where it is good now.
    pub(super) fn admit(&self, token: &[u8]) -> Option<Shown> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        self.admit_at(token, now.as_secs_f64())
    }

    pub(super) fn admit_at(&self, token: &[u8], now_unix_s: f64) -> Option<Shown> {
        let token = Unchecked::parse(token)?;
        let claims = self.keys.claims(&token)?;
        let mut until_unix_s = end_of(&claims, now_unix_s)?;
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        let for_audience = match claims.get("aud") {
            Some(Value::String(audience)) => *audience == self.audience,
            Some(Value::Array(several)) => several.iter().any(|one| one.as_str() == Some(&self.audience)),
            // Passports need not say whom they are for (GA4GH AAI OIDC Profile 1.2, "Passport Payload").
            None => !self.visas.is_empty() && token.header.get("typ").and_then(Value::as_str) == Some(PASSPORT_TYPE),
            Some(_) => false,
        };
        let name = text(&self.claim).filter(|name| is_name(name))?;
        if !for_audience || text("iss") != Some(&self.name) {
            return None;
        }
        let visas = visas_in(&claims, &self.visas, now_unix_s);
        until_unix_s = visas.iter().map(|visa| visa.until_unix_s).fold(until_unix_s, u64::min);
        Some(Shown { name: Arc::from(name), visas, until_unix_s })
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
pub(super) mod tests;
