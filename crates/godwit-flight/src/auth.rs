//! Authentication: which principal a call is made by.
//!
//! A client sends a token as `authorization: Bearer TOKEN`, or as the password of `authorization: Basic`. Tokens are long
//! and random, so that a file can hold their plain hash: they cannot be guessed, however fast the hash is.

mod jwt;
mod passport;
mod session;

use std::collections::HashMap;
use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use tonic::Status;

use crate::dataset::DatasetAccessList;
use crate::encoding::decode_base64;
use crate::reload_handle::ReloadHandle;
use crate::socket_handle::SocketHandle;
use crate::transport::Token;

pub use jwt::{KeySetError, SUBJECT_CLAIM, TokenIssuer};
pub use passport::{Visa, VisaIssuer};
pub use session::Session;

/// The principal of a call, and the connection of the call.
#[derive(Clone, Debug, Default)]
pub struct Principal {
    name: Option<Arc<str>>,
    socket_handle: SocketHandle,
    scope: Option<Arc<str>>,
    accesses: DatasetAccessList,
    visas: Arc<[Visa]>,
    credential: Credential,
}

/// The credential that a principal was authenticated by.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Credential {
    /// Authentication is disabled, or another program identified the principal.
    #[default]
    None,
    /// A token of the list, by its hash.
    Token(blake3::Hash),
    /// A token signed by an issuer; it expires at this time, seconds since 1970.
    Jwt(u64),
    /// A session that was issued for one of them.
    Session,
}

/// Principals are equal by name and scope, whatever connection they use.
impl PartialEq for Principal {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.scope == other.scope
    }
}

impl Eq for Principal {}

impl Principal {
    /// Returns the name of the identity; empty where authentication is disabled.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// Creates a principal of this name.
    pub fn named(name: &str) -> Self {
        Self { name: Some(name.into()), ..Self::default() }
    }

    /// Creates a principal that may do one thing only, by a token that another principal delegated.
    pub fn with_scope(name: &str, purpose: &str) -> Self {
        Self { name: Some(name.into()), scope: Some(purpose.into()), ..Self::default() }
    }

    /// Returns the one thing that this principal may do, where it is limited to one, as its issuer defined it.
    pub fn scope(&self) -> Option<&str> {
        self.scope.as_deref()
    }

    /// Returns the visas of its passport.
    pub fn visas(&self) -> &[Visa] {
        &self.visas
    }

    /// Returns the principal with these visas.
    #[must_use]
    pub fn with_visas(self, visas: Vec<Visa>) -> Self {
        Self { visas: visas.into(), ..self }
    }

    /// Returns the credential that it was authenticated by.
    pub(crate) fn credential(&self) -> Credential {
        self.credential
    }

    /// Returns the connection of the call.
    pub fn socket_handle(&self) -> &SocketHandle {
        &self.socket_handle
    }

    /// Returns the datasets that the call opened; the authorizer adds to this list.
    pub fn accesses(&self) -> &DatasetAccessList {
        &self.accesses
    }

    pub(crate) fn with_socket_handle(self, socket_handle: SocketHandle) -> Self {
        Self { socket_handle, ..self }
    }
}

/// The names of principals by the BLAKE3 of their tokens, and the issuer whose signed tokens are accepted.
#[derive(Clone, Default)]
pub struct Identities {
    names_by_token_hash: HashMap<blake3::Hash, Arc<str>>,
    issuer: Option<TokenIssuer>,
}

impl std::fmt::Debug for Identities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identities")
            .field("names", &self.names_by_token_hash.len())
            .field("issuer", &self.issuer)
            .finish()
    }
}

/// A line that does not name an identity.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: a name and the BLAKE3 of its token, 64 hexadecimal digits, are expected")]
pub struct IdentityError {
    /// 1-based number of the line.
    pub line: usize,
}

impl Identities {
    /// Parses lines of a name and a hash. Blank lines and those that begin with `#` are skipped.
    ///
    /// # Errors
    /// [`IdentityError`] where a line is malformed.
    pub fn parse(text: &str) -> Result<Self, IdentityError> {
        let mut names_by_token_hash = HashMap::new();
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let fields: Vec<&str> = text.split_whitespace().collect();
            let [name, hash] = fields[..] else { return Err(IdentityError { line }) };
            let hash = blake3::Hash::from_hex(hash).map_err(|_| IdentityError { line })?;
            names_by_token_hash.insert(hash, Arc::from(name));
        }
        Ok(Self { names_by_token_hash, issuer: None })
    }

    /// Also accepts tokens that this issuer signed.
    #[must_use]
    pub fn with_issuer(self, issuer: TokenIssuer) -> Self {
        Self { issuer: Some(issuer), ..self }
    }

    /// Returns the principal of a token.
    fn authenticate(&self, token: &[u8]) -> Option<Principal> {
        match &self.issuer {
            Some(issuer) if TokenIssuer::is_jwt(token) => {
                let jwt::VerifiedToken { name, visas, expires_unix_s } = issuer.verify(token)?;
                let (name, visas, credential) = (Some(name), visas.into(), Credential::Jwt(expires_unix_s));
                Some(Principal { name, visas, credential, ..Principal::default() })
            }
            _ => {
                let hash = blake3::hash(token);
                let name = self.names_by_token_hash.get(&hash)?.clone();
                Some(Principal { name: Some(name), credential: Credential::Token(hash), ..Principal::default() })
            }
        }
    }

    /// Reports whether the credential of a session is still valid.
    fn accepts_session(&self, session: &Session) -> bool {
        match session.token_hash() {
            Some(hash) => self.names_by_token_hash.get(&hash).is_some_and(|name| **name == *session.principal),
            None => self.issuer.is_some(),
        }
    }

    /// Reports whether there are none.
    pub fn is_empty(&self) -> bool {
        self.names_by_token_hash.is_empty() && self.issuer.is_none()
    }

    /// Returns the line that names an identity and the hash of its token.
    pub fn format_line(name: &str, token: &Token) -> String {
        format!("{name} {}\n", blake3::hash(token.as_str().as_bytes()).to_hex())
    }
}

