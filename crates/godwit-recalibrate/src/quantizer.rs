//! Quantisation of qualities (GATK 4.6.2.0, `QualQuantizer`, `QuantizationInfo` and `BQSRReadTransformer`).

use crate::empirical_quality::{error_probability, quality_of_probability};
use crate::{MIN_USABLE_QUALITY, QUALITIES};

/// A map of each quality (Phred, 0 to 93) to its quantized quality.
pub(crate) type QualityMap = [u8; QUALITIES];

/// An interval of qualities that are mapped to one quality.
#[derive(Clone, Debug)]
struct QualityInterval {
    first: u8,
    last: u8,
    observations: u64,
    /// Expected number of errors.
    errors: u64,
    /// The two intervals that were joined; empty for a single quality.
    halves: Vec<QualityInterval>,
}

impl QualityInterval {
    fn single(quality: u8, observations: u64) -> Self {
        let errors = (observations as f64 * error_probability(f64::from(quality))).floor();
        // GATK keeps this number in 32 bits.
        let errors = errors.min(f64::from(i32::MAX)) as u64;
        Self { first: quality, last: quality, observations, errors, halves: Vec::new() }
    }

    fn join(left: &Self, right: &Self) -> Self {
        Self {
            first: left.first,
            last: right.last,
            observations: left.observations + right.observations,
            errors: left.errors + right.errors,
            halves: vec![left.clone(), right.clone()],
        }
    }

    fn error_rate(&self) -> f64 {
        if self.halves.is_empty() {
            error_probability(f64::from(self.first))
        } else if self.observations == 0 {
            0.0
        } else {
            (self.errors + 1) as f64 / (self.observations + 1) as f64
        }
    }

    /// Returns the quality of all bases in the interval.
    fn quality(&self) -> u8 {
        if self.halves.is_empty() { self.first } else { quality_of_probability(self.error_rate()) }
    }

    /// Returns how far the qualities of this interval are from a common error rate, summed over all bases.
    fn penalty(&self, common_rate: f64) -> f64 {
        match &self.halves[..] {
            _ if common_rate == 0.0 => 0.0,
            [] if self.last <= MIN_USABLE_QUALITY => 0.0,
            [] => (self.error_rate().log10() - common_rate.log10()).abs() * self.observations as f64,
            halves => halves.iter().fold(0.0, |sum, half| sum + half.penalty(common_rate)),
        }
    }
}

/// Returns a map to at most `levels` different qualities, at least 1. `histogram`: the number of bases of each quality.
/// Neighbours are joined as long as there are too many, always those with the least penalty.
pub(crate) fn quantize(histogram: &[u64; QUALITIES], levels: usize) -> QualityMap {
    let mut intervals: Vec<_> =
        (0..).zip(histogram).map(|(quality, observations)| QualityInterval::single(quality, *observations)).collect();
    while intervals.len() > levels.max(1) {
        let joined = intervals.windows(2).map(|pair| QualityInterval::join(&pair[0], &pair[1]));
        let best = joined.enumerate().fold(None, |best: Option<(usize, f64, QualityInterval)>, (at, joined)| {
            let penalty = joined.penalty(joined.error_rate());
            match best {
                Some(best) if best.1 <= penalty => Some(best),
                _ => Some((at, penalty, joined)),
            }
        });
        let Some((at, _, joined)) = best else { break };
        intervals.splice(at..at + 2, [joined]);
    }
    let mut map = [0; QUALITIES];
    for interval in &intervals {
        map[usize::from(interval.first)..=usize::from(interval.last)].fill(interval.quality());
    }
    map
}

/// Returns the number of levels of a map, as GATK counts them in a report.
pub(crate) fn level_count(map: &QualityMap) -> usize {
    1 + map.windows(2).filter(|pair| pair[0] != pair[1]).count()
}

/// Returns the map to fixed qualities: usable qualities become the nearest of `levels` by error probability. Qualities
/// below 6 are not changed. `levels` is not empty.
pub(crate) fn static_map(levels: &[u8]) -> QualityMap {
    let mut levels = levels.to_vec();
    levels.sort_unstable();
    let mut map: QualityMap = std::array::from_fn(|quality| quality as u8);
    let correct = |quality: u8| 1.0 - error_probability(f64::from(quality));
    let usable = usize::from(MIN_USABLE_QUALITY);
    if let [level] = levels[..] {
        map[usable..].fill(level);
        return map;
    }
    let mut previous = MIN_USABLE_QUALITY;
    for next in levels {
        for quality in previous..next {
            let is_nearer_next = correct(quality) - correct(previous) > correct(next) - correct(quality);
            map[usize::from(quality)] = if is_nearer_next { next } else { previous };
        }
        previous = next;
    }
    map[usize::from(previous)..].fill(previous);
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_the_given_number_of_levels_remain() {
        let histogram = std::array::from_fn(|quality| (quality as u64 % 41) * 100);
        for levels in [1, 2, 16, QUALITIES] {
            assert!(level_count(&quantize(&histogram, levels)) <= levels, "{levels}");
        }
        assert_eq!(quantize(&histogram, QUALITIES), std::array::from_fn(|quality| quality as u8));
    }

    #[test]
    fn qualities_without_bases_are_joined_first() {
        let mut histogram = [0; QUALITIES];
        (histogram[20], histogram[30]) = (1000, 1000);
        let map = quantize(&histogram, 3);
        assert_ne!(map[20], map[30]);
    }

    #[test]
    fn static_levels_are_nearest_by_error_probability() {
        let map = static_map(&[40, 10, 30, 20]);
        assert_eq!((map[2], map[5]), (2, 5));
        // Between 10 and 20, the probabilities are nearer from 13 on.
        assert_eq!((map[12], map[13], map[20], map[23], map[24], map[93]), (10, 20, 20, 30, 30, 40));
        assert_eq!(static_map(&[25])[6..], [25; QUALITIES - 6]);
    }
}
