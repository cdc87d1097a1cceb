//! JSON Web Tokens (RFC 7519) that an external issuer signed, verified by the public keys of the issuer (RFC 7517).
//!
//! RS256, ES256 and EdDSA are supported (RFC 7518 §3.1, RFC 8037). The type of the key determines the algorithm. A
//! token that names another algorithm, or that is not signed, is rejected.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::passport::{PASSPORT_TYPE, Visa, VisaIssuer, valid_visas};
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde_json::{Map, Value};

/// Accepted difference between the clocks of issuer and server, seconds.
const CLOCK_LEEWAY_S: f64 = 60.0;
/// Maximum length of a token, bytes. Tokens with many claims have a few thousand bytes.
const MAX_TOKEN_BYTES: usize = 16 << 10;
/// Minimum length of the modulus of an RSA key, bytes (RFC 7518 §3.3).
const MIN_RSA_MODULUS_BYTES: usize = 256;
/// The JWT claim that by default contains the name of the principal.
pub const SUBJECT_CLAIM: &str = "sub";

/// The error for a JSON Web Key Set that cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeySetError {
    /// The text is not a JSON Web Key Set.
    #[error("not a JSON Web Key Set: {problem}")]
    Malformed {
        /// The reason why the text is invalid.
        problem: String,
    },
    /// The key set contains no key for a supported algorithm.
    #[error("the key set has no key for RS256, ES256 or EdDSA")]
    NoUsableKey,
}

/// An issuer of JSON Web Tokens, such as a login server, whose tokens are accepted.
#[derive(Clone)]
pub struct TokenIssuer {
    keys: KeySet,
    name: String,
    audience: String,
    claim: String,
    /// Issuers whose visas are accepted in passports of this issuer. Empty: tokens of this issuer are not passports.
    visas: Arc<[VisaIssuer]>,
}

impl std::fmt::Debug for TokenIssuer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenIssuer")
            .field("name", &self.name)
            .field("keys", &self.keys.0.len())
            .finish_non_exhaustive()
    }
}

/// The verified content of a JSON Web Token.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct VerifiedToken {
    pub(super) name: Arc<str>,
    /// The valid visas in the token.
    pub(super) visas: Vec<Visa>,
    /// Time at which the token or the first of its visas expires, seconds since 1970.
    pub(super) expires_unix_s: u64,
}

/// The public keys of an issuer for verifying signatures.
#[derive(Clone)]
pub(super) struct KeySet(Vec<VerificationKey>);

#[derive(Clone)]
pub(super) struct VerificationKey {
    id: Option<String>,
    public: PublicKey,
}

#[derive(Clone)]
enum PublicKey {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl PublicKey {
    fn from_jwk(key: &Map<String, Value>) -> Option<Self> {
        let text = |name: &str| key.get(name).and_then(Value::as_str);
        let bytes = |name: &str| text(name).and_then(|text| super::decode_base64(text.as_bytes()));
        // Ignore keys that are not for signatures (RFC 7517 §4.2, §4.4).
        if text("use").is_some_and(|used| used != "sig") {
            return None;
        }
        let for_algorithm = |name: &str| text("alg").is_none_or(|algorithm| algorithm == name);
        match (text("kty")?, text("crv")) {
            ("RSA", _) if for_algorithm("RS256") => {
                let (modulus, exponent) = (bytes("n")?, bytes("e")?);
                (modulus.len() >= MIN_RSA_MODULUS_BYTES).then_some(Self::Rsa { modulus, exponent })
            }
            ("EC", Some("P-256")) if for_algorithm("ES256") => {
                let (x, y) = (bytes("x")?, bytes("y")?);
                // Encode the point in uncompressed form (SEC 1 §2.3.3).
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

    fn verify(&self, signed: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Rsa { modulus, exponent } => RsaPublicKeyComponents { n: modulus, e: exponent }
                .verify(&signature::RSA_PKCS1_2048_8192_SHA256, signed, signature)
                .is_ok(),
            Self::P256(point) => {
                UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point).verify(signed, signature).is_ok()
            }
            Self::Ed25519(point) => {
                UnparsedPublicKey::new(&signature::ED25519, point).verify(signed, signature).is_ok()
            }
        }
    }
}

impl KeySet {
    /// Parses a JSON Web Key Set. Ignores keys for unsupported algorithms.
    pub(super) fn parse(keys: &str) -> Result<Self, KeySetError> {
        let problem = |problem: &str| KeySetError::Malformed { problem: problem.to_owned() };
        let set: Value = serde_json::from_str(keys).map_err(|error| problem(&error.to_string()))?;
        let listed = set.get("keys").and_then(Value::as_array).ok_or_else(|| problem("the list `keys` is missing"))?;
        let usable = listed.iter().filter_map(Value::as_object).filter_map(|key| {
            let id = key.get("kid").and_then(Value::as_str).map(str::to_owned);
            Some(VerificationKey { id, public: PublicKey::from_jwk(key)? })
        });
        let keys: Vec<VerificationKey> = usable.collect();
        if keys.is_empty() { Err(KeySetError::NoUsableKey) } else { Ok(Self(keys)) }
    }

