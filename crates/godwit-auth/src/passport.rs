//! GA4GH passports: JSON Web Tokens that contain visas, by which other issuers grant access (GA4GH Passport 1.2, GA4GH
//! AAI OIDC Profile 1.2).
//!
//! A visa is a JSON Web Token with its own issuer. A visa is valid if this issuer is configured and signed it; the
//! issuer of the passport does not matter. Invalid visas in a passport are ignored. The access rules, which are not
//! part of this module, define what a visa grants.

use std::collections::BTreeSet;

use godwit_dataset::{Visa, percent_decode};
use jsonwebtoken::Algorithm;
use serde_json::{Map, Value};

use crate::key_set::{KeySet, KeySetError, unverified_header, valid_until};

/// The value of the JWT header field `typ` in a passport.
pub(super) const PASSPORT_TYPE: &str = "vnd.ga4gh.passport+jwt";
/// The claim of a passport that contains the list of visas.
const PASSPORT_CLAIM: &str = "ga4gh_passport_v1";
/// The claim of a visa that contains type, value and conditions.
const VISA_CLAIM: &str = "ga4gh_visa_v1";
/// The type of visa that states that several identities belong to one person.
const LINKED_IDENTITIES: &str = "LinkedIdentities";
/// Maximum number of visas in a passport that are verified, because verifying a signature is expensive.
const MAX_VISAS: usize = 64;
/// Accepted age of an access token visa, seconds. Issuers expect servers to poll whether such a visa is still valid;
/// polling is not implemented.
const ACCESS_TOKEN_VISA_LIFETIME_S: f64 = 3600.0;

/// An issuer whose visas are accepted.
#[derive(Clone)]
pub struct VisaIssuer {
    name: String,
    jwks_url: Option<String>,
    keys: KeySet,
}

impl std::fmt::Debug for VisaIssuer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VisaIssuer").field("name", &self.name).finish_non_exhaustive()
    }
}

impl VisaIssuer {
    /// Creates an issuer from its name and its JSON Web Key Set. If `jwks_url` is given, visas that name another
    /// location of the key set (header `jku`) are rejected.
    ///
    /// # Errors
    /// [`KeySetError`] if the key set is malformed or contains no usable key.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_auth::{KeySetError, SUBJECT_CLAIM, TokenIssuer, VisaIssuer};
    ///
    /// let keys = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
    /// let jwks_url = "https://visas.example.org/jwks";
    /// let visas = VisaIssuer::new("https://visas.example.org", Some(jwks_url), keys)?;
    /// let broker = TokenIssuer::new(keys, "https://broker.example.org", "godwit", SUBJECT_CLAIM)?;
    /// let broker = broker.with_visas(vec![visas]);
    /// assert!(format!("{broker:?}").contains("https://broker.example.org"));
    ///
    /// let malformed = VisaIssuer::new("https://visas.example.org", None, "[]");
    /// assert!(matches!(malformed, Err(KeySetError::Malformed { .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(name: &str, jwks_url: Option<&str>, keys: &str) -> Result<Self, KeySetError> {
        Ok(Self { name: name.to_owned(), jwks_url: jwks_url.map(str::to_owned), keys: KeySet::parse(keys)? })
    }
}

/// A visa with a valid signature and time, whose conditions are not checked yet.
struct ValidVisa {
    visa: Visa,
    /// The holder of the visa: claims `sub` and `iss`.
    identity: (String, String),
    conditions: Vec<Value>,
}

/// Returns those visas in the claims of a passport that are valid now.
pub(super) fn valid_visas(claims: &Map<String, Value>, issuers: &[VisaIssuer], now_unix_s: f64) -> Vec<Visa> {
    let listed = claims.get(PASSPORT_CLAIM).and_then(Value::as_array);
    let listed = listed.into_iter().flatten().filter_map(Value::as_str).take(MAX_VISAS);
    let good: Vec<ValidVisa> = listed.filter_map(|visa| validate_visa(visa, issuers, now_unix_s)).collect();
    let is_met = |one: &&ValidVisa| one.conditions.is_empty() || are_conditions_met(one, &good);
    good.iter().filter(is_met).map(|one| one.visa.clone()).collect()
}

