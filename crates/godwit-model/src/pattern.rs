//! Glob patterns of names and paths.
//!
//! A pattern is matched in time that grows with the product of its length and that of the name, whatever it is: it may come
//! from a client, and the name from somebody else.

/// A glob pattern. `*` matches any characters but `/`, `?` one of them, and everything else itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    tokens: Vec<Token>,
}

/// An invalid pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a pattern: {problem}")]
pub struct PatternError {
    /// The text.
    pub text: String,
    /// The defect.
    pub problem: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Literal(char),
    /// One character but `/`.
    One,
    /// One character but `/` that is in one of these ranges, or in none of them.
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
    /// Any characters but `/`.
    Any,
    /// Any characters.
    AnyPath,
    /// Any number of directories, each with the `/` behind it.
    Directories,
}

impl Token {
    fn is_repeated(&self) -> bool {
        matches!(self, Self::Any | Self::AnyPath | Self::Directories)
    }

    fn takes(&self, character: char) -> bool {
        match self {
            Self::Literal(literal) => *literal == character,
            Self::AnyPath | Self::Directories => true,
            Self::One | Self::Any => character != '/',
            Self::Class { negated, ranges } => {
                let is_in = ranges.iter().any(|(first, last)| (*first..=*last).contains(&character));
                character != '/' && is_in != *negated
            }
        }
    }
}

impl Pattern {
    /// A pattern of names of datasets, in which `**` matches any characters, `/` too.
    pub fn of_names(text: &str) -> Self {
        let mut tokens = Vec::new();
        let mut rest = text.chars().peekable();
        while let Some(character) = rest.next() {
            tokens.push(match character {
                '*' if rest.next_if_eq(&'*').is_some() => Token::AnyPath,
                '*' => Token::Any,
                '?' => Token::One,
                literal => Token::Literal(literal),
            });
        }
        Self { text: text.to_owned(), tokens }
    }

