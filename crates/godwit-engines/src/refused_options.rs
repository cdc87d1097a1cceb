//! Options of external programs that godwit does not accept from the user, because it sets them itself or they would
//! break its rules.
//!
//! Each word of the user's options is compared with each refused option:
//!
//! | refused option | words that it matches |
//! |---|---|
//! | long, `--name` | `--name` and `--name=VALUE`, but not abbreviations |
//! | of two characters, `-n` | every word that starts with `-n`, because its value may follow directly |
//! | others, `-name` as in GATK | `-name` only |
//!
//! A value that follows its option as a word of its own is compared too, so a value that looks like a refused option is
//! rejected.

/// An option that godwit does not accept, and the reason or the alternative.
pub(crate) type RefusedOption = (&'static str, &'static str);

/// The reason for refusing an option of a variant caller that godwit sets from its own options.
pub(crate) const SET_BY_GODWIT: &str = "godwit call sets it";

/// Returns the first option of `lists` that the argument `word` sets.
pub(crate) fn find_refused(word: &str, lists: &[&[RefusedOption]]) -> Option<RefusedOption> {
    lists.iter().copied().flatten().copied().find(|(option, _)| is_given_by(option, word))
}

/// Returns whether a word of the user gives `option`, with or without a value in the same word.
pub(crate) fn is_given_by(option: &str, word: &str) -> bool {
    match option.strip_prefix("--") {
        Some(_) => word.split('=').next() == Some(option),
        None => word == option || (!word.starts_with("--") && option.len() == 2 && word.starts_with(option)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_found_with_and_without_a_value_in_the_same_word() {
        let lists: [&[RefusedOption]; 2] = [&[("--out", "a"), ("-o", "b")], &[("-bamout", "c")]];
        for (word, reason) in [
            ("--out", Some("a")),
            ("--out=x", Some("a")),
            ("--outer", None),
            ("-o", Some("b")),
            ("-ox", Some("b")),
            ("-O", None),
            ("-bamout", Some("c")),
            ("-bamoutx", None),
            ("-b", None),
            ("", None),
        ] {
            assert_eq!(find_refused(word, &lists).map(|(_, reason)| reason), reason, "{word}");
        }
    }
}
