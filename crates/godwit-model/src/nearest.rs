//! The known name that is most like an unknown one, for messages.

/// The known word that comes nearest to one that is not known.
pub fn nearest<'w>(word: &str, known: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    // The measure and the bound by which clap suggests options.
    let scored = known.into_iter().map(|candidate| {
        let is_same = candidate.eq_ignore_ascii_case(word);
        (if is_same { 1.0 } else { strsim::jaro(word, candidate) }, candidate)
    });
    scored.filter(|(score, _)| *score > 0.7).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, candidate)| candidate)
}

/// `; did you mean X?` where something is near.
pub fn suggestion<'w>(word: &str, known: impl IntoIterator<Item = &'w str>) -> String {
    nearest(word, known).map(|known| format!("; did you mean {known}?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_alike_is_suggested() {
        let known = ["position", "end_position", "NM"];
        assert_eq!(nearest("positon", known), Some("position"));
        assert_eq!(nearest("nm", known), Some("NM"));
        assert_eq!(nearest("sequence", known), None);
        assert_eq!(suggestion("positon", known), "; did you mean position?");
    }
}
