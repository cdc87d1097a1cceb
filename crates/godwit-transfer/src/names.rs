//! Paths of files as text. Names on Linux are bytes, while messages between the ends of a copy hold text.
//!
//! A path that is UTF-8 is its own text. In any other path, each byte that belongs to no character becomes a NUL, which no name can hold, and two hexadecimal
//! digits. Each path has one text and each text at most one path, so that rules about texts cannot be evaded by another text of the same path.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Prefix of the digits of a byte.
const MARK: char = '\0';

/// Returns the text of a path.
pub(crate) fn text_of(path: &Path) -> String {
    if let Some(text) = path.to_str() {
        return text.to_owned();
    }
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push(MARK);
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
        }
    }
    text
}

/// Returns the path of a text; `None` where no path has it.
pub(crate) fn path_of(text: &str) -> Option<PathBuf> {
    if is_plain(text) {
        return Some(PathBuf::from(text));
    }
    let mut pieces = text.split(MARK);
    let mut bytes = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    let path = PathBuf::from(OsStr::from_bytes(&bytes));
    (text_of(&path) == text).then_some(path)
}

/// Returns whether a path with this text is UTF-8.
pub(crate) fn is_plain(text: &str) -> bool {
    !text.contains(MARK)
}

/// Returns a text as programs are told it: with `\xff` for a byte that belongs to no character.
pub(crate) fn printable(text: &str) -> String {
    text.replace(MARK, "\\x")
}

/// Returns a text as it is shown to users: on one line, with `\xff` for a byte that belongs to no character.
pub(crate) fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in printable(text).chars() {
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
            prop_assert_eq!(path_of(&text_of(path)), Some(path.to_owned()));
        }

        #[test]
        fn no_path_has_two_texts(text in "([a\0]|\0[0-9a-f]{2}|é){0,8}") {
            if let Some(path) = path_of(&text) {
                prop_assert_eq!(text_of(&path), text);
            }
        }
    }

    #[test]
    fn characters_slashes_and_dots_cannot_be_written_as_bytes() {
        for text in ["\x00c3\x00a9", "\x002f", "\x002e", "a\0", "\0f", "\0FF", "\0+f"] {
            assert_eq!(path_of(text), None, "{text:?}");
        }
        assert_eq!(shown("a\nb\0ff\0fec"), "a\\nb\\xff\\xfec");
    }
}
