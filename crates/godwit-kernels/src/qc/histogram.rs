//! Histograms of non-negative integers, with the summary statistics of htsjdk.

use serde::{Deserialize, Serialize};

use std::collections::BTreeMap;

/// Values below this limit are counted in an array, and the few higher values in a tree.
const ARRAY_VALUES: u64 = 8192;

/// A histogram: the number of occurrences of each value. Statistics use the same floating-point operations as htsjdk
/// 4.2.0 `Histogram`.
///
/// # Examples
///
/// ```
/// use godwit_kernels::qc::Histogram;
///
/// let mut insert_sizes = Histogram::default();
/// [350, 300, 350].into_iter().for_each(|size| insert_sizes.add(size));
/// assert_eq!(insert_sizes.iter().collect::<Vec<_>>(), [(300, 1), (350, 2)]);
/// assert_eq!((insert_sizes.count(), insert_sizes.sum()), (3, 1_000));
/// assert_eq!((insert_sizes.min(), insert_sizes.max()), (300, 350));
/// ```
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

    /// Counts a value `times` times.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_kernels::qc::Histogram;
    ///
    /// // Number of positions by depth.
    /// let mut depths = Histogram::default();
    /// depths.add_times(30, 1_000);
    /// depths.add_times(30, 500);
    /// assert_eq!((depths.get(30), depths.get(31)), (1_500, 0));
    /// ```
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

    /// Adds the counts of another histogram.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_kernels::qc::Histogram;
    ///
    /// let (mut depths, mut other) = (Histogram::default(), Histogram::default());
    /// depths.add_times(30, 1_000);
    /// other.add_times(30, 500);
    /// other.add_times(31, 20);
    /// depths.merge(&other);
    /// assert_eq!(depths.iter().collect::<Vec<_>>(), [(30, 1_500), (31, 20)]);
    /// ```
    pub fn merge(&mut self, other: &Self) {
        other.iter().for_each(|(value, count)| self.add_times(value, count));
    }

    /// Returns an iterator over the values that occurred and their counts, in ascending order of values.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> {
        let low = self.low.iter().enumerate().map(|(value, count)| (value as u64, *count));
        low.filter(|(_, count)| *count > 0).chain(self.high.iter().map(|(value, count)| (*value, *count)))
    }

    /// Returns the number of occurrences of a value.
    pub fn get(&self, value: u64) -> u64 {
        self.low.get(value as usize).or_else(|| self.high.get(&value)).copied().unwrap_or(0)
    }

    /// Returns the number of counted values; a value that occurred twice counts twice.
    pub fn count(&self) -> u64 {
        self.iter().map(|(_, count)| count).sum()
    }

    /// Returns the sum of all counted values.
    pub fn sum(&self) -> u64 {
        self.iter().map(|(value, count)| value * count).sum()
    }

    /// Returns the lowest value, or 0 if the histogram is empty.
    pub fn min(&self) -> u64 {
        self.iter().next().map_or(0, |(value, _)| value)
    }

    /// Returns the highest value, or 0 if the histogram is empty.
    pub fn max(&self) -> u64 {
        self.iter().next_back().map_or(0, |(value, _)| value)
    }

    /// Returns the most frequent value (the lowest one if several are equally frequent), or 0 if the histogram is
    /// empty.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_kernels::qc::Histogram;
    ///
    /// let mut insert_sizes = Histogram::default();
    /// [350, 300, 350, 400].into_iter().for_each(|size| insert_sizes.add(size));
    /// assert_eq!(insert_sizes.mode(), 350);
    /// ```
    pub fn mode(&self) -> u64 {
        self.iter().fold((0, 0), |best, bin| if bin.1 > best.1 { bin } else { best }).0
    }

    /// Returns the mean, or NaN if the histogram is empty.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_kernels::qc::Histogram;
    ///
    /// let mut insert_sizes = Histogram::default();
    /// [300, 350, 400].into_iter().for_each(|size| insert_sizes.add(size));
    /// assert_eq!(insert_sizes.mean(), 350.0);
    /// assert!(Histogram::default().mean().is_nan());
    /// ```
    pub fn mean(&self) -> f64 {
        let (mut product, mut total) = (0.0, 0.0);
        for (value, count) in self.iter() {
            product += value as f64 * count as f64;
            total += count as f64;
        }
        product / total
    }

    /// Returns the sample standard deviation, or NaN for fewer than two values.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_kernels::qc::Histogram;
    ///
    /// let mut insert_sizes = Histogram::default();
    /// [300, 350, 400].into_iter().for_each(|size| insert_sizes.add(size));
    /// assert_eq!(insert_sizes.standard_deviation(), 50.0);
    /// ```
    pub fn standard_deviation(&self) -> f64 {
        let mean = self.mean();
        let (mut count, mut total) = (0.0, 0.0);
        for (value, times) in self.iter() {
            count += times as f64;
            total += times as f64 * (value as f64 - mean).powi(2);
        }
        (total / (count - 1.0)).sqrt()
    }

    /// Returns the median, or 0 if the histogram is empty.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_kernels::qc::Histogram;
    ///
    /// let mut insert_sizes = Histogram::default();
    /// [300, 350, 400, 8_000].into_iter().for_each(|size| insert_sizes.add(size));
    /// assert_eq!(insert_sizes.median(), 375.0);
    /// ```
    pub fn median(&self) -> f64 {
        self.doubled_median() as f64 / 2.0
    }

    /// Returns the median of the absolute distances to the median, or 0 if the histogram is empty.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_kernels::qc::Histogram;
    ///
    /// let mut insert_sizes = Histogram::default();
    /// [300, 350, 400, 8_000].into_iter().for_each(|size| insert_sizes.add(size));
    /// // The distances to the median, 375, are 25, 25, 75 and 7,625.
    /// assert_eq!(insert_sizes.median_absolute_deviation(), 50.0);
    /// ```
    pub fn median_absolute_deviation(&self) -> f64 {
        let centre = self.doubled_median();
        let mut doubled_deviations = Self::default();
        self.iter().for_each(|(value, count)| doubled_deviations.add_times((2 * value).abs_diff(centre), count));
        doubled_deviations.doubled_median() as f64 / 4.0
    }

    /// Returns twice the median, which is a whole number.
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

    /// Returns a copy of the histogram without values above `most`.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_kernels::qc::Histogram;
    ///
    /// let mut insert_sizes = Histogram::default();
    /// [300, 350, 400, 8_000].into_iter().for_each(|size| insert_sizes.add(size));
    /// assert_eq!(insert_sizes.up_to(400).max(), 400);
    /// assert_eq!(insert_sizes.up_to(400).count(), 3);
    /// ```
    pub fn up_to(&self, most: u64) -> Self {
        let mut truncated = Self::default();
        self.iter().filter(|(value, _)| *value <= most).for_each(|(value, count)| truncated.add_times(value, count));
        truncated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram_of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        values.iter().for_each(|value| histogram.add(*value));
        histogram
    }

    #[test]
    fn medians_lie_between_the_middle_values() {
        assert_eq!(histogram_of(&[]).median(), 0.0);
        assert_eq!(histogram_of(&[7]).median(), 7.0);
        assert_eq!(histogram_of(&[1, 2]).median(), 1.5);
        assert_eq!(histogram_of(&[1, 2, 9]).median(), 2.0);
        assert_eq!(histogram_of(&[1, 2, 3, 100_000]).median_absolute_deviation(), 1.0);
        assert_eq!(histogram_of(&[1, 2]).median_absolute_deviation(), 0.5);
    }

    #[test]
    fn large_values_are_counted_like_small_ones() {
        let mut histogram = histogram_of(&[3, 8191, 8192, 1 << 40, 3]);
        assert_eq!(histogram.iter().collect::<Vec<_>>(), [(3, 2), (8191, 1), (8192, 1), (1 << 40, 1)]);
        assert_eq!((histogram.min(), histogram.max(), histogram.mode(), histogram.count()), (3, 1 << 40, 3, 5));
        histogram.merge(&histogram_of(&[3, 9000]));
        assert_eq!((histogram.get(3), histogram.get(9000), histogram.get(9001)), (3, 1, 0));
        assert_eq!(histogram.up_to(8192).max(), 8192);
    }

    #[test]
    fn one_value_has_no_standard_deviation() {
        assert!(histogram_of(&[5]).standard_deviation().is_nan());
        assert!((histogram_of(&[2, 4, 4, 4, 5, 5, 7, 9]).standard_deviation() - 2.138_089_935).abs() < 1e-9);
    }
}
