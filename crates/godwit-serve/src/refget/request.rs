//! The parameters of a refget request: the digest, the requested part of the sequence, and the media type.

use godwit_dataset::decode_base64;
use http::HeaderMap;
use http::header::{ACCEPT, RANGE};

use super::error::RefgetError;
use super::sequence_digests::{MD5_BYTES, TRUNCATED_SHA512_BYTES};

/// The digest of a sequence in one of the supported algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SequenceDigest {
    /// MD5 digest of the bases in upper case.
    Md5([u8; MD5_BYTES]),
    /// SHA-512 digest of the bases in upper case, truncated to 24 bytes. The `ga4gh` form is base64url, the `TRUNC512`
    /// form hexadecimal.
    Sha512([u8; TRUNCATED_SHA512_BYTES]),
}

impl SequenceDigest {
    /// Parses the digest in a URL path, with or without a namespace such as `md5:`. Returns `None` if the text is not a
    /// digest.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (namespace, digest) = text.split_once(':').unwrap_or(("", text));
        let is = |names: &[&str]| namespace.is_empty() || names.iter().any(|name| namespace.eq_ignore_ascii_case(name));
        if let Some(bytes) = parse_hex(digest).filter(|_| is(&["md5"])) {
            return Some(Self::Md5(bytes));
        }
        if let Some(bytes) = parse_hex(digest).filter(|_| is(&["trunc512"])) {
            return Some(Self::Sha512(bytes));
        }
        let bytes = digest.strip_prefix("SQ.").filter(|_| is(&["ga4gh"])).and_then(decode_base64)?;
        bytes.try_into().ok().map(Self::Sha512)
    }
}

/// Parses hexadecimal digits of either case; `None` if they are not exactly `BYTES` bytes.
fn parse_hex<const BYTES: usize>(text: &str) -> Option<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    hex::decode_to_slice(text, &mut bytes).ok().map(|()| bytes)
}

/// The part of a sequence that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subsequence {
    /// The whole sequence, because the request specifies no range.
    All,
    /// The query parameters `start` and `end`: 0-based, half-open.
    StartEnd { start: u32, end: Option<u32> },
    /// The header `Range: bytes=FIRST-LAST`: 0-based, both ends inclusive.
    Range { first: u64, last: Option<u64> },
    /// The header `Range: bytes=-COUNT`: the last COUNT bases.
    Suffix { count: u64 },
}

impl Subsequence {
    /// Parses the requested part of the sequence from the query string and the headers of a request.
    ///
    /// # Errors
    /// [`RefgetError::BadRequest`] if a number is invalid, or the request has both query parameters and a `Range`
    /// header.
    pub(super) fn from_request(query: &str, headers: &HeaderMap) -> Result<Self, RefgetError> {
        let wrong = |problem: String| RefgetError::BadRequest { problem };
        let (mut start, mut end) = (None, None);
        for (name, value) in query.split('&').filter_map(|word| word.split_once('=')) {
            let place = match name {
                "start" => &mut start,
                "end" => &mut end,
                _ => continue,
            };
            let number = value.parse().ok().filter(|_| value.bytes().all(|byte| byte.is_ascii_digit()));
            *place = Some(number.ok_or_else(|| wrong(format!("{name}={value} is not an integer below 2^32")))?);
        }
        let is_between = start.is_some() || end.is_some();
        match headers.get(RANGE) {
            Some(_) if is_between => Err(wrong("use either start and end, or a Range header, not both".to_owned())),
            None if is_between => Ok(Self::StartEnd { start: start.unwrap_or(0), end }),
            None => Ok(Self::All),
            Some(value) => {
                let range = value.to_str().ok().and_then(|text| parse_range_header(text.trim()));
                range.ok_or_else(|| wrong(format!("Range: {value:?} is not a single range such as bytes=0-99")))
            }
        }
    }

