//! Converts POSIX regular expressions, as filter expressions contain them, to the syntax of the crate `regex`.
//!
//! The converted pattern matches the same texts (POSIX.1-2017 §9.3 and §9.4, with the extensions of glibc). Matching
//! takes linear time, so patterns with back references are rejected.

use regex::bytes::{Regex, RegexBuilder};

/// Maximum size of a compiled pattern, bytes.
const MAX_COMPILED_BYTES: usize = 1 << 20;

/// The two syntaxes of POSIX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatternSyntax {
    /// Operators such as `+`, `|` and `(` are written with a backslash.
    Basic,
    Extended,
}

/// Compiles a pattern. The error describes why it is invalid.
pub(crate) fn compile(pattern: &str, syntax: PatternSyntax, ignores_case: bool) -> Result<Regex, String> {
    let extended = match syntax {
        PatternSyntax::Basic => to_extended(pattern)?,
        PatternSyntax::Extended => pattern.to_owned(),
    };
    let mut builder = RegexBuilder::new(&convert(&extended)?);
    builder.unicode(false).dot_matches_new_line(true).size_limit(MAX_COMPILED_BYTES).case_insensitive(ignores_case);
    let compiled = builder.build();
    compiled.map_err(|error| format!("a pattern is not valid: {}", last_line(&error.to_string())))
}

/// Returns the last line of an error message; the lines before it repeat the pattern.
fn last_line(message: &str) -> &str {
    message.lines().last().unwrap_or_default().trim()
}

/// Converts a basic regular expression to an extended one.
fn to_extended(pattern: &str) -> Result<String, String> {
    let mut extended = String::with_capacity(pattern.len());
    let mut letters = pattern.chars().peekable();
    // At the start of the pattern, of a group and of an alternative, `*` is a letter and `^` is an anchor.
    let mut is_start = true;
    while let Some(letter) = letters.next() {
        let mut starts_next = false;
        match letter {
            '[' => {
                extended.push('[');
                copy_bracket_expression(&mut letters, &mut extended).ok_or("a pattern has a [ without a ]")?;
            }
            '\\' => match letters.next() {
                Some(operator @ ('(' | ')' | '{' | '}' | '|' | '+' | '?')) => {
                    extended.push(operator);
                    starts_next = matches!(operator, '(' | '|');
                }
                Some(other) => extended.extend(['\\', other]),
                None => return Err("a pattern ends with a backslash".to_owned()),
            },
            '*' if is_start => extended += "\\*",
            '^' if is_start => {
                extended.push('^');
                starts_next = true;
            }
            '$' if is_end(&letters) => extended.push('$'),
            '(' | ')' | '{' | '}' | '|' | '+' | '?' | '^' | '$' => extended.extend(['\\', letter]),
            other => extended.push(other),
        }
        is_start = starts_next;
    }
    Ok(extended)
}

/// Returns whether a pattern, a group or an alternative of a basic regular expression ends here.
fn is_end(rest: &std::iter::Peekable<std::str::Chars>) -> bool {
    let mut rest = rest.clone();
    match (rest.next(), rest.next()) {
        (None, _) => true,
        (Some('\\'), Some(next)) => matches!(next, ')' | '|'),
        _ => false,
    }
}

/// Copies the rest of a bracket expression; `None` if it has no end.
fn copy_bracket_expression(letters: &mut std::iter::Peekable<std::str::Chars>, copy: &mut String) -> Option<()> {
    if let Some(caret) = letters.next_if_eq(&'^') {
        copy.push(caret);
    }
    if let Some(bracket) = letters.next_if_eq(&']') {
        copy.push(bracket);
    }
    loop {
        let letter = letters.next()?;
        copy.push(letter);
        match letter {
            ']' => return Some(()),
            '[' if letters.next_if_eq(&':').is_some() => {
                copy.push(':');
                let mut last = ':';
                loop {
                    let letter = letters.next()?;
                    copy.push(letter);
                    if (last, letter) == (':', ']') {
                        break;
                    }
                    last = letter;
                }
            }
            _ => {}
        }
    }
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
            let compiled = compile(pattern, PatternSyntax::Extended, false);
            assert_eq!(compiled.map(|regex| regex.is_match(text.as_bytes())), Ok(expected), "{pattern}");
        }
        for pattern in ["(", "[a", r"(a)\1", "a\\", "(?i)a", "a{1000}{1000}{1000}"] {
            assert!(compile(pattern, PatternSyntax::Extended, false).is_err(), "{pattern}");
        }
    }

    #[test]
    fn basic_patterns_write_operators_with_a_backslash() {
        for (pattern, text, expected) in [
            ("a+", "a+", true),
            ("a+", "aa", false),
            (r"^a\+$", "aa", true),
            (r"\(ab\)*c", "ababc", true),
            ("(ab)", "(ab)", true),
            (r"^x\|y$", "zy", true),
            ("*a", "*a", true),
            ("a^b$c", "a^b$c", true),
            ("[+*(]", "(", true),
            ("[[:digit:]]", "x5", true),
            (r"a\{2\}", "aa", true),
            ("a{2}", "aa", false),
            ("0/[1-9]", "0/1", true),
        ] {
            let compiled = compile(pattern, PatternSyntax::Basic, false);
            assert_eq!(compiled.map(|regex| regex.is_match(text.as_bytes())), Ok(expected), "{pattern}");
        }
        assert!(compile("AB", PatternSyntax::Basic, true).is_ok_and(|regex| regex.is_match(b"xab")));
        for pattern in [r"\(", "[a", r"\(a\)\1", "a\\"] {
            assert!(compile(pattern, PatternSyntax::Basic, false).is_err(), "{pattern}");
        }
    }
}
