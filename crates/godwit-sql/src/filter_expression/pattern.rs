//! Converts POSIX extended regular expressions, as filter expressions contain them, to the syntax of the crate `regex`.
//!
//! The converted pattern matches the same texts (POSIX.1-2017 §9.4, with the escapes of glibc). Matching takes linear
//! time, so patterns with back references are rejected.

use regex::bytes::{Regex, RegexBuilder};

/// Maximum size of a compiled pattern, bytes.
const MAX_COMPILED_BYTES: usize = 1 << 20;

/// Compiles a pattern. The error describes why it is invalid.
pub(super) fn compile(pattern: &str) -> Result<Regex, String> {
    let converted = convert(pattern)?;
    let compiled =
        RegexBuilder::new(&converted).unicode(false).dot_matches_new_line(true).size_limit(MAX_COMPILED_BYTES).build();
    compiled.map_err(|error| format!("a pattern is not valid: {}", last_line(&error.to_string())))
}

/// Returns the last line of an error message; the lines before it repeat the pattern.
fn last_line(message: &str) -> &str {
    message.lines().last().unwrap_or_default().trim()
}

fn convert(pattern: &str) -> Result<String, String> {
    let mut converted = String::with_capacity(pattern.len());
    let mut letters = pattern.chars().peekable();
    let mut is_group_start = false;
    while let Some(letter) = letters.next() {
        match letter {
            '[' => converted += &bracket_expression(&mut letters).ok_or("a pattern has a [ without a ]")?,
            '\\' => match letters.next() {
                Some(digit @ '1'..='9') => {
                    return Err(format!("a pattern has the back reference \\{digit}, which is not possible"));
                }
                Some(class @ ('w' | 'W' | 's' | 'S' | 'b' | 'B')) => converted.extend(['\\', class]),
                Some('<') => converted += r"\b{start}",
                Some('>') => converted += r"\b{end}",
                Some('`') => converted += r"\A",
                Some('\'') => converted += r"\z",
                Some(other) => push_literal(&mut converted, other),
                None => return Err("a pattern ends with a backslash".to_owned()),
            },
            '?' if is_group_start => return Err("a pattern has a ? after a (".to_owned()),
            // Special characters of POSIX that have the same meaning in the crate.
            '(' | ')' | '.' | '*' | '+' | '?' | '|' | '^' | '$' | '{' | '}' => converted.push(letter),
            other => push_literal(&mut converted, other),
        }
        is_group_start = letter == '(';
    }
    Ok(converted)
}

/// Appends a letter that matches itself.
fn push_literal(converted: &mut String, letter: char) {
    let mut bytes = [0; 4];
    converted.push_str(&regex::escape(letter.encode_utf8(&mut bytes)));
}

/// Converts the rest of a bracket expression; `None` if it has no end. A backslash is a letter like any other there.
fn bracket_expression(letters: &mut std::iter::Peekable<std::str::Chars>) -> Option<String> {
    let mut converted = "[".to_owned();
    if letters.next_if_eq(&'^').is_some() {
        converted.push('^');
    }
    let mut is_first = true;
    loop {
        match letters.next()? {
            ']' if !is_first => break,
            '[' if letters.next_if_eq(&':').is_some() => {
                let mut class = String::new();
                loop {
                    match letters.next()? {
                        ':' if letters.next_if_eq(&']').is_some() => break,
                        letter => class.push(letter),
                    }
                }
                converted += &format!("[:{class}:]");
            }
            '-' if !is_first && letters.peek().is_some_and(|next| *next != ']') => converted.push('-'),
            letter => {
                if letter.is_ascii_punctuation() {
                    converted.push('\\');
                }
                converted.push(letter);
            }
        }
        is_first = false;
    }
    converted.push(']');
    Some(converted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_what_posix_matches() {
        for (pattern, text, expected) in [
            ("^chr[0-9]+$", "chr20", true),
            ("[]a]", "]", true),
            ("[^]a]", "a", false),
            (r"[\d]", "d", true),
            (r"[\d]", "\\", true),
            (r"[\d]", "5", false),
            ("[[:digit:]x]{2}", "5x", true),
            ("[a-]", "-", true),
            ("[&&b]", "&", true),
            (r"a\.b", "axb", false),
            ("a.b", "a\nb", true),
            (r"\<b", "a b", true),
            ("(a|b)*c", "c", true),
            ("#", "a#b", true),
        ] {
            assert_eq!(compile(pattern).map(|regex| regex.is_match(text.as_bytes())), Ok(expected), "{pattern}");
        }
        for pattern in ["(", "[a", r"(a)\1", "a\\", "(?i)a", "a{1000}{1000}{1000}"] {
            assert!(compile(pattern).is_err(), "{pattern}");
        }
    }
}
