//! What is asked over HTTP and is no gRPC, on the same port: health, metrics, and pages of whoever knows files.
//!
//! Flows in: requests of HTTP/1.1 and HTTP/2, small enough to be held whole, with who asks. Flows out: answers, held whole or
//! streamed. What pages there are is decided by a [`WebService`]; bytes of files are let go by [`FileTickets`].

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use http::{HeaderMap, Method, Response, StatusCode};
use tonic::Status;

use crate::access::Accessed;
use crate::encoding::{decode_base64, encode_base64_url};
use crate::gate::Caller;
use crate::tickets::{Claim, FilePart, TicketKey};

/// What paths begin with that are about reads (htsget 1.3).
pub const READS: &str = "/reads/";
/// What paths begin with that are about variants.
pub const VARIANTS: &str = "/variants/";
/// What paths begin with that are about sequences (refget 2.0).
pub const SEQUENCES: &str = "/sequence/";
/// What paths begin with of the references of a server.
pub const REFERENCES: &str = "/references/";
/// What paths begin with that the page of a server asks.
pub const API: &str = "/api/";
/// What paths begin with of the files of that page, which anybody may have.
pub const SITE: &str = "/site/";
/// Where bytes of files are had, by a ticket.
pub const FILE_DATA: &str = "/htsget/data";

/// What tokens begin with that stand for a part of a file.
const TOKEN_MARK: &[u8] = b"gwh1.";

/// A request.
#[derive(Clone, Debug)]
pub struct WebRequest {
    /// Who asks; an error where nobody is let in who asks so.
    pub caller: Result<Caller, Status>,
    /// Whether nobody is asked who they are.
    pub is_open: bool,
    /// Where the server was found, as `https://HOST:PORT`.
    pub origin: String,
    /// What is to be done.
    pub method: Method,
    /// As it came, its percent signs included.
    pub path: String,
    /// What stands behind the question mark.
    pub query: Option<String>,
    /// All its headers.
    pub headers: HeaderMap,
    /// What came with it; `None`: more than is taken.
    pub body: Option<Bytes>,
}

/// Bytes of an answer as they come.
pub type WebStream = Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>;

/// The body of an answer.
pub enum WebBody {
    /// All of it.
    Whole(Bytes),
    /// One that is sent as it comes.
    Stream {
        /// How long it is.
        bytes: u64,
        /// The bytes.
        stream: WebStream,
    },
}

/// An answer.
pub struct WebReply {
    /// The answer.
    pub response: Response<WebBody>,
    /// What is recorded of it; `None` where nobody had access to anything.
    pub access: Option<Accessed>,
}

/// Who an answer is for, beside it.
#[derive(Clone, Debug)]
pub(crate) struct AnsweredTo(pub(crate) String);

/// A future that may go to another thread.
pub type Replying<'a> = Pin<Box<dyn Future<Output = WebReply> + Send + 'a>>;

/// Answers requests.
pub trait WebService: fmt::Debug + Send + Sync + 'static {
    /// Answers one. An answer that is streamed is recorded when it begins and when it ends.
    fn answer(&self, request: WebRequest, tickets: FileTickets) -> Replying<'_>;
}

/// An answer of text, where there is no page.
pub(crate) fn plain(status: StatusCode, text: &str) -> Response<WebBody> {
    let mut response = Response::new(WebBody::Whole(Bytes::from(format!("{text}\n"))));
    *response.status_mut() = status;
    let kind = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}

/// Makes tokens for parts of files, and knows them again: signed, for one caller, until a time, as tickets of Flight are.
#[derive(Clone, Debug)]
pub struct FileTickets {
    key: TicketKey,
    lifetime: Duration,
    place: Option<String>,
}

impl FileTickets {
    pub(crate) fn new(key: TicketKey, lifetime: Duration) -> Self {
        Self { key, lifetime, place: None }
    }

    /// The same, of a pool that sends this client to the server at a location of Flight.
    pub(crate) fn at(self, location: Option<&String>) -> Self {
        let web = |location: &String| {
            let (scheme, rest) = location.split_once("://")?;
            let scheme = if scheme == "grpc+tls" { "https" } else { "http" };
            Some(format!("{scheme}://{rest}"))
        };
        Self { place: location.and_then(web), ..self }
    }

    /// Where the bytes are to be had, without a path, where a pool says so.
    pub fn place(&self) -> Option<&str> {
        self.place.as_deref()
    }