    /// Verifies the signature of a token by one of these keys and returns its claims. The caller must check the claims.
    pub(super) fn verified_claims(&self, token: &UnverifiedToken) -> Option<Map<String, Value>> {
        // Reject tokens with critical extensions, which are not supported (RFC 7515 §4.1.11).
        if token.header.contains_key("crit") {
            return None;
        }
        let id = token.header.get("kid").map(Value::as_str);
        let algorithm = token.header.get("alg")?.as_str()?;
        let fits = |key: &&VerificationKey| match id {
            Some(id) => id.is_some() && key.id.as_deref() == id,
            None => self.0.len() == 1,
        };
        let key = self.0.iter().filter(fits).find(|key| key.public.algorithm() == algorithm)?;
        key.public
            .verify(token.signed_bytes, &super::decode_base64(token.signature)?)
            .then(|| decode_json_object(token.payload))
            .flatten()
    }
}

/// A parsed JSON Web Token whose signature is not verified.
pub(super) struct UnverifiedToken<'a> {
    pub(super) header: Map<String, Value>,
    signed_bytes: &'a [u8],
    payload: &'a [u8],
    signature: &'a [u8],
}

impl<'a> UnverifiedToken<'a> {
    /// Splits a token into header, payload and signature; `None` if the token is too long or malformed.
    pub(super) fn parse(token: &'a [u8]) -> Option<Self> {
        if token.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let mut parts = token.split(|byte| *byte == b'.');
        let (head, payload, signature) = (parts.next()?, parts.next()?, parts.next()?);
        let signed_bytes = &token[..head.len() + 1 + payload.len()];
        parts.next().is_none().then_some(Self { header: decode_json_object(head)?, signed_bytes, payload, signature })
    }

    /// Returns the claim `iss`. Before the verification, use it only to select the keys.
    pub(super) fn unverified_issuer(&self) -> Option<String> {
        Some(decode_json_object(self.payload)?.get("iss")?.as_str()?.to_owned())
    }
}

/// Returns the expiry time of claims in seconds since 1970, including the clock leeway. `None` if the claims are not
/// valid now or have no expiry.
pub(super) fn valid_until(claims: &Map<String, Value>, now_unix_s: f64) -> Option<u64> {
    let time = |name: &str| claims.get(name).map(|time| time.as_f64().unwrap_or(f64::NAN));
    // For a malformed time, `time` returns NaN. Comparisons with NaN are false, so the token is rejected.
    let end = time("exp").filter(|end| now_unix_s < end + CLOCK_LEEWAY_S)?;
    time("nbf").is_none_or(|start| start - CLOCK_LEEWAY_S <= now_unix_s).then_some((end + CLOCK_LEEWAY_S) as u64)
}

impl TokenIssuer {
    /// Creates an issuer from its JSON Web Key Set. Tokens must contain `name` as issuer and `audience` as audience;
    /// `claim` is the claim with the name of the principal.
    ///
    /// # Errors
    /// [`KeySetError`] if the key set is malformed or contains no usable key.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_flight::{Identities, KeySetError, SUBJECT_CLAIM, TokenIssuer};
    ///
    /// let keys = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
    /// let issuer = TokenIssuer::new(keys, "https://login.example.org", "godwit", SUBJECT_CLAIM)?;
    /// let identities = Identities::default().with_issuer(issuer);
    /// assert!(!identities.is_empty());
    ///
    /// // A shared secret is not a public key.
    /// let secret = r#"{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}"#;
    /// let rejected = TokenIssuer::new(secret, "https://login.example.org", "godwit", SUBJECT_CLAIM);
    /// assert_eq!(rejected.unwrap_err(), KeySetError::NoUsableKey);
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(keys: &str, name: &str, audience: &str, claim: &str) -> Result<Self, KeySetError> {
        let (name, audience, claim) = (name.to_owned(), audience.to_owned(), claim.to_owned());
        Ok(Self { keys: KeySet::parse(keys)?, name, audience, claim, visas: Arc::default() })
    }

    /// Returns the issuer with support for GA4GH passports that contain visas of these issuers.
    #[must_use]
    pub fn with_visas(self, visas: Vec<VisaIssuer>) -> Self {
        Self { visas: visas.into(), ..self }
    }

    /// Returns whether a token has the form of a JSON Web Token. Does not verify the signature.
    pub(super) fn is_jwt(token: &[u8]) -> bool {
        token.iter().filter(|byte| **byte == b'.').count() == 2
    }

    /// Verifies signature, issuer, audience and expiry of a token, and returns its content; `None` if the token is not
    /// valid.
    pub(super) fn verify(&self, token: &[u8]) -> Option<VerifiedToken> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        self.verify_at(token, now.as_secs_f64())
    }

    pub(super) fn verify_at(&self, token: &[u8], now_unix_s: f64) -> Option<VerifiedToken> {
        let token = UnverifiedToken::parse(token)?;
        let claims = self.keys.verified_claims(&token)?;
        let mut expires_unix_s = valid_until(&claims, now_unix_s)?;
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        let for_audience = match claims.get("aud") {
            Some(Value::String(audience)) => *audience == self.audience,
            Some(Value::Array(several)) => several.iter().any(|one| one.as_str() == Some(&self.audience)),
            // A passport may omit the audience (GA4GH AAI OIDC Profile 1.2, "Passport Payload").
            None => !self.visas.is_empty() && token.header.get("typ").and_then(Value::as_str) == Some(PASSPORT_TYPE),
            Some(_) => false,
        };
        let name = text(&self.claim).filter(|name| is_valid_name(name))?;
        if !for_audience || text("iss") != Some(&self.name) {
            return None;
        }
        let visas = valid_visas(&claims, &self.visas, now_unix_s);
        expires_unix_s = visas.iter().map(|visa| visa.expires_unix_s).fold(expires_unix_s, u64::min);
        Some(VerifiedToken { name: Arc::from(name), visas, expires_unix_s })
    }
}

/// Returns whether a name is valid as the name of a principal, as `godwit token` defines it.
fn is_valid_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(|character: char| character.is_whitespace() || character.is_control())
}

fn decode_json_object(part: &[u8]) -> Option<Map<String, Value>> {
    match serde_json::from_slice(&super::decode_base64(part)?).ok()? {
        Value::Object(object) => Some(object),
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests;
