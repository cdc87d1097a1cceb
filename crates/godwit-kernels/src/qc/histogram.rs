//! Counts by whole number, with the summary numbers htsjdk computes of them.

use serde::{Deserialize, Serialize};

use std::collections::BTreeMap;

/// Values below this are counted in an array, the few above in a tree.
const ARRAY_VALUES: u64 = 8192;

/// How often each value occurred. Summaries follow htsjdk 4.2.0 `Histogram`, operation by operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    low: Vec<u64>,
    high: BTreeMap<u64, u64>,
}

impl Histogram {
    /// Counts a value once.
    #[inline]
    pub fn add(&mut self, value: u64) {
        self.add_times(value, 1);
    }

    /// Counts a value that many times.
    #[inline]
    pub fn add_times(&mut self, value: u64, times: u64) {
        match self.low.get_mut(value as usize) {
            Some(count) => *count += times,
            None => self.add_beyond(value, times),
        }
    }

    #[cold]
    fn add_beyond(&mut self, value: u64, times: u64) {
        if times == 0 {
            return;
        }
        if value < ARRAY_VALUES {
            self.low.resize((value as usize + 1).next_power_of_two().max(64), 0);
            self.low[value as usize] += times;
        } else {
            *self.high.entry(value).or_default() += times;
        }
    }

    /// Adds the counts of another part.
    pub fn merge(&mut self, other: &Self) {
        other.iter().for_each(|(value, count)| self.add_times(value, count));
    }

    /// Values that occurred with their counts, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> {
        let low = self.low.iter().enumerate().map(|(value, count)| (value as u64, *count));
        low.filter(|(_, count)| *count > 0).chain(self.high.iter().map(|(value, count)| (*value, *count)))
    }

    /// How often that value occurred.
    pub fn get(&self, value: u64) -> u64 {
        self.low.get(value as usize).or_else(|| self.high.get(&value)).copied().unwrap_or(0)
    }

    /// Values counted.
    pub fn count(&self) -> u64 {
        self.iter().map(|(_, count)| count).sum()
    }

    /// Sum of the values.
    pub fn sum(&self) -> u64 {
        self.iter().map(|(value, count)| value * count).sum()
    }

    /// The least value, 0 of none.
    pub fn min(&self) -> u64 {
        self.iter().next().map_or(0, |(value, _)| value)
    }

    /// The greatest value, 0 of none.
    pub fn max(&self) -> u64 {
        self.iter().next_back().map_or(0, |(value, _)| value)
    }

    /// The value that occurred most often, the least of several; 0 of none.
    pub fn mode(&self) -> u64 {
        self.iter().fold((0, 0), |best, bin| if bin.1 > best.1 { bin } else { best }).0
    }

    /// The mean; not a number of none.
    pub fn mean(&self) -> f64 {
        let (mut product, mut total) = (0.0, 0.0);
        for (value, count) in self.iter() {
            product += value as f64 * count as f64;
            total += count as f64;
        }
        product / total
    }

    /// The standard deviation of a sample; not a number of fewer than two.
    pub fn standard_deviation(&self) -> f64 {
        let mean = self.mean();
        let (mut count, mut total) = (0.0, 0.0);
        for (value, times) in self.iter() {
            count += times as f64;
            total += times as f64 * (value as f64 - mean).powi(2);
        }
        (total / (count - 1.0)).sqrt()
    }

    /// The median, 0 of none.
    pub fn median(&self) -> f64 {
        self.doubled_median() as f64 / 2.0
    }

    /// Median of the distances to the median, 0 of none.
    pub fn median_absolute_deviation(&self) -> f64 {
        let centre = self.doubled_median();
        let mut doubled_deviations = Self::default();
        self.iter().for_each(|(value, count)| doubled_deviations.add_times((2 * value).abs_diff(centre), count));
        doubled_deviations.doubled_median() as f64 / 4.0
    }

    /// Twice the median, which is a whole number.
    fn doubled_median(&self) -> u64 {
        let count = self.count();
        let (low_rank, high_rank) =
            if count.is_multiple_of(2) { (count / 2, count / 2 + 1) } else { (count.div_ceil(2), count.div_ceil(2)) };
        let (mut seen, mut low) = (0, None);
        for (value, times) in self.iter() {
            seen += times;
            if low.is_none() && seen >= low_rank {
                low = Some(value);
            }
            if seen >= high_rank {
                return low.unwrap_or(value) + value;
            }
        }
        0
    }

    /// The same without values above `most`.
    pub fn up_to(&self, most: u64) -> Self {
        let mut kept = Self::default();
        self.iter().filter(|(value, _)| *value <= most).for_each(|(value, count)| kept.add_times(value, count));
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        values.iter().for_each(|value| histogram.add(*value));
        histogram
    }

    #[test]
    fn medians_lie_between_the_middle_values() {
        assert_eq!(of(&[]).median(), 0.0);
        assert_eq!(of(&[7]).median(), 7.0);
        assert_eq!(of(&[1, 2]).median(), 1.5);
        assert_eq!(of(&[1, 2, 9]).median(), 2.0);
        assert_eq!(of(&[1, 2, 3, 100_000]).median_absolute_deviation(), 1.0);
        assert_eq!(of(&[1, 2]).median_absolute_deviation(), 0.5);
    }

    #[test]
    fn large_values_are_counted_like_small_ones() {
        let mut histogram = of(&[3, 8191, 8192, 1 << 40, 3]);
        assert_eq!(histogram.iter().collect::<Vec<_>>(), [(3, 2), (8191, 1), (8192, 1), (1 << 40, 1)]);
        assert_eq!((histogram.min(), histogram.max(), histogram.mode(), histogram.count()), (3, 1 << 40, 3, 5));
        histogram.merge(&of(&[3, 9000]));
        assert_eq!((histogram.get(3), histogram.get(9000), histogram.get(9001)), (3, 1, 0));
        assert_eq!(histogram.up_to(8192).max(), 8192);
    }

    #[test]
    fn one_value_has_no_standard_deviation() {
        assert!(of(&[5]).standard_deviation().is_nan());
        assert!((of(&[2, 4, 4, 4, 5, 5, 7, 9]).standard_deviation() - 2.138_089_935).abs() < 1e-9);
    }
}
