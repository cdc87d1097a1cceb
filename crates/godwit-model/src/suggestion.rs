//! Suggestions for misspelled names, for messages.

/// Returns the known name that is most similar to an unknown one.
pub fn nearest_name<'w>(word: &str, known: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    // The measure and the threshold by which clap suggests options.
    let scored = known.into_iter().map(|candidate| {
        let is_same = candidate.eq_ignore_ascii_case(word);
        (if is_same { 1.0 } else { strsim::jaro(word, candidate) }, candidate)
    });
    scored.filter(|(score, _)| *score > 0.7).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, candidate)| candidate)
}

/// Returns `; did you mean X?` if a known name is similar, else an empty text.
pub fn did_you_mean<'w>(word: &str, known: impl IntoIterator<Item = &'w str>) -> String {
    nearest_name(word, known).map(|known| format!("; did you mean {known}?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_alike_is_suggested() {
        let known = ["position", "end_position", "NM"];
        assert_eq!(nearest_name("positon", known), Some("position"));
        assert_eq!(nearest_name("nm", known), Some("NM"));
        assert_eq!(nearest_name("sequence", known), None);
        assert_eq!(did_you_mean("positon", known), "; did you mean position?");
    }
}
