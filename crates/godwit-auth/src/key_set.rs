//! The signatures of JSON Web Tokens (RFC 7519), verified by the public keys of the issuer (RFC 7517).
//!
//! RS256, ES256 and EdDSA are supported (RFC 7518 §3.1, RFC 8037). The type of the key determines the algorithm. A
//! token that names another algorithm, or that is not signed, is rejected.

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, Header, Validation};
use serde::Deserialize as _;
use serde_json::{Map, Value};

use crate::ring_provider;

/// Accepted difference between the clocks of issuer and server, seconds.
const CLOCK_LEEWAY_S: f64 = 60.0;
/// Maximum length of a token, bytes. Tokens with many claims have a few thousand bytes.
pub(super) const MAX_TOKEN_BYTES: usize = 16 << 10;
/// Minimum length of the modulus of an RSA key, bytes (RFC 7518 §3.3).
const MIN_RSA_MODULUS_BYTES: usize = 256;
/// Length of an uncompressed point of the curve P-256, bytes (SEC 1 §2.3.3).
const P256_POINT_BYTES: usize = 65;
/// Length of an Ed25519 public key, bytes (RFC 8032 §5.1.5).
const ED25519_POINT_BYTES: usize = 32;

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

/// The public keys of an issuer for verifying signatures.
#[derive(Clone)]
pub(super) struct KeySet(Vec<VerificationKey>);

#[derive(Clone)]
struct VerificationKey {
    id: Option<String>,
    /// The only algorithm for which the key is used.
    algorithm: Algorithm,
    key: DecodingKey,
}

impl VerificationKey {
    /// Returns a key of a JSON Web Key Set; `None` if it is not a key for signatures by a supported algorithm.
    fn from_jwk(jwk: Jwk) -> Option<Self> {
        // Ignore keys that are not for signatures (RFC 7517 §4.2, §4.4).
        if !matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature)) {
            return None;
        }
        let (algorithm, name) = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => (Algorithm::RS256, KeyAlgorithm::RS256),
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
                (Algorithm::ES256, KeyAlgorithm::ES256)
            }
            AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
                (Algorithm::EdDSA, KeyAlgorithm::EdDSA)
            }
            _ => return None,
        };
        let key = DecodingKey::from_jwk(&jwk).ok()?;
        let is_usable = jwk.common.key_algorithm.is_none_or(|named| named == name)
            && match (algorithm, key.kind()) {
                (_, DecodingKeyKind::RsaModulusExponent { n, .. }) => n.len() >= MIN_RSA_MODULUS_BYTES,
                (Algorithm::ES256, DecodingKeyKind::SecretOrDer(point)) => point.len() == P256_POINT_BYTES,
                (_, DecodingKeyKind::SecretOrDer(point)) => point.len() == ED25519_POINT_BYTES,
            };
        is_usable.then_some(Self { id: jwk.common.key_id, algorithm, key })
    }
}

impl KeySet {
    /// Parses a JSON Web Key Set. Ignores keys for unsupported algorithms.
    pub(super) fn parse(keys: &str) -> Result<Self, KeySetError> {
        let problem = |problem: &str| KeySetError::Malformed { problem: problem.to_owned() };
        let set: Value = serde_json::from_str(keys).map_err(|error| problem(&error.to_string()))?;
        let listed = set.get("keys").and_then(Value::as_array).ok_or_else(|| problem("the list `keys` is missing"))?;
        let usable = listed.iter().filter_map(|key| VerificationKey::from_jwk(Jwk::deserialize(key).ok()?));
        let keys: Vec<VerificationKey> = usable.collect();
        if keys.is_empty() { Err(KeySetError::NoUsableKey) } else { Ok(Self(keys)) }
    }

    /// Returns the number of keys.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Verifies the signature of a token by one of these keys and returns its claims. The caller must check the claims.
    pub(super) fn verified_claims(&self, token: &[u8], header: &Header) -> Option<Map<String, Value>> {
        // Reject tokens with critical extensions, which are not supported (RFC 7515 §4.1.11).
        if header.crit.is_some() {
            return None;
        }
        let fits = |key: &&VerificationKey| match &header.kid {
            Some(id) => key.id.as_ref() == Some(id),
            None => self.0.len() == 1,
        };
        let key = self.0.iter().filter(fits).find(|key| key.algorithm == header.alg)?;
        ring_provider::install();
        // The claims are checked elsewhere: a passport needs no audience, and tests set the clock.
        let mut signature_only = Validation::new(key.algorithm);
        signature_only.required_spec_claims.clear();
        (signature_only.validate_exp, signature_only.validate_aud) = (false, false);
        Some(jsonwebtoken::decode(token, &key.key, &signature_only).ok()?.claims)
    }
}

/// Returns the header of a token, whose signature is not verified; `None` if the token is too long or malformed.
pub(super) fn unverified_header(token: &[u8]) -> Option<Header> {
    if token.len() > MAX_TOKEN_BYTES { None } else { jsonwebtoken::decode_header(token).ok() }
}

/// Returns the expiry time of claims in seconds since 1970, including the clock leeway. `None` if the claims are not
/// valid now or have no expiry.
pub(super) fn valid_until(claims: &Map<String, Value>, now_unix_s: f64) -> Option<u64> {
    let time = |name: &str| claims.get(name).map(|time| time.as_f64().unwrap_or(f64::NAN));
    // For a malformed time, `time` returns NaN. Comparisons with NaN are false, so the token is rejected.
    let end = time("exp").filter(|end| now_unix_s < end + CLOCK_LEEWAY_S)?;
    time("nbf").is_none_or(|start| start - CLOCK_LEEWAY_S <= now_unix_s).then_some((end + CLOCK_LEEWAY_S) as u64)
}
