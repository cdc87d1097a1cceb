//! Estimates of qualities from counts, and conversions between qualities and error probabilities.
//!
//! The estimate follows GATK 4.6.2.0, `utils/recalibration/RecalDatum.java`: the whole number from 0 to 60 with the
//! highest posterior probability. The likelihood is the binomial distribution of the errors. The prior is a normal
//! distribution with the standard deviation 0.5 around the expected quality.

use std::sync::LazyLock;

use crate::counts::ErrorCounts;

/// Maximum estimated quality (Phred).
const MAX_ESTIMATE: u8 = 60;
/// Distance from the expected quality (Phred) beyond which the prior probability no longer decreases.
const MAX_PRIOR_DISTANCE: u32 = 40;
/// Number of errors, and of correct bases, that are added to the counts, so that neither is 0.
const SMOOTHING_COUNT: u64 = 1;
/// Maximum number of observations in GATK's binomial distribution.
const MAX_OBSERVATIONS: u64 = i32::MAX as u64 - 1;

/// Natural logarithms of the probabilities of an error and of a correct base, for each quality that can be estimated.
static LOG_PROBABILITIES: LazyLock<Vec<(f64, f64)>> = LazyLock::new(|| {
    let error = (0..=MAX_ESTIMATE).map(|quality| error_probability(f64::from(quality)));
    error.map(|error| (error.ln(), (1.0 - error).ln())).collect()
});

/// Returns the error probability of a quality (Phred).
pub(crate) fn error_probability(quality: f64) -> f64 {
    10f64.powf(quality / -10.0)
}

/// Returns the quality (Phred, 1 to 93) that is closest to an error probability.
pub(crate) fn quality_of_probability(probability: f64) -> u8 {
    bounded_quality(round(-10.0 * probability.log10()))
}

/// Rounds to a whole number, ties upwards, as `Math.round` of Java does.
pub(crate) fn round(value: f64) -> f64 {
    let floor = value.floor();
    if value - floor >= 0.5 { floor + 1.0 } else { floor }
}

/// Limits a quality (Phred) to 1 to 93.
fn bounded_quality(quality: f64) -> u8 {
    quality.clamp(1.0, f64::from(crate::MAX_QUALITY)) as u8
}

/// Returns the most probable quality (Phred, 0 to 60) of bases with these counts, whose expected quality is `prior`.
pub(crate) fn empirical_quality(counts: ErrorCounts, prior: f64) -> u8 {
    let (mut errors, mut observations) = (counts.errors + SMOOTHING_COUNT, counts.observations + 2 * SMOOTHING_COUNT);
    if observations > MAX_OBSERVATIONS {
        let fraction = MAX_OBSERVATIONS as f64 / observations as f64;
        (errors, observations) = (round(errors as f64 * fraction) as u64, MAX_OBSERVATIONS);
    }
    let (errors, correct) = (errors as f64, observations.saturating_sub(errors) as f64);
    let mut best = (0, f64::NEG_INFINITY);
    for (quality, (log_error, log_correct)) in (0..).zip(LOG_PROBABILITIES.iter()) {
        let distance = ((f64::from(quality) - prior) as i32).unsigned_abs().min(MAX_PRIOR_DISTANCE);
        let log_prior = -2.0 * f64::from(distance * distance);
        // The binomial coefficient and the height of the prior are omitted, because they are equal for all qualities.
        let log_likelihood = errors * log_error + correct * log_correct;
        let log_likelihood = if log_likelihood.is_finite() { log_likelihood } else { -f64::MAX };
        let posterior = log_prior + log_likelihood;
        if posterior > best.1 {
            best = (quality, posterior);
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_those_of_gatk() {
        // The expected values are from GATK's `RecalDatumUnitTest` and from tables that GATK 4.6.2.0 wrote.
        let estimate = |observations, errors, prior| empirical_quality(ErrorCounts { observations, errors }, prior);
        assert_eq!(estimate(1_049_368, 3200, 25.4752), 25);
        assert_eq!(estimate(1104, 259, 6.0), 6);
        assert_eq!(estimate(10, 6, 6.0), 6);
        assert_eq!(estimate(11_834, 1, 41.0), 41);
        assert_eq!(estimate(259_429, 715, 25.3194), 26);
    }

    #[test]
    fn many_bases_overrule_a_distant_expected_quality() {
        let counts = ErrorCounts { observations: 4_000_000_000, errors: 40_000_000 };
        assert_eq!(empirical_quality(counts, 45.0), 20);
    }

    #[test]
    fn without_bases_the_estimate_is_near_the_expected_quality() {
        assert_eq!(empirical_quality(ErrorCounts::default(), 30.0), 30);
    }

    #[test]
    fn probabilities_are_rounded_to_qualities() {
        assert_eq!(quality_of_probability(0.001), 30);
        assert_eq!(quality_of_probability(0.0), 93);
        assert_eq!(quality_of_probability(1.0), 1);
        assert_eq!((round(2.5), round(-2.5), round(0.499_999_999_999_999_94)), (3.0, -2.0, 0.0));
    }
}