    /// Returns the requested bases as a 0-based, half-open range. `bases`: length of the sequence.
    ///
    /// # Errors
    /// [`RefgetError::RangeNotSatisfiable`] if the range exceeds the sequence, [`RefgetError::CircularNotSupported`] if
    /// it starts after its end.
    pub(super) fn resolve(self, bases: u64) -> Result<std::ops::Range<u64>, RefgetError> {
        let beyond = || RefgetError::RangeNotSatisfiable { bases };
        match self {
            Self::All => Ok(0..bases),
            Self::StartEnd { start, end } => {
                let (start, end) = (u64::from(start), end.map_or(bases, u64::from));
                if start >= bases || end > bases {
                    return Err(beyond());
                }
                if start <= end { Ok(start..end) } else { Err(RefgetError::CircularNotSupported) }
            }
            Self::Range { first, last } => {
                let end = last.map_or(bases, |last| last.saturating_add(1).min(bases));
                if first < end { Ok(first..end) } else { Err(beyond()) }
            }
            Self::Suffix { count: 0 } => Err(beyond()),
            Self::Suffix { count } => Ok(bases.saturating_sub(count)..bases),
        }
    }
}

/// Parses a `Range` header (RFC 9110 §14.2). Returns `None` if the header is invalid or contains several ranges.
fn parse_range_header(text: &str) -> Option<Subsequence> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    match (first.is_empty(), last.is_empty()) {
        (true, true) => None,
        (true, false) => Some(Subsequence::Suffix { count: number(last)? }),
        (false, true) => Some(Subsequence::Range { first: number(first)?, last: None }),
        (false, false) => Some(Subsequence::Range { first: number(first)?, last: Some(number(last)?) }),
    }
}

/// The kind of content in a response, which determines the media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MediaType {
    /// The bases of a sequence, as text.
    Plain,
    /// The metadata of a sequence or the service info, as JSON.
    Json,
}