/// Verifies that one of the issuers signed a visa and that the visa is valid now. Does not check its conditions.
fn validate_visa(visa: &str, issuers: &[VisaIssuer], now_unix_s: f64) -> Option<ValidVisa> {
    let header = unverified_header(visa.as_bytes())?;
    // Before the signature is verified, the claim `iss` only selects the keys.
    let unverified: Map<String, Value> = jsonwebtoken::dangerous::insecure_decode_claims(visa).ok()?;
    let issuer_name = unverified.get("iss")?.as_str()?.to_owned();
    let issuer = issuers.iter().find(|issuer| issuer.name == issuer_name)?;
    // The section "Conformance for Visa Issuers" of the profile allows only RS256 and ES256.
    if !matches!(header.alg, Algorithm::RS256 | Algorithm::ES256) {
        return None;
    }
    let claims = issuer.keys.verified_claims(visa.as_bytes(), &header)?;
    let expires_unix_s = valid_until(&claims, now_unix_s)?;
    let text = |name: &str| claims.get(name).and_then(Value::as_str).map(str::to_owned);
    let since = claims.get("iat").and_then(Value::as_f64)?;
    let scope = claims.get("scope").and_then(Value::as_str).unwrap_or_default();
    let is_to_be_asked_about = scope.split(' ').any(|word| word == "openid");
    let fits = match &header.jku {
        // A visa document token: if a key location is configured, `jku` must be this location.
        Some(at) => issuer.jwks_url.as_ref().is_none_or(|known| known == at) && !is_to_be_asked_about,
        // A visa access token: without polling its issuer, accept it for one hour after it was issued.
        None => {
            is_to_be_asked_about && now_unix_s < since + ACCESS_TOKEN_VISA_LIFETIME_S && !claims.contains_key("aud")
        }
    };
    let object = claims.get(VISA_CLAIM).and_then(Value::as_object).filter(|_| fits)?;
    let field =
        |name: &str| object.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
    object.get("asserted").and_then(Value::as_f64)?;
    let by = match object.get("by") {
        None | Some(Value::Null) => None,
        Some(_) => Some(field("by")?),
    };
    let conditions = match object.get("conditions") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(conditions)) => conditions.clone(),
        Some(_) => return None,
    };
    let visa = Visa {
        issuer: issuer_name,
        kind: field("type")?,
        value: field("value")?,
        source: field("source")?,
        by,
        expires_unix_s,
    };
    Some(ValidVisa { identity: (text("sub")?, visa.issuer.clone()), visa, conditions })
}

/// Returns whether other visas meet the conditions of a visa. Each condition is a list of clauses. A condition is met
/// if each clause matches an unconditional visa of the same person; one met condition suffices.
fn are_conditions_met(one: &ValidVisa, all: &[ValidVisa]) -> bool {
    let identities = linked_identities(&one.identity, all);
    let unconditional: Vec<&Visa> = all
        .iter()
        .filter(|other| other.conditions.is_empty() && identities.contains(&other.identity))
        .map(|other| &other.visa)
        .collect();
    one.conditions.iter().any(|clauses| {
        let clauses = clauses.as_array().filter(|clauses| !clauses.is_empty());
        clauses.is_some_and(|clauses| {
            clauses.iter().all(|clause| unconditional.iter().any(|visa| matches_clause(clause, visa)))
        })
    })
}

/// Returns whether a visa matches a clause, which consists of a type and at least one other field.
fn matches_clause(clause: &Value, visa: &Visa) -> bool {
    let Some(clause) = clause.as_object().filter(|clause| clause.len() > 1) else { return false };
    clause.get("type").and_then(Value::as_str) == Some(&visa.kind)
        && clause.iter().filter(|(name, _)| *name != "type").all(|(name, wanted)| {
            let field = match name.as_str() {
                "value" => Some(visa.value.as_str()),
                "source" => Some(visa.source.as_str()),
                "by" => visa.by.as_deref(),
                _ => None,
            };
            let wanted = wanted.as_str().and_then(|wanted| wanted.split_once(':'));
            match (field, wanted) {
                (Some(field), Some(("const", wanted))) => field == wanted,
                (Some(field), Some(("pattern", pattern))) => matches_pattern(pattern, field),
                (Some(field), Some(("split_pattern", pattern))) => {
                    field.split(';').any(|part| matches_pattern(pattern, part))
                }
                _ => false,
            }
        })
}

/// Returns whether a text matches a pattern in which `?` stands for one character and `*` for any text (GA4GH Passport,
/// "Pattern Matching").
fn matches_pattern(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    // `last`: position of the last asterisk, and the start of the text that it matches. Earlier asterisks need not be
    // revised.
    let (mut at, mut read, mut last) = (0, 0, None);
    while read < text.len() {
        match pattern.get(at) {
            Some('*') => {
                last = Some((at, read));
                at += 1;
            }
            Some(&wanted) if wanted == '?' || wanted == text[read] => (at, read) = (at + 1, read + 1),
            _ => match last {
                Some((star, from)) => {
                    last = Some((star, from + 1));
                    (at, read) = (star + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|&left| left == '*')
}

/// Returns all identities of the person with this identity, according to visas of type `LinkedIdentities`.
fn linked_identities(identity: &(String, String), all: &[ValidVisa]) -> BTreeSet<(String, String)> {
    let links: Vec<BTreeSet<(String, String)>> = all
        .iter()
        .filter(|one| one.visa.kind == LINKED_IDENTITIES && one.conditions.is_empty())
        .map(|one| parse_linked_identities(&one.visa.value).chain([one.identity.clone()]).collect())
        .collect();
    let mut known = BTreeSet::from([identity.clone()]);
    // Each round that finds a new identity uses another link, so as many rounds as links suffice.
    for _ in &links {
        for link in links.iter().filter(|link| !link.is_disjoint(&known)).collect::<Vec<_>>() {
            known.extend(link.iter().cloned());
        }
    }
    known
}

/// Parses a list of identities, `sub,iss;sub,iss`, with percent-encoded names.
fn parse_linked_identities(value: &str) -> impl Iterator<Item = (String, String)> {
    value.split(';').filter_map(|one| {
        let (subject, issuer) = one.split_once(',')?;
        Some((percent_decode(subject)?, percent_decode(issuer)?))
    })
}

#[cfg(test)]
mod tests;
