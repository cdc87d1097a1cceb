//! Passports of the GA4GH: tokens of an issuer that carry visas, in which others say what somebody is granted (GA4GH Passport 1.2, GA4GH
//! AAI OIDC Profile 1.2).
//!
//! A visa is a token by itself, signed by who issues it: it counts where we know that issuer and one of its keys signed it, whoever
//! put it into the passport. One that is not good is passed over, and the others count as if it were not there. What a
//! visa is worth is decided by rules, which are not known here.

use std::collections::BTreeSet;

use prost::Message;
use serde_json::{Map, Value};

use super::jwt::{KeySet, KeysError, Unchecked, end_of};

/// What the header of a passport says that it is.
pub(super) const PASSPORT_TYPE: &str = "vnd.ga4gh.passport+jwt";
/// The claim of a token that has its visas.
const PASSPORT_CLAIM: &str = "ga4gh_passport_v1";
/// The claim of a visa that says what it says.
const VISA_CLAIM: &str = "ga4gh_visa_v1";
/// The kind of visa that says who else somebody is.
const LINKED: &str = "LinkedIdentities";
/// Visas of a passport that are looked at: each costs a signature.
const MOST_VISAS: usize = 64;
/// How long a visa is good that its issuer wants to be asked about, which nobody does here, seconds.
const UNASKED_S: f64 = 3600.0;

/// What somebody is granted.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Visa {
    /// Who signed it, its claim `iss`.
    #[prost(string, tag = "1")]
    pub issuer: String,
    /// Its type, as `ControlledAccessGrants`.
    #[prost(string, tag = "2")]
    pub kind: String,
    /// What it is about, as the address of a dataset.
    #[prost(string, tag = "3")]
    pub value: String,
    /// The organization that says so.
    #[prost(string, tag = "4")]
    pub source: String,
    /// By whose authority within that, as `dac`.
    #[prost(string, optional, tag = "5")]
    pub by: Option<String>,
    /// Until when, seconds since 1970.
    #[prost(uint64, tag = "6")]
    pub until_unix_s: u64,
}

/// Whose visas are taken.
#[derive(Clone)]
pub struct VisaIssuer {
    name: String,
    keys_at: Option<String>,
    keys: KeySet,
}

impl std::fmt::Debug for VisaIssuer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VisaIssuer").field("name", &self.name).finish_non_exhaustive()
    }
}

impl VisaIssuer {
    /// Whoever calls itself so, with its keys, a JSON Web Key Set. `keys_at` is where its visas say that they are (`jku`), where one is
    /// expected: visas that name another place are not taken.
    ///
    /// # Errors
    /// [`KeysError`].
    pub fn new(name: &str, keys_at: Option<&str>, keys: &str) -> Result<Self, KeysError> {
        Ok(Self { name: name.to_owned(), keys_at: keys_at.map(str::to_owned), keys: KeySet::parse(keys)? })
    }
}

/// A visa that is good, but for its conditions.
struct Good {
    visa: Visa,
    /// Whom it is about, and to whom that name belongs.
    identity: (String, String),
    conditions: Vec<Value>,
}

/// The visas of a token that are good now.
pub(super) fn visas_in(claims: &Map<String, Value>, issuers: &[VisaIssuer], now_unix_s: f64) -> Vec<Visa> {
    let listed = claims.get(PASSPORT_CLAIM).and_then(Value::as_array);
    let listed = listed.into_iter().flatten().filter_map(Value::as_str).take(MOST_VISAS);
    let good: Vec<Good> = listed.filter_map(|visa| good(visa, issuers, now_unix_s)).collect();
    let is_met = |one: &&Good| one.conditions.is_empty() || are_met(one, &good);
    good.iter().filter(is_met).map(|one| one.visa.clone()).collect()
}