impl MediaType {
    /// Returns the media type of the response, with the refget version that the client accepts.
    ///
    /// # Errors
    /// [`RefgetError::NotAcceptable`] if the client accepts only other media types.
    pub(super) fn negotiate(self, headers: &HeaderMap) -> Result<&'static str, RefgetError> {
        let [newer, older] = match self {
            Self::Plain => [
                "text/vnd.ga4gh.refget.v2.0.0+plain; charset=us-ascii",
                "text/vnd.ga4gh.refget.v1.0.0+plain; charset=us-ascii",
            ],
            Self::Json => [
                "application/vnd.ga4gh.refget.v2.0.0+json; charset=us-ascii",
                "application/vnd.ga4gh.refget.v1.0.0+json; charset=us-ascii",
            ],
        };
        let any = match self {
            Self::Plain => ["*/*", "text/*", "text/plain"],
            Self::Json => ["*/*", "application/*", "application/json"],
        };
        let bare = |kind: &'static str| kind.split(';').next().unwrap_or(kind);
        let mut accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).flat_map(|value| {
            value.split(',').map(|kind| kind.split(';').next().unwrap_or(kind).trim().to_ascii_lowercase())
        });
        let mut is_older = false;
        if !headers.contains_key(ACCEPT)
            || accepted.any(|kind| {
                is_older |= kind == bare(older);
                kind == bare(newer) || any.contains(&&*kind)
            })
        {
            return Ok(newer);
        }
        if is_older { Ok(older) } else { Err(RefgetError::NotAcceptable { media_type: bare(newer) }) }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn header_map(name: http::HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn digests_are_known_by_their_length_and_namespace() {
        // Digests of the sequence ACGT: SHA-512 from GA4GH refget v2.0.0 ("refget Checksum Algorithm"), MD5 from
        // coreutils (`printf ACGT | md5sum`).
        let sha = SequenceDigest::parse("SQ.aKF498dAxcJAqme6QYQ7EZ07-fiw8Kw2").unwrap();
        assert_eq!(SequenceDigest::parse("ga4gh:SQ.aKF498dAxcJAqme6QYQ7EZ07-fiw8Kw2"), Some(sha));
        assert_eq!(SequenceDigest::parse("68a178f7c740c5c240aa67ba41843b119d3bf9f8b0f0ac36"), Some(sha));
        assert_eq!(SequenceDigest::parse("TRUNC512:68A178F7C740C5C240AA67BA41843B119D3BF9F8B0F0AC36"), Some(sha));
        let md5 = SequenceDigest::parse("f1f8f4bf413b16ad135722aa4591043e").unwrap();
        assert_eq!(SequenceDigest::parse("md5:F1F8F4BF413B16AD135722AA4591043E"), Some(md5));
        for none in [
            "",
            "x",
            "SQ.",
            "SQ.aKF498dAxcJAqme6QYQ7EZ07-fiw8K",
            "aKF498dAxcJAqme6QYQ7EZ07-fiw8Kw2",
            "insdc:CM000663.2",
            "md5:SQ.aKF498dAxcJAqme6QYQ7EZ07-fiw8Kw2",
            "+1f8f4bf413b16ad135722aa4591043e",
        ] {
            assert_eq!(SequenceDigest::parse(none), None, "{none}");
        }
    }

    #[test]
    fn subsequences_are_requested_by_parameters_or_by_a_header() {
        let query =
            |query: &str| Subsequence::from_request(query, &HeaderMap::new()).and_then(|letters| letters.resolve(10));
        assert_eq!(query("").unwrap(), 0..10);
        assert_eq!(query("start=3").unwrap(), 3..10);
        assert_eq!(query("&end=4&x=y").unwrap(), 0..4);
        assert_eq!(query("start=3&end=3").unwrap(), 3..3);
        assert!(matches!(query("start=4&end=3"), Err(RefgetError::CircularNotSupported)));
        for beyond in ["start=10", "end=11", "start=11&end=3"] {
            assert!(matches!(query(beyond), Err(RefgetError::RangeNotSatisfiable { bases: 10 })), "{beyond}");
        }
        for none in ["start=", "start=-1", "start=+1", "end=4294967296", "end=1e3"] {
            assert!(matches!(query(none), Err(RefgetError::BadRequest { .. })), "{none}");
        }
        let range =
            |text| Subsequence::from_request("", &header_map(RANGE, text)).and_then(|letters| letters.resolve(10));
        assert_eq!(range("bytes=0-0").unwrap(), 0..1);
        assert_eq!(range("bytes=2-99").unwrap(), 2..10);
        assert_eq!(range("bytes=2-").unwrap(), 2..10);
        assert_eq!(range("bytes=-3").unwrap(), 7..10);
        for beyond in ["bytes=10-12", "bytes=5-3", "bytes=-0", "bytes=10-"] {
            assert!(matches!(range(beyond), Err(RefgetError::RangeNotSatisfiable { bases: 10 })), "{beyond}");
        }
        for none in ["bytes=-", "bytes==1-2", "bytes=1-2,4-5", "bytes=-1-", "bases=1-2", "bytes=a-2"] {
            assert!(matches!(range(none), Err(RefgetError::BadRequest { .. })), "{none}");
        }
        assert!(matches!(
            Subsequence::from_request("start=1", &header_map(RANGE, "bytes=1-2")),
            Err(RefgetError::BadRequest { .. })
        ));
    }

    #[test]
    fn answers_are_of_the_version_that_is_taken() {
        let kind = |accept| MediaType::Plain.negotiate(&header_map(ACCEPT, accept)).ok();
        assert!(MediaType::Json.negotiate(&HeaderMap::new()).unwrap().contains("v2.0.0+json"));
        assert!(kind("text/html, */*;q=0.8").unwrap().contains("v2.0.0+plain"));
        assert!(kind("text/vnd.ga4gh.refget.v1.0.0+plain").unwrap().contains("v1.0.0+plain"));
        assert!(kind("text/vnd.ga4gh.refget.v1.0.0+plain, text/plain").unwrap().contains("v2.0.0+plain"));
        assert_eq!(kind("application/json"), None);
        assert_eq!(kind("embl/some_json"), None);
    }
}
