//! The part of Rust's grammar that is needed to count lines: comments and literals are blanked, braces are matched.
//!
//! In: the text of a Rust file. Out: the same text with every comment and literal replaced by spaces, line by line; and
//! from that the functions with their lengths, and the number of lines in inline test modules.

/// A function and its length.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    /// The 1-based line of its `fn`.
    pub line: usize,
    /// The number of lines between the braces of its body.
    pub body_lines: usize,
}

/// Returns the text with comments, strings and character literals blanked; line breaks stay.
pub fn blank_comments_and_literals(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < characters.len() {
        let end = literal_end(&characters, at);
        if end > at {
            out.extend(characters[at..end].iter().map(|&c| if c == '\n' { '\n' } else { ' ' }));
            at = end;
        } else {
            out.push(characters[at]);
            at += 1;
        }
    }
    out
}

/// Returns the end of the comment or literal that starts at `at`; `at` itself if none does.
fn literal_end(text: &[char], at: usize) -> usize {
    let starts = |prefix: &str| text[at..].iter().copied().take(prefix.len()).eq(prefix.chars());
    if starts("//") {
        return find_from(text, at, |rest| rest[0] == '\n').unwrap_or(text.len());
    }
    if starts("/*") {
        return block_comment_end(text, at);
    }
    if text[at] == '\'' {
        return character_end(text, at);
    }
    if text[at] == '"' {
        return string_end(text, at + 1);
    }
    // r"..", br#".."#, cr".."; not r#name and not the r at the end of a name.
    let in_name = at > 0 && (text[at - 1].is_alphanumeric() || text[at - 1] == '_');
    let raw = if in_name { None } else { ["r", "br", "cr"].into_iter().find(|prefix| starts(prefix)) };
    let Some(prefix) = raw else { return at };
    let hashes = text[at + prefix.len()..].iter().take_while(|&&c| c == '#').count();
    let open = at + prefix.len() + hashes;
    if text.get(open) != Some(&'"') {
        return at;
    }
    let closes =
        |rest: &[char]| rest[0] == '"' && rest[1..].iter().take(hashes).filter(|&&c| c == '#').count() == hashes;
    find_from(text, open + 1, closes).map_or(text.len(), |quote| quote + 1 + hashes)
}

fn find_from(text: &[char], from: usize, is_here: impl Fn(&[char]) -> bool) -> Option<usize> {
    (from..text.len()).find(|&at| is_here(&text[at..]))
}

