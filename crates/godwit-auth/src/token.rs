//! Tokens of clients.

use std::fmt;

use crate::random::random_id;

/// The secret of a client, sent as `authorization: Bearer TOKEN`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Creates a token; `None` if the text is empty or contains characters other than visible ASCII.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_auth::Token;
    ///
    /// let token = Token::new("s3cret").ok_or("the token has other characters")?;
    /// assert_eq!(token.as_str(), "s3cret");
    /// assert_eq!(format!("{token:?}"), "Token(..)");
    /// assert_eq!(Token::new("two words"), None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(text: &str) -> Option<Self> {
        let fine = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        fine.then(|| Self(text.to_owned()))
    }

    /// Creates a random token of 64 hexadecimal digits.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_auth::Token;
    ///
    /// let token = Token::random();
    /// assert!(token.as_str().len() == 64 && token.as_str().bytes().all(|byte| byte.is_ascii_hexdigit()));
    /// assert_ne!(token, Token::random());
    /// ```
    pub fn random() -> Self {
        Self(random_id())
    }

    /// Returns the text of the token.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the value of the header `authorization` with this token.
    pub fn authorization_header(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// Returns whether a header value contains this token. To prevent timing attacks, the comparison takes the same
    /// time for all values of the same length.
    pub fn matches_header(&self, header: &[u8]) -> bool {
        let expected = self.authorization_header();
        let differing = expected.bytes().zip(header).fold(0, |differing, (one, other)| differing | (one ^ other));
        expected.len() == header.len() && differing == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_matches() {
        let token = Token::new("secret").unwrap();
        assert!(token.matches_header(b"Bearer secret"));
        for wrong in [&b"Bearer secre"[..], b"Bearer secrets", b"Bearer Secret", b"secret", b""] {
            assert!(!token.matches_header(wrong));
        }
        assert!(Token::new("").is_none() && Token::new("a b").is_none());
        assert_eq!(format!("{token:?}"), "Token(..)");
    }
}
