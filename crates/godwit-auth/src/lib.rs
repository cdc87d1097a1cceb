//! Authentication: finding the principal that makes a call.
//!
//! A client sends a token as `authorization: Bearer TOKEN`, or as the password of `authorization: Basic`. The server
//! stores only the BLAKE3 hash of each token. A slow, salted hash is not needed, because tokens are long and random and
//! cannot be guessed.

mod key_set;
mod passport;
mod random;
mod reload_handle;
mod ring_provider;
mod session;
mod ticket_key;
mod token;
mod token_issuer;

use std::collections::HashMap;
use std::sync::Arc;

use godwit_dataset::{AuthError, Principal, decode_base64};
use http::HeaderMap;
use http::header::AUTHORIZATION;

pub use key_set::KeySetError;
pub use passport::VisaIssuer;
pub use random::{random_bytes, random_id};
pub use reload_handle::ReloadHandle;
pub use session::Session;
pub use ticket_key::{TicketKey, now_unix_s};
pub use token::Token;
pub use token_issuer::{SUBJECT_CLAIM, TokenIssuer};

/// The kind of credential by which a principal was authenticated, as an extension of the principal. A principal without
/// it was identified by a token that all clients share, or by another component.
#[derive(Clone, Copy, Debug)]
enum Credential {
    /// A token in the list of identities, given by its BLAKE3 hash.
    Token(blake3::Hash),
    /// A JSON Web Token that an issuer signed, given by its expiry time in seconds since 1970.
    Jwt(u64),
}

/// The identities that a server accepts: names of principals by the BLAKE3 hash of their token, and optionally an
/// issuer of signed tokens.
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

/// The error for a line that is not a name and a hash.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: expected a name and the BLAKE3 of its token, 64 hexadecimal digits")]
pub struct IdentityError {
    /// Number of the invalid line, 1-based.
    pub line: usize,
}

impl Identities {
    /// Parses lines that consist of a name and the BLAKE3 hash of a token. Skips blank lines and lines that begin with
    /// `#`.
    ///
    /// # Errors
    /// [`IdentityError`] if a line is malformed.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_auth::{Identities, IdentityError, Token};
    ///
    /// let text = format!("# analysts\n{}", Identities::format_line("alice", &Token::random()));
    /// assert!(!Identities::parse(&text)?.is_empty());
    ///
    /// assert_eq!(Identities::parse("# analysts\nalice\n").unwrap_err(), IdentityError { line: 2 });
    /// # Ok(())
    /// # }
    /// ```
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

    /// Returns identities that also accept JSON Web Tokens signed by this issuer.
    #[must_use]
    pub fn with_issuer(self, issuer: TokenIssuer) -> Self {
        Self { issuer: Some(issuer), ..self }
    }

    /// Returns the principal to which a token belongs; `None` if the token is not valid.
    fn authenticate(&self, token: &[u8]) -> Option<Principal> {
        match &self.issuer {
            Some(issuer) if TokenIssuer::is_jwt(token) => {
                let token_issuer::VerifiedToken { name, visas, expires_unix_s } = issuer.verify(token)?;
                Some(Principal::named(&name).with_visas(visas).with_extension(Credential::Jwt(expires_unix_s)))
            }
            _ => {
                let hash = blake3::hash(token);
                let name = self.names_by_token_hash.get(&hash)?;
                Some(Principal::named(name).with_extension(Credential::Token(hash)))
            }
        }
    }

    /// Returns whether the credential for which a session was issued is still accepted.
    fn accepts_session(&self, session: &Session) -> bool {
        match session.token_hash() {
            Some(hash) => self.names_by_token_hash.get(&hash).is_some_and(|name| **name == *session.principal),
            None => self.issuer.is_some(),
        }
    }

    /// Returns whether no token is accepted: there are no names and no issuer.
    pub fn is_empty(&self) -> bool {
        self.names_by_token_hash.is_empty() && self.issuer.is_none()
    }