/// Authenticates callers.
#[derive(Clone, Debug, Default)]
pub enum Authenticator {
    /// Every caller is accepted, without a name.
    #[default]
    Disabled,
    /// Callers with this one token are accepted.
    Token(Token),
    /// Callers with the token of an identity are accepted.
    Identities(ReloadHandle<Identities>),
}

impl Authenticator {
    /// Authenticates a call by its headers.
    ///
    /// # Errors
    /// A status where the token is missing or wrong.
    pub(crate) fn authenticate(&self, headers: &HeaderMap) -> Result<Principal, Box<Status>> {
        let refused = || Box::new(Status::unauthenticated("the token is missing or wrong"));
        let header = headers.get(AUTHORIZATION).map(http::HeaderValue::as_bytes);
        match self {
            Self::Disabled => Ok(Principal::default()),
            Self::Token(token) => {
                header.filter(|header| token.matches_header(header)).map(|_| Principal::default()).ok_or_else(refused)
            }
            Self::Identities(identities) => {
                let (name, token) = header.and_then(parse_authorization).ok_or_else(refused)?;
                let found = identities.get().authenticate(&token).ok_or_else(refused)?;
                // A user name beside the token has to match it.
                let fitting = name.is_none_or(|name| name == found.name().as_bytes());
                fitting.then_some(found).ok_or_else(refused)
            }
        }
    }

    /// Authenticates a session whose credential is still valid.
    ///
    /// # Errors
    /// A status where it is not.
    pub(crate) fn authenticate_session(&self, session: &Session) -> Result<Principal, Box<Status>> {
        let vouches = matches!(self, Self::Identities(identities) if identities.get().accepts_session(session));
        vouches
            .then(|| session.to_principal())
            .ok_or_else(|| Box::new(Status::unauthenticated("the session has ended")))
    }
}

/// Returns the token in the headers, where there is one.
pub(crate) fn request_token(headers: &HeaderMap) -> Option<Vec<u8>> {
    headers.get(AUTHORIZATION).and_then(|header| parse_authorization(header.as_bytes())).map(|(_, token)| token)
}

/// Returns the token where it is a bearer token, without a user name.
pub(crate) fn bearer_token(headers: &HeaderMap) -> Option<Vec<u8>> {
    let (name, token) = headers.get(AUTHORIZATION).and_then(|header| parse_authorization(header.as_bytes()))?;
    name.is_none().then_some(token)
}

/// Parses a header into the user name, where there is one, and the token.
fn parse_authorization(header: &[u8]) -> Option<(Option<Vec<u8>>, Vec<u8>)> {
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
    fn only_the_token_of_an_identity_authenticates_it() {
        let token = Token::new("t0ken-of-alice").unwrap();
        let text = format!("# people\n\n{}", Identities::format_line("alice", &token));
        let authenticator = Authenticator::Identities(ReloadHandle::new(Identities::parse(&text).unwrap()));
        let admitted =
            |value: &str| authenticator.authenticate(&headers(value)).map(|principal| principal.name().to_owned()).ok();
        assert_eq!(admitted("Bearer t0ken-of-alice").as_deref(), Some("alice"));
        assert_eq!(admitted("bearer t0ken-of-alice").as_deref(), Some("alice"));
        // alice:t0ken-of-alice, bob:t0ken-of-alice
        assert_eq!(admitted("Basic YWxpY2U6dDBrZW4tb2YtYWxpY2U=").as_deref(), Some("alice"));
        assert_eq!(admitted("Basic Ym9iOnQwa2VuLW9mLWFsaWNl"), None);
        for wrong in ["Bearer ", "Bearer t0ken", "Basic !!", "t0ken-of-alice", "Digest x", ""] {
            assert_eq!(admitted(wrong), None, "{wrong}");
        }
        assert!(authenticator.authenticate(&HeaderMap::new()).is_err());
    }

    #[test]
    fn replaced_identities_apply_to_the_next_call() {
        let [alice, bob] = ["t0ken-of-alice", "t0ken-of-bob"].map(|text| Token::new(text).unwrap());
        let known = |name: &str, token| Identities::parse(&Identities::format_line(name, token)).unwrap();
        let current = ReloadHandle::new(known("alice", &alice));
        let authenticator = Authenticator::Identities(current.clone());
        assert!(authenticator.authenticate(&headers("Bearer t0ken-of-alice")).is_ok());
        current.set(known("bob", &bob));
        assert!(authenticator.authenticate(&headers("Bearer t0ken-of-alice")).is_err());
        assert_eq!(authenticator.authenticate(&headers("Bearer t0ken-of-bob")).unwrap().name(), "bob");
        current.set(Identities::default());
        assert!(
            authenticator.authenticate(&headers("Bearer t0ken-of-bob")).is_err(),
            "nobody is let in where nobody is known"
        );
    }

    #[test]
    fn lines_without_an_identity_are_reported() {
        assert_eq!(Identities::parse("alice\n").unwrap_err(), IdentityError { line: 1 });
        assert_eq!(Identities::parse("# x\nalice zz\n").unwrap_err(), IdentityError { line: 2 });
    }
}
