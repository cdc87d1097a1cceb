//! Who may call, and who it is.
//!
//! A caller shows a token, as `authorization: Bearer TOKEN`, or as the password of `authorization: Basic`. Tokens are long and
//! drawn at random, so that their hash can be kept in a file as it is: guessing one is out of reach, however fast a hash is.

mod jwt;
mod passport;
mod session;

use std::collections::HashMap;
use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use tonic::Status;

use crate::current::Current;
use crate::dataset::Touches;
use crate::encoding::decode_base64;
use crate::transport::Token;
use crate::wire::Wire;

pub use jwt::{Issuer, KeysError, SUBJECT};
pub use passport::{Visa, VisaIssuer};
pub use session::Session;

/// Who calls, and over which connection.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    name: Option<Arc<str>>,
    wire: Wire,
    purpose: Option<Arc<str>>,
    touches: Touches,
    visas: Arc<[Visa]>,
    proof: Proof,
}

/// What somebody was let in for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Proof {
    /// Nobody was asked, or whoever was asked is told by another.
    #[default]
    None,
    /// A token of the list, by its hash.
    Token(blake3::Hash),
    /// A token that an issuer signed, until then, seconds since 1970.
    Signed(u64),
    /// What was given for one of them.
    Session,
}

/// Callers are the same by name and purpose, whatever connection they use.
impl PartialEq for Caller {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.purpose == other.purpose
    }
}

impl Eq for Caller {}

impl Caller {
    /// The name of an identity; empty where nobody was asked.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// Somebody of that name.
    pub fn named(name: &str) -> Self {
        Self { name: Some(name.into()), ..Self::default() }
    }

    /// Somebody who was granted one thing by who may do it, and may do nothing else.
    pub fn granted(name: &str, purpose: &str) -> Self {
        Self { name: Some(name.into()), purpose: Some(purpose.into()), ..Self::default() }
    }

    /// The one thing that this caller may do, where it is only one; whoever grants it knows what it means.
    pub fn purpose(&self) -> Option<&str> {
        self.purpose.as_deref()
    }

    /// What others grant this caller, as its passport says.
    pub fn visas(&self) -> &[Visa] {
        &self.visas
    }

    /// The same with visas.
    #[must_use]
    pub fn with_visas(self, visas: Vec<Visa>) -> Self {
        Self { visas: visas.into(), ..self }
    }

    /// What it was let in for.
    pub(crate) fn proof(&self) -> Proof {
        self.proof
    }

    /// The connection that the call came over.
    pub fn wire(&self) -> &Wire {
        &self.wire
    }

    /// What the call came to, which whoever applies rules adds to.
    pub fn touches(&self) -> &Touches {
        &self.touches
    }

    pub(crate) fn over(self, wire: Wire) -> Self {
        Self { wire, ..self }
    }
}

/// Names by the BLAKE3 of their tokens, and whose signature stands for a name.
#[derive(Clone, Default)]
pub struct Identities {
    names: HashMap<blake3::Hash, Arc<str>>,
    issuer: Option<Issuer>,
}

impl std::fmt::Debug for Identities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identities").field("names", &self.names.len()).field("issuer", &self.issuer).finish()
    }
}

/// A line that names no identity.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: a name and the BLAKE3 of its token, 64 hexadecimal digits, are expected")]
pub struct IdentityError {
    /// 1-based number of the line.
    pub line: usize,
}

impl Identities {
    /// Reads lines of a name and a hash. Blank lines and those that begin with `#` are passed over.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn parse(text: &str) -> Result<Self, IdentityError> {
        let mut names = HashMap::new();
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let fields: Vec<&str> = text.split_whitespace().collect();
            let [name, hash] = fields[..] else { return Err(IdentityError { line }) };
            let hash = blake3::Hash::from_hex(hash).map_err(|_| IdentityError { line })?;
            names.insert(hash, Arc::from(name));
        }
        Ok(Self { names, issuer: None })
    }

    /// With those who have a token that an issuer signed.
    #[must_use]
    pub fn with_issuer(self, issuer: Issuer) -> Self {
        Self { issuer: Some(issuer), ..self }
    }

    /// Who has a token.
    fn who_has(&self, token: &[u8]) -> Option<Caller> {
        match &self.issuer {
            Some(issuer) if Issuer::is_token(token) => {
                let jwt::Shown { name, visas, until_unix_s } = issuer.admit(token)?;
                let (name, visas, proof) = (Some(name), visas.into(), Proof::Signed(until_unix_s));
                Some(Caller { name, visas, proof, ..Caller::default() })
            }
            _ => {
                let hash = blake3::hash(token);
                let name = self.names.get(&hash)?.clone();
                Some(Caller { name: Some(name), proof: Proof::Token(hash), ..Caller::default() })
            }
        }
    }

    /// Whether what a session was given for still lets its caller in.
    fn vouches_for(&self, session: &Session) -> bool {
        match session.token_hash() {
            Some(hash) => self.names.get(&hash).is_some_and(|name| **name == *session.caller),
            None => self.issuer.is_some(),
        }
    }

    /// True where there is none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.issuer.is_none()
    }

    /// The line that names an identity and the hash of its token.
    pub fn line_of(name: &str, token: &Token) -> String {
        format!("{name} {}\n", blake3::hash(token.text().as_bytes()).to_hex())
    }
}

