//! Conversion of file paths to text. On Linux, file names are arbitrary bytes, but the messages of a copy contain text.
//!
//! The text of a UTF-8 path is the path itself. In any other path, each byte of an invalid sequence is replaced by NUL
//! and two hexadecimal digits; no path contains NUL. Each path has exactly one text, and each text has at most one
//! path. So access rules that match the text of a path cannot be evaded with another text of the same path.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Character that precedes the two digits of a byte.
const BYTE_ESCAPE: char = '\0';

/// Returns the text that represents a path.
///
/// # Examples
///
/// ```
/// use std::path::Path;
///
/// use godwit_transfer_session::path_text::{path_to_text, text_to_path};
///
/// assert_eq!(path_to_text(Path::new("run7/a.bam")), "run7/a.bam");
/// assert_eq!(text_to_path("run7/a.bam").as_deref(), Some(Path::new("run7/a.bam")));
/// ```
pub fn path_to_text(path: &Path) -> String {
    if let Some(text) = path.to_str() {
        return text.to_owned();
    }
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push(BYTE_ESCAPE);
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
        }
    }
    text
}

/// Returns the path that a text represents; `None` if no path has this text.
pub fn text_to_path(text: &str) -> Option<PathBuf> {
    if is_utf8_path_text(text) {
        return Some(PathBuf::from(text));
    }
    let mut pieces = text.split(BYTE_ESCAPE);
    let mut bytes = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    let path = PathBuf::from(OsStr::from_bytes(&bytes));
    (path_to_text(&path) == text).then_some(path)
}

/// Reports whether the path that a text represents is UTF-8.
pub fn is_utf8_path_text(text: &str) -> bool {
    !text.contains(BYTE_ESCAPE)
}

/// Returns the text of a path for programs: an invalid byte is written as `\xff`.
pub fn escape_invalid_bytes(text: &str) -> String {
    text.replace(BYTE_ESCAPE, "\\x")
}

/// Returns the text of a path for users: control characters are escaped, and an invalid byte is written as `\xff`.
pub fn escape_for_display(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in escape_invalid_bytes(text).chars() {
        match character.is_control() {
            true => shown.extend(character.escape_default()),
            false => shown.push(character),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_path_has_a_text_that_leads_back_to_it(bytes in proptest::collection::vec(1u8.., 0..40)) {
            let path = Path::new(OsStr::from_bytes(&bytes));
            prop_assert_eq!(text_to_path(&path_to_text(path)), Some(path.to_owned()));
        }

        #[test]
        fn no_path_has_two_texts(text in "([a\0]|\0[0-9a-f]{2}|é){0,8}") {
            if let Some(path) = text_to_path(&text) {
                prop_assert_eq!(path_to_text(&path), text);
            }
        }
    }

    #[test]
    fn characters_slashes_and_dots_cannot_be_written_as_bytes() {
        for text in ["\x00c3\x00a9", "\x002f", "\x002e", "a\0", "\0f", "\0FF", "\0+f"] {
            assert_eq!(text_to_path(text), None, "{text:?}");
        }
        assert_eq!(escape_for_display("a\nb\0ff\0fec"), "a\\nb\\xff\\xfec");
    }
}
