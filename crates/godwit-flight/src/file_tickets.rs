//! Tokens by which HTTP clients download parts of files.

use std::time::Duration;

use godwit_dataset::web::{FilePart, FileTickets};
use godwit_dataset::{AuthError, Principal, decode_base64, encode_base64_url};
use http::HeaderMap;

use crate::tickets::TicketClaims;
use godwit_auth::TicketKey;

/// Prefix of tokens that authorize the download of a part of a file.
const FILE_TOKEN_PREFIX: &[u8] = b"gwh1.";

/// The issuer of tokens for parts of files. It signs them with the key of the tickets of Flight.
#[derive(Clone, Debug)]
pub(crate) struct SignedFileTickets {
    key: TicketKey,
    lifetime: Duration,
    origin: Option<String>,
}

impl SignedFileTickets {
    pub(crate) fn new(key: TicketKey, lifetime: Duration) -> Self {
        Self { key, lifetime, origin: None }
    }

    /// Sets the Flight location of the pool member to which this client is assigned.
    pub(crate) fn with_location(self, location: Option<&String>) -> Self {
        let web = |location: &String| {
            let (scheme, rest) = location.split_once("://")?;
            let scheme = if scheme == "grpc+tls" { "https" } else { "http" };
            Some(format!("{scheme}://{rest}"))
        };
        Self { origin: location.and_then(web), ..self }
    }
}

impl FileTickets for SignedFileTickets {
    fn origin(&self) -> Option<&str> {
        self.origin.as_deref()
    }

    fn issue_token(&self, principal: &Principal, part: FilePart) -> String {
        let mut claim = TicketClaims {
            file: Some(part),
            visas: principal.visas().to_vec(),
            ..TicketClaims::new(principal, self.lifetime)
        };
        // The token expires at the latest when the first visa expires.
        claim.expires_unix_s = claim.visas.iter().map(|visa| visa.expires_unix_s).fold(claim.expires_unix_s, u64::min);
        let prefix = String::from_utf8_lossy(FILE_TOKEN_PREFIX);
        format!("{prefix}{}", encode_base64_url(&claim.sign(&self.key)))
    }

    fn verify_token(&self, headers: &HeaderMap) -> Result<(Principal, FilePart), AuthError> {
        let wrong =
            || AuthError::forbidden("the ticket is missing, or was not issued by this server; request a new one");
        let token = godwit_auth::request_token(headers).ok_or_else(wrong)?;
        let ticket = token.strip_prefix(FILE_TOKEN_PREFIX).and_then(decode_base64).ok_or_else(wrong)?;
        let claim = TicketClaims::read_signed(&ticket, &self.key).ok_or_else(wrong)?;
        let principal =
            if claim.principal.is_empty() { Principal::default() } else { Principal::named(&claim.principal) };
        let claim = TicketClaims::verify(&ticket, &self.key, &principal)
            .map_err(|status| AuthError::forbidden(status.message()))?;
        let principal = principal.with_visas(claim.visas);
        Ok((principal, claim.file.ok_or_else(wrong)?))
    }
}

#[cfg(test)]
mod tests {
    use godwit_dataset::Visa;

    use super::*;

    #[test]
    fn a_flight_location_becomes_an_http_origin() {
        let tickets =
            SignedFileTickets::new(TicketKey::new(b"a secret of thirty-two characters"), Duration::from_secs(60));
        let at = |location: &str| tickets.clone().with_location(Some(&location.to_owned())).origin().map(str::to_owned);
        assert_eq!(at("grpc+tls://a.example:7").as_deref(), Some("https://a.example:7"));
        assert_eq!(at("grpc+tcp://127.0.0.1:7").as_deref(), Some("http://127.0.0.1:7"));
        assert_eq!(tickets.clone().with_location(None).origin(), None);
    }

    #[test]
    fn a_file_token_is_valid_for_its_part_and_principal_only() {
        let tickets =
            SignedFileTickets::new(TicketKey::new(b"a secret of thirty-two characters"), Duration::from_secs(60));
        let shown = |token: &str| {
            let header = format!("Bearer {token}").parse().unwrap();
            tickets.verify_token(&HeaderMap::from_iter([(http::header::AUTHORIZATION, header)]))
        };
        let part = FilePart { name: "x/y.bam".to_owned(), version: 7, start: 1, end: 9 << 16, recompress_ends: true };
        for principal in [Principal::default(), Principal::named("alice")] {
            let token = tickets.issue_token(&principal, part.clone());
            assert!(token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)), "{token}");
            assert_eq!(shown(&token).unwrap(), (principal, part.clone()));
            assert!(shown(&token[..token.len() - 2]).is_err() && shown(&token[1..]).is_err());
        }
        let granted = |expires_unix_s| {
            let visa = Visa { value: "a dataset".to_owned(), expires_unix_s, ..Visa::default() };
            (Principal::named("alice").with_visas(vec![visa.clone()]), visa)
        };
        let (principal, visa) = granted(u64::MAX);
        let (shown_by, _) = shown(&tickets.issue_token(&principal, part.clone())).unwrap();
        assert_eq!(shown_by.visas(), [visa], "a client that has the visa need not send the passport again");
        assert!(shown(&tickets.issue_token(&granted(1).0, part.clone())).is_err(), "it ends with the visa");
        let key = TicketKey::new(b"a secret of thirty-two characters");
        let of_a_part = TicketClaims::new(&Principal::default(), Duration::from_secs(60)).sign(&key);
        assert!(shown(&format!("gwh1.{}", encode_base64_url(&of_a_part))).is_err(), "one of Flight");
        assert!(tickets.verify_token(&HeaderMap::new()).is_err());
        let late = TicketClaims { expires_unix_s: 1, file: Some(part), ..TicketClaims::default() }.sign(&key);
        let late = shown(&format!("gwh1.{}", encode_base64_url(&late))).unwrap_err();
        assert!(late.to_string().contains("expired"), "{late}");
    }
}