    /// A pattern of paths of files, as shells with `globstar` have it: `**` is a whole part of a path and matches any number of
    /// directories, none too; `[a-z]` and `[!a-z]` match one character.
    ///
    /// # Errors
    /// [`PatternError`] for a bracket that is not closed, and for `**` beside other characters.
    pub fn of_paths(text: &str) -> Result<Self, PatternError> {
        let wrong = |problem| PatternError { text: text.to_owned(), problem };
        let mut tokens = Vec::new();
        let parts: Vec<&str> = text.split('/').collect();
        for (at, part) in parts.iter().enumerate() {
            let is_last = at + 1 == parts.len();
            match *part {
                "**" if is_last => tokens.push(Token::AnyPath),
                "**" => tokens.push(Token::Directories),
                part if part.contains("**") => return Err(wrong("** has to be a whole part of a path")),
                part => {
                    of_part(part, &mut tokens)
                        .ok_or_else(|| wrong("a [ is not closed; write [[] for one by itself"))?;
                    tokens.extend((!is_last).then_some(Token::Literal('/')));
                }
            }
        }
        Ok(Self { text: text.to_owned(), tokens })
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether the pattern matches a name.
    pub fn matches(&self, name: &str) -> bool {
        // Whether what came so far may be followed by what these tokens match.
        let mut reached = vec![false; self.tokens.len() + 1];
        reached[0] = true;
        self.skip_repeated(&mut reached, '/');
        let mut next = reached.clone();
        for character in name.chars() {
            next.fill(false);
            for (at, token) in
                self.tokens.iter().enumerate().filter(|(at, token)| reached[*at] && token.takes(character))
            {
                next[if token.is_repeated() { at } else { at + 1 }] = true;
            }
            self.skip_repeated(&mut next, character);
            std::mem::swap(&mut reached, &mut next);
        }
        reached[self.tokens.len()]
    }

    /// Goes on behind tokens that match nothing more; `last` is the character before.
    fn skip_repeated(&self, reached: &mut [bool], last: char) {
        for (at, token) in self.tokens.iter().enumerate() {
            let may_end = *token != Token::Directories || last == '/';
            reached[at + 1] |= reached[at] && token.is_repeated() && may_end;
        }
    }
}

/// The tokens of a part of a path; `None` where a bracket is not closed.
fn of_part(part: &str, tokens: &mut Vec<Token>) -> Option<()> {
    let mut rest = part.chars();
    while let Some(character) = rest.next() {
        tokens.push(match character {
            '*' => Token::Any,
            '?' => Token::One,
            '[' => class_of(&mut rest)?,
            literal => Token::Literal(literal),
        });
    }
    Some(())
}

/// The class behind an opening bracket. A closing bracket that comes first belongs to the class.
fn class_of(rest: &mut std::str::Chars) -> Option<Token> {
    let negated = rest.as_str().starts_with(['!', '^']);
    let body = if negated { &rest.as_str()[1..] } else { rest.as_str() };
    let first = body.chars().next()?.len_utf8();
    let end = first + body[first..].find(']')?;
    let letters: Vec<char> = body[..end].chars().collect();
    *rest = body[end + 1..].chars();
    let (mut ranges, mut at) = (Vec::new(), 0);
    while at < letters.len() {
        match letters[at..] {
            [low, '-', high, ..] => {
                ranges.push((low, high));
                at += 3;
            }
            _ => {
                ranges.push((letters[at], letters[at]));
                at += 1;
            }
        }
    }
    Some(Token::Class { negated, ranges })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stay_in_their_directory_unless_they_say_otherwise() {
        for (pattern, name, fitting) in [
            ("*.vcf.gz", "a.vcf.gz", true),
            ("*.vcf.gz", "x/a.vcf.gz", false),
            ("*/*.bam", "x/a.bam", true),
            ("**.bam", "x/y/a.bam", true),
            ("x/**/a.bam", "x/y/z/a.bam", true),
            ("a?.bam", "a1.bam", true),
            ("a?.bam", "a.bam", false),
            ("*", "é", true),
            ("", "", true),
            ("a", "", false),
        ] {
            assert_eq!(Pattern::of_names(pattern).matches(name), fitting, "{pattern} {name}");
        }
    }

    #[test]
    fn patterns_of_paths_are_those_of_shells() {
        for (pattern, path, fitting) in [
            ("s/**/*.bam", "s/b.bam", true),
            ("s/**/*.bam", "s/t/u/b.bam", true),
            ("s/**/b.bam", "s/tb.bam", false),
            ("**/b", "b", true),
            ("**/b", "ab", false),
            ("s/**", "s/t/u", true),
            ("[a-c]x[!0-9]", "bxz", true),
            ("[a-c]x[!0-9]", "bx7", false),
            ("[!a]", "/", false),
            ("[]x]", "]", true),
            ("[[]", "[", true),
            ("a[-z]", "a-", true),
            ("*", "a/b", false),
        ] {
            assert_eq!(Pattern::of_paths(pattern).unwrap().matches(path), fitting, "{pattern} {path}");
        }
        for pattern in ["[", "[]", "a**", "x/[a"] {
            assert!(Pattern::of_paths(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn many_stars_do_not_multiply() {
        // Without a bound, these would take longer than anybody waits.
        let (name, stars) = ("a".repeat(60), "*a".repeat(50));
        assert!(!Pattern::of_names(&format!("{stars}*b.bam")).matches(&format!("{name}.bam")));
        assert!(!Pattern::of_names(&"**a".repeat(50)).matches(&"/".repeat(60)));
        assert!(!Pattern::of_paths(&format!("{stars}*b/x")).unwrap().matches(&format!("{name}/x")));
        assert!(!Pattern::of_paths(&format!("{}b", "**/".repeat(50))).unwrap().matches(&"a/".repeat(60)));
        assert!(Pattern::of_names(&format!("{stars}*")).matches(&name));
    }
}