/// A visa that one of the issuers signed, and that is good now.
fn good(visa: &str, issuers: &[VisaIssuer], now_unix_s: f64) -> Option<Good> {
    let token = Unchecked::parse(visa.as_bytes())?;
    let said = token.said_issuer()?;
    let issuer = issuers.iter().find(|issuer| issuer.name == said)?;
    // "Conformance for Visa Issuers": these two ways of signing.
    if !matches!(token.header.get("alg").and_then(Value::as_str), Some("RS256" | "ES256")) {
        return None;
    }
    let claims = issuer.keys.claims(&token)?;
    let until_unix_s = end_of(&claims, now_unix_s)?;
    let text = |name: &str| claims.get(name).and_then(Value::as_str).map(str::to_owned);
    let since = claims.get("iat").and_then(Value::as_f64)?;
    let scope = claims.get("scope").and_then(Value::as_str).unwrap_or_default();
    let is_to_be_asked_about = scope.split(' ').any(|word| word == "openid");
    let fits = match token.header.get("jku") {
        // A document: where its keys are has to be where we know them to be.
        Some(at) => {
            at.as_str().is_some_and(|at| issuer.keys_at.as_deref().is_none_or(|known| known == at))
                && !is_to_be_asked_about
        }
        // A token of access, good for an hour without asking its issuer.
        None => is_to_be_asked_about && now_unix_s < since + UNASKED_S && !claims.contains_key("aud"),
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
    let visa =
        Visa { issuer: said, kind: field("type")?, value: field("value")?, source: field("source")?, by, until_unix_s };
    Some(Good { identity: (text("sub")?, visa.issuer.clone()), visa, conditions })
}

/// Whether the conditions of a visa are met by others: all clauses of one list, each by one visa without conditions that is about the same person.
fn are_met(one: &Good, all: &[Good]) -> bool {
    let identities = linked(&one.identity, all);
    let unconditional: Vec<&Visa> = all
        .iter()
        .filter(|other| other.conditions.is_empty() && identities.contains(&other.identity))
        .map(|other| &other.visa)
        .collect();
    one.conditions.iter().any(|clauses| {
        let clauses = clauses.as_array().filter(|clauses| !clauses.is_empty());
        clauses.is_some_and(|clauses| clauses.iter().all(|clause| unconditional.iter().any(|visa| fits(clause, visa))))
    })
}

/// Whether a visa fits a clause: a type, and at least one other field.
fn fits(clause: &Value, visa: &Visa) -> bool {
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
                (Some(field), Some(("pattern", pattern))) => fits_pattern(pattern, field),
                (Some(field), Some(("split_pattern", pattern))) => {
                    field.split(';').any(|part| fits_pattern(pattern, part))
                }
                _ => false,
            }
        })
}

/// Whether a text is one that a pattern stands for: `?` is any character, `*` any text ("Pattern Matching").
fn fits_pattern(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    // Where the last asterisk stands, and from where on the text is tried behind it: no earlier one is ever needed again.
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

/// All names of the person that one name is of, as visas link them.
fn linked(identity: &(String, String), all: &[Good]) -> BTreeSet<(String, String)> {
    let links: Vec<BTreeSet<(String, String)>> = all
        .iter()
        .filter(|one| one.visa.kind == LINKED && one.conditions.is_empty())
        .map(|one| identities_in(&one.visa.value).chain([one.identity.clone()]).collect())
        .collect();
    let mut known = BTreeSet::from([identity.clone()]);
    // Each round that finds anything uses up a link.
    for _ in &links {
        for link in links.iter().filter(|link| !link.is_disjoint(&known)).collect::<Vec<_>>() {
            known.extend(link.iter().cloned());
        }
    }
    known
}

/// The names of `sub,iss;sub,iss`, each of which is encoded as in an address.
fn identities_in(value: &str) -> impl Iterator<Item = (String, String)> {
    value.split(';').filter_map(|one| {
        let (subject, issuer) = one.split_once(',')?;
        Some((decoded(subject)?, decoded(issuer)?))
    })
}

/// RFC 3986 §2.1.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = match first {
            b'%' => {
                let (digits, behind) = behind.split_first_chunk::<2>()?;
                let digits = std::str::from_utf8(digits).ok().filter(|_| digits.iter().all(u8::is_ascii_hexdigit))?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                behind
            }
            byte => {
                bytes.push(*byte);
                behind
            }
        };
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests;