    /// A token for a part of a file.
    pub fn token(&self, caller: &Caller, part: FilePart) -> String {
        let mut claim = Claim { file: Some(part), visas: caller.visas().to_vec(), ..Claim::new(caller, self.lifetime) };
        // What is granted by a visa ends with it.
        claim.expires_unix_s = claim.visas.iter().map(|visa| visa.until_unix_s).fold(claim.expires_unix_s, u64::min);
        let mark = String::from_utf8_lossy(TOKEN_MARK);
        format!("{mark}{}", encode_base64_url(&claim.sign(&self.key)))
    }

    /// Who was given a token, and for what. It is shown by whoever was told it, who need not be let in otherwise.
    ///
    /// # Errors
    /// [`Status::permission_denied`], in words that can be shown.
    pub fn read(&self, headers: &HeaderMap) -> Result<(Caller, FilePart), Status> {
        let wrong = || Status::permission_denied("the ticket is missing, or not of this server; ask for a new one");
        let token = crate::gate::shown_token(headers).ok_or_else(wrong)?;
        let ticket = token.strip_prefix(TOKEN_MARK).and_then(decode_base64).ok_or_else(wrong)?;
        let claim = Claim::read(&ticket, &self.key).ok_or_else(wrong)?;
        let caller = if claim.caller.is_empty() { Caller::default() } else { Caller::named(&claim.caller) };
        let claim = Claim::check(&ticket, &self.key, &caller).map_err(|error| *error)?;
        let caller = caller.with_visas(claim.visas);
        Ok((caller, claim.file.ok_or_else(wrong)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::Visa;

    #[test]
    fn a_location_of_flight_is_an_address_of_the_web() {
        let tickets = FileTickets::new(TicketKey::new(b"a secret of thirty-two characters"), Duration::from_secs(60));
        let at = |location: &str| tickets.clone().at(Some(&location.to_owned())).place().map(str::to_owned);
        assert_eq!(at("grpc+tls://a.example:7").as_deref(), Some("https://a.example:7"));
        assert_eq!(at("grpc+tcp://127.0.0.1:7").as_deref(), Some("http://127.0.0.1:7"));
        assert_eq!(tickets.clone().at(None).place(), None);
    }

    #[test]
    fn a_token_stands_for_its_part_and_its_caller_and_no_other_is_taken() {
        let tickets = FileTickets::new(TicketKey::new(b"a secret of thirty-two characters"), Duration::from_secs(60));
        let shown = |token: &str| {
            let header = format!("Bearer {token}").parse().unwrap();
            tickets.read(&HeaderMap::from_iter([(http::header::AUTHORIZATION, header)]))
        };
        let part = FilePart { name: "x/y.bam".to_owned(), version: 7, start: 1, end: 9 << 16, cut: true };
        for caller in [Caller::default(), Caller::named("alice")] {
            let token = tickets.token(&caller, part.clone());
            assert!(token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)), "{token}");
            assert_eq!(shown(&token).unwrap(), (caller, part.clone()));
            assert!(shown(&token[..token.len() - 2]).is_err() && shown(&token[1..]).is_err());
        }
        let granted = |until_unix_s| {
            let visa = Visa { value: "a dataset".to_owned(), until_unix_s, ..Visa::default() };
            (Caller::named("alice").with_visas(vec![visa.clone()]), visa)
        };
        let (caller, visa) = granted(u64::MAX);
        let (shown_by, _) = shown(&tickets.token(&caller, part.clone())).unwrap();
        assert_eq!(shown_by.visas(), [visa], "whoever shows it need not show the passport again");
        assert!(shown(&tickets.token(&granted(1).0, part.clone())).is_err(), "it ends with the visa");
        let key = TicketKey::new(b"a secret of thirty-two characters");
        let of_a_part = Claim::new(&Caller::default(), Duration::from_secs(60)).sign(&key);
        assert!(shown(&format!("gwh1.{}", encode_base64_url(&of_a_part))).is_err(), "one of Flight");
        assert!(tickets.read(&HeaderMap::new()).is_err());
        let late = Claim { expires_unix_s: 1, file: Some(part), ..Claim::default() }.sign(&key);
        let late = shown(&format!("gwh1.{}", encode_base64_url(&late))).unwrap_err();
        assert!(late.message().contains("expired"), "{late}");
    }
}