/// Lets callers in.
#[derive(Clone, Debug, Default)]
pub enum Gate {
    /// Nobody is asked.
    #[default]
    Open,
    /// Whoever has one token.
    Token(Token),
    /// Whoever has the token of an identity.
    Identities(Current<Identities>),
}

impl Gate {
    /// Who shows these headers.
    ///
    /// # Errors
    /// A status where nobody does who is let in.
    pub(crate) fn admit(&self, headers: &HeaderMap) -> Result<Caller, Box<Status>> {
        let refused = || Box::new(Status::unauthenticated("the token is missing or wrong"));
        let header = headers.get(AUTHORIZATION).map(http::HeaderValue::as_bytes);
        match self {
            Self::Open => Ok(Caller::default()),
            Self::Token(token) => {
                header.filter(|header| token.is_in(header)).map(|_| Caller::default()).ok_or_else(refused)
            }
            Self::Identities(identities) => {
                let (name, token) = header.and_then(shown).ok_or_else(refused)?;
                let found = identities.get().who_has(&token).ok_or_else(refused)?;
                // Who gives a name gives the right one.
                let fitting = name.is_none_or(|name| name == found.name().as_bytes());
                fitting.then_some(found).ok_or_else(refused)
            }
        }
    }

    /// Whose session it is, where what it was given for is still good.
    ///
    /// # Errors
    /// A status where it is not.
    pub(crate) fn resume(&self, session: &Session) -> Result<Caller, Box<Status>> {
        let vouches = matches!(self, Self::Identities(identities) if identities.get().vouches_for(session));
        vouches.then(|| session.of_whom()).ok_or_else(|| Box::new(Status::unauthenticated("the session has ended")))
    }
}

/// The token that headers show, where they show one.
pub(crate) fn shown_token(headers: &HeaderMap) -> Option<Vec<u8>> {
    headers.get(AUTHORIZATION).and_then(|header| shown(header.as_bytes())).map(|(_, token)| token)
}

/// The same, where it is shown by itself, and not beside a name.
pub(crate) fn shown_bearer(headers: &HeaderMap) -> Option<Vec<u8>> {
    let (name, token) = headers.get(AUTHORIZATION).and_then(|header| shown(header.as_bytes()))?;
    name.is_none().then_some(token)
}

/// The name, where one is given, and the token that a header shows.
fn shown(header: &[u8]) -> Option<(Option<Vec<u8>>, Vec<u8>)> {
    let (scheme, rest) = header.split_at_checked(header.iter().position(|byte| *byte == b' ')?)?;
    let rest = rest.trim_ascii();
    if scheme.eq_ignore_ascii_case(b"bearer") {
        return Some((None, rest.to_vec()));
    }
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return None;
    }
    let decoded = decode_base64(rest)?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    Some((Some(decoded[..colon].to_vec()), decoded[colon + 1..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, value.parse().expect("a header"))])
    }

    #[test]
    fn an_identity_is_let_in_by_its_token_and_nobody_else() {
        let token = Token::new("t0ken-of-alice").unwrap();
        let text = format!("# people\n\n{}", Identities::line_of("alice", &token));
        let gate = Gate::Identities(Current::new(Identities::parse(&text).unwrap()));
        let admitted = |value: &str| gate.admit(&headers(value)).map(|caller| caller.name().to_owned()).ok();
        assert_eq!(admitted("Bearer t0ken-of-alice").as_deref(), Some("alice"));
        assert_eq!(admitted("bearer t0ken-of-alice").as_deref(), Some("alice"));
        // alice:t0ken-of-alice, bob:t0ken-of-alice
        assert_eq!(admitted("Basic YWxpY2U6dDBrZW4tb2YtYWxpY2U=").as_deref(), Some("alice"));
        assert_eq!(admitted("Basic Ym9iOnQwa2VuLW9mLWFsaWNl"), None);
        for wrong in ["Bearer ", "Bearer t0ken", "Basic !!", "t0ken-of-alice", "Digest x", ""] {
            assert_eq!(admitted(wrong), None, "{wrong}");
        }
        assert!(gate.admit(&HeaderMap::new()).is_err());
    }

    #[test]
    fn identities_that_are_others_by_now_are_let_in_and_no_more() {
        let [alice, bob] = ["t0ken-of-alice", "t0ken-of-bob"].map(|text| Token::new(text).unwrap());
        let known = |name: &str, token| Identities::parse(&Identities::line_of(name, token)).unwrap();
        let current = Current::new(known("alice", &alice));
        let gate = Gate::Identities(current.clone());
        assert!(gate.admit(&headers("Bearer t0ken-of-alice")).is_ok());
        current.set(known("bob", &bob));
        assert!(gate.admit(&headers("Bearer t0ken-of-alice")).is_err());
        assert_eq!(gate.admit(&headers("Bearer t0ken-of-bob")).unwrap().name(), "bob");
        current.set(Identities::default());
        assert!(gate.admit(&headers("Bearer t0ken-of-bob")).is_err(), "nobody is let in where nobody is known");
    }

    #[test]
    fn lines_that_name_nobody_are_told() {
        assert_eq!(Identities::parse("alice\n").unwrap_err(), IdentityError { line: 1 });
        assert_eq!(Identities::parse("# x\nalice zz\n").unwrap_err(), IdentityError { line: 2 });
    }
}
