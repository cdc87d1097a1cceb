//! Quotes words for a POSIX shell.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::FleetError;

/// Quotes a word if a POSIX shell would interpret it. Single quotes preserve every byte except single quotes.
pub(crate) fn quote_word(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Quotes words and joins them to a command line.
pub(crate) fn quote_command_line<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().map(quote_word).collect::<Vec<_>>().join(" ")
}

/// Returns a word as text for a script or a message; `what` describes the word in an error message.
///
/// Words that are not UTF-8 are rejected, because users could not read them in a script. A word with a NUL byte is
/// rejected, because the system ends it there.
pub(crate) fn utf8_word<'a>(what: &str, word: &'a OsStr) -> Result<&'a str, FleetError> {
    let shown = || String::from_utf8_lossy(word.as_bytes()).into_owned();
    let text = word.to_str().ok_or_else(|| FleetError::invalid_value(what, shown(), "the word is not UTF-8"))?;
    if text.contains('\0') {
        return Err(FleetError::invalid_value(what, shown(), "the word contains a NUL byte"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    fn echoed(shell: &str, words: &[&str]) -> Vec<u8> {
        let line = format!("printf '%s\\0' {}", quote_command_line(words.iter().copied()));
        Command::new(shell).args(["-c", &line]).output().unwrap().stdout
    }

    fn expected(words: &[&str]) -> Vec<u8> {
        words.iter().flat_map(|word| word.bytes().chain([0])).collect()
    }

    #[test]
    fn odd_words_come_back_from_a_shell_as_they_were() {
        let words =
            ["", " ", "it's", "a\nb", "$HOME", "`id`", "\\", "#x", "~", "*", "é", "-n", "a=b", "!x", "''", "a;b"];
        assert_eq!(echoed("sh", &words), expected(&words));
        assert_eq!(echoed("bash", &words), expected(&words));
    }

    #[test]
    fn plain_words_stay_readable() {
        assert_eq!(quote_command_line(["godwit", "node", "--at=/tmp/x", "a b"]), "godwit node --at=/tmp/x 'a b'");
    }

    #[test]
    fn bytes_that_no_script_can_hold_are_refused() {
        assert!(utf8_word("an argument", OsStr::from_bytes(b"\xff")).is_err());
        assert!(utf8_word("an argument", OsStr::new("a\0b")).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_words_come_back_from_a_shell(words in prop::collection::vec("[^\0]{0,12}", 1..6)) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            prop_assert_eq!(echoed("sh", &words), expected(&words));
        }
    }
}
