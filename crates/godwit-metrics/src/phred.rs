//! Quality scores: those of error probabilities, and their letters.

/// Offset of a quality letter in the tag `OQ`.
pub(crate) const QUALITY_LETTER_OFFSET: u8 = 33;

/// Returns the Phred-scaled quality of an error probability as an integer (htsjdk 4.2.0
/// `QualityUtil.getPhredScoreFromErrorProbability`). As in Java, the score of 0 is -1 and that of a negative value 0.
pub(crate) fn phred_score(probability: f64) -> i32 {
    let rounded = (-10.0 * probability.log10() + 0.5).floor();
    // Java rounds to 64 bits, which saturate, and keeps the lower 32.
    rounded as i64 as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_rounded_as_in_java() {
        assert_eq!([0.1, 0.001, 0.5, 0.0, -1.0].map(phred_score), [10, 30, 3, -1, 0]);
    }
}
