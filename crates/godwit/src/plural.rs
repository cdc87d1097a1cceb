//! Counts of things in messages.

/// Formats a count and a noun in singular or plural: `1 query`, `2 queries`, `2 batches`.
pub fn pluralize(count: u64, noun: &str) -> String {
    match (count, noun.strip_suffix('y')) {
        (1, _) => format!("1 {noun}"),
        (_, Some(stem)) => format!("{count} {stem}ies"),
        _ if noun.ends_with("ch") || noun.ends_with("ss") => format!("{count} {noun}es"),
        _ => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::pluralize;

    #[test]
    fn one_is_singular_and_all_other_counts_are_plural() {
        let counts = [0, 1, 2].map(|count| ["hit", "query", "batch"].map(|noun| pluralize(count, noun)));
        let expected = [["0 hits", "0 queries", "0 batches"], ["1 hit", "1 query", "1 batch"]];
        assert_eq!(counts[..2], expected);
        assert_eq!(counts[2], ["2 hits", "2 queries", "2 batches"]);
        assert_eq!(pluralize(2, "pass"), "2 passes");
    }
}
