//! JSON Web Tokens (RFC 7519) that an external issuer signed, and what they say about a principal.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use godwit_dataset::Visa;
use serde_json::Value;

use crate::key_set::{KeySet, KeySetError, unverified_header, valid_until};
use crate::passport::{PASSPORT_TYPE, VisaIssuer, valid_visas};

/// The JWT claim that by default contains the name of the principal.
pub const SUBJECT_CLAIM: &str = "sub";

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
        f.debug_struct("TokenIssuer").field("name", &self.name).field("keys", &self.keys.len()).finish_non_exhaustive()
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
    /// use godwit_auth::{Identities, KeySetError, SUBJECT_CLAIM, TokenIssuer};
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
        let header = unverified_header(token)?;
        let claims = self.keys.verified_claims(token, &header)?;
        let mut expires_unix_s = valid_until(&claims, now_unix_s)?;
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        let for_audience = match claims.get("aud") {
            Some(Value::String(audience)) => *audience == self.audience,
            Some(Value::Array(several)) => several.iter().any(|one| one.as_str() == Some(&self.audience)),
            // A passport may omit the audience (GA4GH AAI OIDC Profile 1.2, "Passport Payload").
            None => !self.visas.is_empty() && header.typ.as_deref() == Some(PASSPORT_TYPE),
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

#[cfg(test)]
pub(super) mod tests;
