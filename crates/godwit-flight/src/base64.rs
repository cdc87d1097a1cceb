//! Base 64 (RFC 4648), as tokens and small files are written.

/// The letters of §4.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// As §4 has it, with padding.
pub fn encode_base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().chain(&[0; 2]).take(3).fold(0u32, |bits, byte| bits << 8 | u32::from(*byte));
        for at in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

/// For names of files and headers (§5), without padding.
pub(crate) fn encode_base64_url(bytes: &[u8]) -> String {
    encode_base64(bytes).trim_end_matches('=').replace('+', "-").replace('/', "_")
}

/// Either of them, with or without padding; `None` for what is neither.
pub(crate) fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut held) = (0u32, 0);
    for letter in text {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    Some(bytes)
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
