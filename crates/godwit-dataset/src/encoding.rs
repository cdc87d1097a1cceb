//! Encodings of bytes as text: Base64 (RFC 4648) for tokens, digests and small files; percent-encoding (RFC 3986 §2.1)
//! for URLs, headers and identities.

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Settings for decoding that accept Base64 with or without padding.
const OPTIONAL_PADDING: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);

/// Characters of a path that a URL replaces, including those that other programs interpret as file name patterns.
const ENCODED_IN_PATHS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Encodes bytes as standard Base64 (RFC 4648 §4) with padding.
///
/// # Examples
///
/// ```
/// use godwit_dataset::encode_base64;
///
/// assert_eq!(encode_base64(b"foob"), "Zm9vYg==");
/// assert_eq!(encode_base64(&[0xfb, 0xff]), "+/8=");
/// ```
pub fn encode_base64(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// Encodes bytes as URL-safe Base64 (RFC 4648 §5) without padding, for file names, digests and headers.
///
/// # Examples
///
/// ```
/// use godwit_dataset::encode_base64_url;
///
/// assert_eq!(encode_base64_url(b"foob"), "Zm9vYg");
/// assert_eq!(encode_base64_url(&[0xfb, 0xff]), "-_8");
/// ```
pub fn encode_base64_url(bytes: &[u8]) -> String {
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

/// Decodes standard or URL-safe Base64, with or without padding; `None` if the text is neither.
///
/// # Examples
///
/// ```
/// use godwit_dataset::decode_base64;
///
/// assert_eq!(decode_base64("Zm9vYg=="), Some(b"foob".to_vec()));
/// assert_eq!(decode_base64("Zm9vYg"), Some(b"foob".to_vec()));
/// assert_eq!(decode_base64("-_8"), Some(vec![0xfb, 0xff]));
/// assert_eq!(decode_base64("Z!=="), None);
/// ```
pub fn decode_base64(text: impl AsRef<[u8]>) -> Option<Vec<u8>> {
    let text = text.as_ref();
    let is_url = text.iter().any(|letter| matches!(letter, b'-' | b'_'));
    GeneralPurpose::new(if is_url { &URL_SAFE } else { &STANDARD }, OPTIONAL_PADDING).decode(text).ok()
}

/// Percent-encodes a path for a URL; slashes remain.
///
/// # Examples
///
/// ```
/// use godwit_dataset::percent_encode_path;
///
/// assert_eq!(percent_encode_path("/run 1/é*.bam"), "/run%201/%C3%A9%2A.bam");
/// ```
pub fn percent_encode_path(path: &str) -> String {
    utf8_percent_encode(path, ENCODED_IN_PATHS).to_string()
}

/// Decodes percent-encoded text; `None` if an encoded byte lacks a digit, or the result is not UTF-8.
///
/// # Examples
///
/// ```
/// use godwit_dataset::percent_decode;
///
/// assert_eq!(percent_decode("a%2Cb%c3%a9").as_deref(), Some("a,bé"));
/// assert_eq!(percent_decode("a%2"), None);
/// ```
pub fn percent_decode(text: &str) -> Option<String> {
    let bytes: Vec<u8> = percent_decode_str(text).collect();
    // The library keeps a percent sign without two digits. Every other one makes the text two bytes shorter.
    let is_complete = text.len() - bytes.len() == 2 * text.matches('%').count();
    String::from_utf8(bytes).ok().filter(|_| is_complete)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_the_specification_go_both_ways() {
        // Test vectors of RFC 4648 §10.
        let vectors =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")];
        for (bytes, text) in vectors {
            assert_eq!(encode_base64(bytes.as_bytes()), text);
            assert_eq!(decode_base64(text.as_bytes()).unwrap(), bytes.as_bytes());
        }
        let all: Vec<u8> = (0..=255).collect();
        for cut in 0..all.len() {
            let text = encode_base64_url(&all[cut..]);
            assert!(!text.contains(['+', '/', '=']));
            assert_eq!(decode_base64(text.as_bytes()).unwrap(), all[cut..]);
        }
        assert_eq!(decode_base64(b"Z!=="), None);
    }

    #[test]
    fn incomplete_escapes_are_rejected() {
        assert_eq!(percent_decode("%2541%").as_deref(), None);
        assert_eq!(percent_decode("%2541+").as_deref(), Some("%41+"));
        for none in ["%", "%2", "a%2", "%+2", "% 2", "%zz", "%%41", "%4é", "%ff"] {
            assert_eq!(percent_decode(none), None, "{none}");
        }
        let all: String = (0..0x250).filter_map(char::from_u32).collect();
        assert_eq!(percent_decode(&percent_encode_path(&all)), Some(all));
    }
}
