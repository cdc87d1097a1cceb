//! Glob patterns for dataset names and file paths.
//!
//! Matching takes time in proportion to the length of the pattern times the length of the name, for any pattern. This
//! limit is needed because one client may choose the pattern and another client the names.

/// A glob pattern. `*` matches any number of characters except `/`, and `?` matches one character except `/`. Other
/// characters match themselves, apart from the additions that each constructor describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlobPattern {
    text: String,
    tokens: Vec<GlobToken>,
}

/// An invalid pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a pattern: {problem}")]
pub struct GlobPatternError {
    /// The text of the pattern.
    pub text: String,
    /// The reason why the text is not a pattern.
    pub problem: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum GlobToken {
    Literal(char),
    /// One character except `/`.
    AnyChar,
    /// One character except `/` that is in one of these ranges; if `negated`, that is in none of these ranges.
    CharClass {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
    /// Any number of characters except `/`.
    AnyChars,
    /// Any number of characters, including `/`.
    AnyPathChars,
    /// Any number of directories, each with its trailing `/`.
    Directories,
}

impl GlobToken {
    fn is_repeated(&self) -> bool {
        matches!(self, Self::AnyChars | Self::AnyPathChars | Self::Directories)
    }

    fn matches_char(&self, character: char) -> bool {
        match self {
            Self::Literal(literal) => *literal == character,
            Self::AnyPathChars | Self::Directories => true,
            Self::AnyChar | Self::AnyChars => character != '/',
            Self::CharClass { negated, ranges } => {
                let is_in = ranges.iter().any(|(first, last)| (*first..=*last).contains(&character));
                character != '/' && is_in != *negated
            }
        }
    }
}

impl GlobPattern {
    /// Parses a pattern for names of datasets. `**` matches any number of characters, including `/`.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_model::GlobPattern;
    ///
    /// let pattern = GlobPattern::for_dataset_names("cohort/*.vcf.gz");
    /// assert!(pattern.matches("cohort/chr20.vcf.gz"));
    /// assert!(!pattern.matches("cohort/2024/chr20.vcf.gz"));
    /// assert!(GlobPattern::for_dataset_names("cohort/**.vcf.gz").matches("cohort/2024/chr20.vcf.gz"));
    /// ```
    pub fn for_dataset_names(text: &str) -> Self {
        let mut tokens = Vec::new();
        let mut rest = text.chars().peekable();
        while let Some(character) = rest.next() {
            tokens.push(match character {
                '*' if rest.next_if_eq(&'*').is_some() => GlobToken::AnyPathChars,
                '*' => GlobToken::AnyChars,
                '?' => GlobToken::AnyChar,
                literal => GlobToken::Literal(literal),
            });
        }
        Self { text: text.to_owned(), tokens }
    }

    /// Parses a pattern for file paths, with the syntax of shells that have `globstar`. `**` must be a whole path
    /// component and matches zero or more directories. `[a-z]` matches one character in a range, and `[!a-z]` one
    /// outside.
    ///
    /// # Errors
    /// [`GlobPatternError`] for a bracket that is not closed, and for a path component that contains `**` and other
    /// characters.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_model::GlobPattern;
    ///
    /// let pattern = GlobPattern::for_file_paths("runs/**/lane[1-4].bam")?;
    /// assert!(pattern.matches("runs/lane1.bam"));
    /// assert!(pattern.matches("runs/2024/may/lane4.bam"));
    /// assert!(!pattern.matches("runs/lane5.bam"));
    /// assert!(GlobPattern::for_file_paths("runs/lane[1-4.bam").is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn for_file_paths(text: &str) -> Result<Self, GlobPatternError> {
        let wrong = |problem| GlobPatternError { text: text.to_owned(), problem };
        let mut tokens = Vec::new();
        let parts: Vec<&str> = text.split('/').collect();
        for (at, part) in parts.iter().enumerate() {
            let is_last = at + 1 == parts.len();
            match *part {
                "**" if is_last => tokens.push(GlobToken::AnyPathChars),
                "**" => tokens.push(GlobToken::Directories),
                part if part.contains("**") => {
                    return Err(wrong("** must be a whole component of a path, as in a/**/b"));
                }
                part => {
                    tokenize_path_part(part, &mut tokens)
                        .ok_or_else(|| wrong("a [ is not closed; write [[] to match the character ["))?;
                    tokens.extend((!is_last).then_some(GlobToken::Literal('/')));
                }
            }
        }
        Ok(Self { text: text.to_owned(), tokens })
    }

    /// Returns the pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether the pattern matches a name.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_model::GlobPattern;
    ///
    /// let pattern = GlobPattern::for_dataset_names("sample?.bam");
    /// assert!(pattern.matches("sample1.bam"));
    /// assert!(!pattern.matches("sample10.bam"));
    /// ```
    pub fn matches(&self, name: &str) -> bool {
        // `reached[i]` is true if the first `i` tokens can match all characters that were read so far.
        let mut reached = vec![false; self.tokens.len() + 1];
        reached[0] = true;
        self.follow_empty_matches(&mut reached, '/');
        let mut next = reached.clone();
        for character in name.chars() {
            next.fill(false);
            for (at, token) in
                self.tokens.iter().enumerate().filter(|(at, token)| reached[*at] && token.matches_char(character))
            {
                next[if token.is_repeated() { at } else { at + 1 }] = true;
            }
            self.follow_empty_matches(&mut next, character);
            std::mem::swap(&mut reached, &mut next);
        }
        reached[self.tokens.len()]
    }

    /// Extends `reached` past tokens that can match zero characters. `last` is the character that was read last.
    fn follow_empty_matches(&self, reached: &mut [bool], last: char) {
        for (at, token) in self.tokens.iter().enumerate() {
            let may_end = *token != GlobToken::Directories || last == '/';
            reached[at + 1] |= reached[at] && token.is_repeated() && may_end;
        }
    }
}

/// Appends the tokens of one path component; returns `None` if a bracket is not closed.
fn tokenize_path_part(part: &str, tokens: &mut Vec<GlobToken>) -> Option<()> {
    let mut rest = part.chars();
    while let Some(character) = rest.next() {
        tokens.push(match character {
            '*' => GlobToken::AnyChars,
            '?' => GlobToken::AnyChar,
            '[' => parse_char_class(&mut rest)?,
            literal => GlobToken::Literal(literal),
        });
    }
    Some(())
}

/// Parses the character class after an opening bracket. If its first character is a closing bracket, that bracket is a
/// member of the class.
fn parse_char_class(rest: &mut std::str::Chars) -> Option<GlobToken> {
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
    Some(GlobToken::CharClass { negated, ranges })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A regular expression for patterns of file paths, without classes of characters.
    const PATH_PATTERNS: &str = r"((\*\*|[aé?*]{0,2})/){0,4}(\*\*|[aé?*]{0,2})";

    /// Matches a name by trying all lengths for each asterisk. The time is exponential.
    fn matches_name(pattern: &[char], name: &[char]) -> bool {
        let matches_after = |rest: &[char], count: usize| matches_name(rest, &name[count..]);
        match pattern {
            [] => name.is_empty(),
            ['*', '*', rest @ ..] => (0..=name.len()).any(|count| matches_after(rest, count)),
            ['*', rest @ ..] => {
                let end = name.iter().position(|character| *character == '/').unwrap_or(name.len());
                (0..=end).any(|count| matches_after(rest, count))
            }
            ['?', rest @ ..] => name.first().is_some_and(|first| *first != '/') && matches_after(rest, 1),
            [literal, rest @ ..] => name.first() == Some(literal) && matches_after(rest, 1),
        }
    }

    /// Matches a path component by component.
    fn matches_path(pattern: &[&str], path: &[&str]) -> bool {
        match pattern {
            [] => path.is_empty(),
            ["**"] => !path.is_empty(),
            ["**", rest @ ..] => (0..=path.len()).any(|count| matches_path(rest, &path[count..])),
            [part, rest @ ..] => path.split_first().is_some_and(|(first, after)| {
                let (part, first): (Vec<char>, Vec<char>) = (part.chars().collect(), first.chars().collect());
                matches_name(&part, &first) && matches_path(rest, after)
            }),
        }
    }

    proptest! {
        #[test]
        fn names_match_as_in_the_slow_matcher(pattern in "[aé/?*]{0,8}", name in "[aé/]{0,8}") {
            let expected = matches_name(&pattern.chars().collect::<Vec<_>>(), &name.chars().collect::<Vec<_>>());
            prop_assert_eq!(GlobPattern::for_dataset_names(&pattern).matches(&name), expected);
        }

        #[test]
        fn paths_match_as_in_the_slow_matcher(pattern in PATH_PATTERNS, path in "[aé/]{0,8}") {
            let parts: Vec<&str> = pattern.split('/').collect();
            let Ok(glob) = GlobPattern::for_file_paths(&pattern) else { return Ok(()) };
            prop_assert_eq!(glob.matches(&path), matches_path(&parts, &path.split('/').collect::<Vec<_>>()));
        }
    }

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
            assert_eq!(GlobPattern::for_dataset_names(pattern).matches(name), fitting, "{pattern} {name}");
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
            assert_eq!(GlobPattern::for_file_paths(pattern).unwrap().matches(path), fitting, "{pattern} {path}");
        }
        for pattern in ["[", "[]", "a**", "x/[a"] {
            assert!(GlobPattern::for_file_paths(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn many_stars_do_not_multiply() {
        // For these patterns, a matcher with backtracking would take exponential time.
        assert!(!GlobPattern::for_dataset_names("*a*a*a*a*b").matches(&"a".repeat(10_000)));
        let (name, stars) = ("a".repeat(60), "*a".repeat(50));
        assert!(!GlobPattern::for_dataset_names(&format!("{stars}*b.bam")).matches(&format!("{name}.bam")));
        assert!(!GlobPattern::for_dataset_names(&"**a".repeat(50)).matches(&"/".repeat(60)));
        assert!(!GlobPattern::for_file_paths(&format!("{stars}*b/x")).unwrap().matches(&format!("{name}/x")));
        assert!(!GlobPattern::for_file_paths(&format!("{}b", "**/".repeat(50))).unwrap().matches(&"a/".repeat(60)));
        assert!(GlobPattern::for_dataset_names(&format!("{stars}*")).matches(&name));
    }
}
