//! Suggestions of similar known names, for error messages about a misspelled name.

/// Returns the known name that is most similar to an unknown name, or `None` if no known name is similar.
///
/// # Examples
///
/// ```
/// use godwit_model::nearest_name;
///
/// let columns = ["contig", "position", "mapping_quality"];
/// assert_eq!(nearest_name("mapping_qual", columns), Some("mapping_quality"));
/// assert_eq!(nearest_name("chromosome", columns), None);
/// ```
pub fn nearest_name<'w>(word: &str, known: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    // clap suggests options by the same similarity (Jaro) and the same threshold (0.7).
    let scored = known.into_iter().map(|candidate| {
        let is_same = candidate.eq_ignore_ascii_case(word);
        (if is_same { 1.0 } else { strsim::jaro(word, candidate) }, candidate)
    });
    scored.filter(|(score, _)| *score > 0.7).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, candidate)| candidate)
}

/// Returns `; did you mean X?` if a known name is similar to `word`, else an empty string.
///
/// # Examples
///
/// ```
/// use godwit_model::did_you_mean;
///
/// let callers = ["bcftools", "freebayes", "gatk"];
/// assert_eq!(did_you_mean("freebays", callers), "; did you mean freebayes?");
/// assert_eq!(did_you_mean("bowtie", callers), "");
/// ```
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