    /// Returns a line for [`Identities::parse`] with a name and the hash of a token.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_auth::{Identities, Token};
    ///
    /// let token = Token::new("t0ken-of-alice").ok_or("the token has other characters")?;
    /// let hash = blake3::hash(b"t0ken-of-alice").to_hex();
    /// assert_eq!(Identities::format_line("alice", &token), format!("alice {hash}\n"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn format_line(name: &str, token: &Token) -> String {
        format!("{name} {}\n", blake3::hash(token.as_str().as_bytes()).to_hex())
    }
}

/// The method by which a server authenticates calls.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_auth::{Authenticator, Identities, ReloadHandle, Token};
/// use http::HeaderMap;
/// use http::header::AUTHORIZATION;
///
/// let token = Token::random();
/// let identities = ReloadHandle::new(Identities::parse(&Identities::format_line("alice", &token))?);
/// let authenticator = Authenticator::Identities(identities.clone());
/// let mut headers = HeaderMap::new();
/// headers.insert(AUTHORIZATION, token.authorization_header().parse()?);
/// assert!(authenticator.authenticate(&headers).is_ok_and(|principal| principal.name() == "alice"));
///
/// // The identity is removed: the next call is rejected.
/// identities.set(Identities::default());
/// assert!(authenticator.authenticate(&headers).is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub enum Authenticator {
    /// Every call is accepted; the principal has no name.
    #[default]
    Disabled,
    /// Calls with this token are accepted; the principal has no name.
    Token(Token),
    /// Calls with the token of an identity are accepted; the principal has the name of the identity.
    Identities(ReloadHandle<Identities>),
}

impl Authenticator {
    /// Authenticates a call by its headers.
    ///
    /// # Errors
    /// [`AuthError::Unauthenticated`] if the token is missing or wrong.
    pub fn authenticate(&self, headers: &HeaderMap) -> Result<Principal, AuthError> {
        let refused = || AuthError::unauthenticated("the token is missing or wrong");
        let header = headers.get(AUTHORIZATION).map(http::HeaderValue::as_bytes);
        match self {
            Self::Disabled => Ok(Principal::default()),
            Self::Token(token) => {
                header.filter(|header| token.matches_header(header)).map(|_| Principal::default()).ok_or_else(refused)
            }
            Self::Identities(identities) => {
                let (name, token) = header.and_then(parse_authorization).ok_or_else(refused)?;
                let found = identities.get().authenticate(&token).ok_or_else(refused)?;
                // With `authorization: Basic`, the user name must be the name of the token's identity.
                let fitting = name.is_none_or(|name| name == found.name().as_bytes());
                fitting.then_some(found).ok_or_else(refused)
            }
        }
    }

    /// Returns the principal of a session if the credential for which the session was issued is still accepted.
    ///
    /// # Errors
    /// [`AuthError::Unauthenticated`] if the credential is not accepted any more.
    pub fn authenticate_session(&self, session: &Session) -> Result<Principal, AuthError> {
        let vouches = matches!(self, Self::Identities(identities) if identities.get().accepts_session(session));
        vouches.then(|| session.to_principal()).ok_or_else(|| AuthError::unauthenticated("the session has ended"))
    }
}

/// Returns the bearer token or the Basic password in the headers; `None` if there is none.
pub fn request_token(headers: &HeaderMap) -> Option<Vec<u8>> {
    headers.get(AUTHORIZATION).and_then(|header| parse_authorization(header.as_bytes())).map(|(_, token)| token)
}

/// Returns the token in the headers if it is a bearer token; `None` for a Basic password.
pub fn bearer_token(headers: &HeaderMap) -> Option<Vec<u8>> {
    let (name, token) = headers.get(AUTHORIZATION).and_then(|header| parse_authorization(header.as_bytes()))?;
    name.is_none().then_some(token)
}

/// Parses an `authorization` header into the user name (Basic only) and the token or password.
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
        // Base64 of alice:t0ken-of-alice and of bob:t0ken-of-alice.
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
            "an empty list of identities authenticates no client"
        );
    }

    #[test]
    fn lines_without_an_identity_are_reported() {
        assert_eq!(Identities::parse("alice\n").unwrap_err(), IdentityError { line: 1 });
        assert_eq!(Identities::parse("# x\nalice zz\n").unwrap_err(), IdentityError { line: 2 });
    }
}