/// Returns the end of a block comment. Block comments nest.
fn block_comment_end(text: &[char], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0);
    while at + 1 < text.len() {
        match (text[at], text[at + 1]) {
            ('/', '*') => (depth, at) = (depth + 1, at + 2),
            ('*', '/') => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// Returns the end of a character literal. A quote opens one if one character or an escape and another quote follow;
/// otherwise it is a lifetime.
fn character_end(text: &[char], at: usize) -> usize {
    match text.get(at + 1) {
        Some('\\') => find_from(text, at + 3, |rest| rest[0] == '\'').map_or(text.len(), |quote| quote + 1),
        Some(_) if text.get(at + 2) == Some(&'\'') => at + 3,
        _ => at,
    }
}

fn string_end(text: &[char], mut at: usize) -> usize {
    while at < text.len() {
        match text[at] {
            '"' => return at + 1,
            '\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

/// Returns the functions with a body in blanked text, nested ones too.
pub fn functions(blanked: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for (at, _) in blanked.match_indices("fn ") {
        let starts_word = !blanked[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let name: String =
            blanked[at + 3..].trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if !starts_word || name.is_empty() {
            continue; // The end of a longer word, or a macro's `fn $name`.
        }
        if let Some((open, close)) = function_body(blanked, at) {
            let line = 1 + line_breaks(&blanked[..at]);
            let body_lines = line_breaks(&blanked[open..close]).saturating_sub(1);
            found.push(Function { name, line, body_lines });
        }
    }
    found
}

/// Returns the braces of the first body after `from`; `None` if a `;` ends the item first.
fn function_body(blanked: &str, from: usize) -> Option<(usize, usize)> {
    let mut depth = 0;
    for (at, byte) in blanked.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b';' if depth == 0 => return None,
            b'{' if depth == 0 => return closing_brace(blanked, at).map(|close| (at, close)),
            _ => {}
        }
    }
    None
}

fn closing_brace(blanked: &str, open: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, byte) in blanked.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// Returns the number of lines of `#[cfg(test)] mod .. { .. }` blocks in blanked text.
pub fn test_module_lines(blanked: &str) -> usize {
    const ATTRIBUTE: &str = "#[cfg(test)]";
    let mut lines = 0;
    for (at, _) in blanked.match_indices(ATTRIBUTE) {
        let item = blanked[at + ATTRIBUTE.len()..].trim_start();
        if item.starts_with("mod ")
            && let Some((_, close)) = function_body(blanked, at + ATTRIBUTE.len())
        {
            lines += 1 + line_breaks(&blanked[at..close]);
        }
    }
    lines
}

fn line_breaks(text: &str) -> usize {
    text.bytes().filter(|&byte| byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function_lengths(text: &str) -> Vec<(String, usize, usize)> {
        functions(&blank_comments_and_literals(text))
            .into_iter()
            .map(|found| (found.name, found.line, found.body_lines))
            .collect()
    }

    #[test]
    fn braces_in_comments_and_literals_do_not_count() {
        let text = "fn a() {\n    let s = \"}\"; // }\n    /* } /* } */ } */\n    let c = ('}', '\\'', b'{', '\\u{7d}');\n    r#\"}\"}\"#;\n}\nfn b() {}\n";
        assert_eq!(function_lengths(text), [("a".to_owned(), 1, 4), ("b".to_owned(), 7, 0)]);
    }

    #[test]
    fn blanking_keeps_every_line_and_column() {
        let text = "let a = \"x\ny\\\"\"; // é\nlet 'a: loop { break 'a; }\n";
        let blanked = blank_comments_and_literals(text);
        assert_eq!(blanked.chars().count(), text.chars().count());
        assert_eq!(line_breaks(&blanked), line_breaks(text));
        assert!(blanked.contains("let 'a: loop { break 'a; }"));
        assert!(!blanked.contains('x') && !blanked.contains('é'));
    }

    #[test]
    fn lifetimes_and_raw_names_are_code() {
        let text = "fn a<'a>(r#type: &'a str) -> &'a str {\n    r#type\n}\n";
        assert_eq!(blank_comments_and_literals(text), text);
        assert_eq!(function_lengths(text), [("a".to_owned(), 1, 1)]);
    }

    #[test]
    fn a_body_starts_after_the_signature_however_long() {
        let text = "fn a(\n    b: [u8; { 4 }],\n) -> u8\nwhere\n    u8: Copy,\n{\n    b[0]\n}\n";
        assert_eq!(function_lengths(text), [("a".to_owned(), 1, 1)]);
    }

    #[test]
    fn declarations_and_function_pointers_have_no_body() {
        let text = "trait T { fn a(&self); }\ntype F = fn(u8) -> u8;\nstruct S { f: fn(u8) }\n";
        assert_eq!(function_lengths(text), []);
    }

    #[test]
    fn nested_functions_count_in_both() {
        let text = "fn a() {\n    fn b() {\n        1;\n    }\n}\n";
        assert_eq!(function_lengths(text), [("a".to_owned(), 1, 3), ("b".to_owned(), 2, 1)]);
    }

    #[test]
    fn inline_test_modules_are_measured_whole() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { \"}\"; }\n}\n#[cfg(test)]\nmod apart;\n";
        assert_eq!(test_module_lines(&blank_comments_and_literals(text)), 4);
    }

    #[test]
    fn text_that_ends_too_early_does_not_panic() {
        for text in
            ["\"", "'", "'\\", "\"\\", "/*", "/", "r#\"", "br", "fn ", "fn a(", "fn a() {", "#[cfg(test)] mod a {"]
        {
            functions(&blank_comments_and_literals(text));
            test_module_lines(&blank_comments_and_literals(text));
        }
    }
}
