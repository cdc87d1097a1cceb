//! Base64 (RFC 4648) for tokens, digests and small files.

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Decoding accepts text with or without padding.
const OPTIONAL_PADDING: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);

/// Encodes in the alphabet of §4, with padding.
pub fn encode_base64(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// Encodes in the alphabet of §5, for names of files, digests and headers, without padding.
pub fn encode_base64_url(bytes: &[u8]) -> String {
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

/// Decodes either alphabet, with or without padding; `None` for any other text.
pub fn decode_base64(text: impl AsRef<[u8]>) -> Option<Vec<u8>> {
    let text = text.as_ref();
    let is_url = text.iter().any(|letter| matches!(letter, b'-' | b'_'));
    GeneralPurpose::new(if is_url { &URL_SAFE } else { &STANDARD }, OPTIONAL_PADDING).decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_the_specification_go_both_ways() {
        // RFC 4648 §10.
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
}
