//! Statistics of a histogram with empty bins (htsjdk 4.2.0 `Histogram`).

/// A histogram whose bins are the integers from 0 on, each with its count. Empty bins count as bins, as in htsjdk; they
/// change the results only for a histogram of one value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BinStatistics<'a>(pub(crate) &'a [u64]);

impl BinStatistics<'_> {
    fn bins(&self) -> impl Iterator<Item = (f64, f64)> + Clone {
        self.0.iter().enumerate().map(|(value, count)| (value as f64, *count as f64))
    }

    /// Returns the number of counted values.
    pub(crate) fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the sum of all counted values.
    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().enumerate().map(|(value, count)| value as u64 * count).sum()
    }

    /// Returns the mean; NaN without values.
    pub(crate) fn mean(&self) -> f64 {
        self.sum() as f64 / self.count() as f64
    }

    /// Returns the sample standard deviation; NaN for fewer than two values.
    pub(crate) fn standard_deviation(&self) -> f64 {
        let mean = self.mean();
        let total: f64 = self.bins().fold(0.0, |total, (value, count)| total + count * (value - mean).powi(2));
        (total / (self.count() as f64 - 1.0)).sqrt()
    }

    /// Returns the median; 0 without values.
    pub(crate) fn median(&self) -> f64 {
        median(self.bins())
    }

    /// Returns the median of the absolute distances to the median; 0 without values.
    pub(crate) fn median_absolute_deviation(&self) -> f64 {
        let centre = self.median();
        let mut deviations: Vec<(f64, f64)> =
            self.bins().map(|(value, count)| ((value - centre).abs(), count)).collect();
        deviations.sort_by(|one, other| one.0.total_cmp(&other.0));
        median(deviations.iter().copied())
    }

    /// Returns the lowest value up to which the given fraction (above 0, below 1) of the values lies; 0 without values.
    pub(crate) fn percentile(&self, fraction: f64) -> f64 {
        let total = self.count() as f64;
        let mut so_far = 0.0;
        let found = self.bins().find(|(_, count)| {
            so_far += count;
            so_far / total >= fraction
        });
        found.map_or(0.0, |(value, _)| value)
    }

    /// Returns the number of values of at least `least`.
    pub(crate) fn count_from(&self, least: usize) -> u64 {
        self.0.iter().skip(least).sum()
    }
}

fn median(bins: impl Iterator<Item = (f64, f64)> + Clone) -> f64 {
    let count = bins.clone().fold(0.0, |sum, (_, count)| sum + count);
    if count == 0.0 {
        return 0.0;
    }
    if count == 1.0 {
        return bins.clone().next().map_or(0.0, |(value, _)| value);
    }
    let low = if count % 2.0 == 0.0 { count / 2.0 } else { (count / 2.0).ceil() };
    let high = if count % 2.0 == 0.0 { low + 1.0 } else { low };
    let value_at = |rank: f64| {
        let mut total = 0.0;
        let mut reached = bins.clone().skip_while(move |(_, count)| {
            total += count;
            total < rank
        });
        reached.next().map_or(0.0, |(value, _)| value)
    };
    (value_at(low) + value_at(high)) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_counts() {
        let bins = BinStatistics(&[1, 0, 2, 1]);
        assert_eq!((bins.count(), bins.sum(), bins.mean(), bins.median()), (4, 7, 1.75, 2.0));
        assert_eq!((bins.median_absolute_deviation(), bins.percentile(0.2), bins.percentile(0.3)), (0.5, 0.0, 2.0));
        assert_eq!((bins.count_from(1), bins.count_from(9)), (3, 0));
        assert!((bins.standard_deviation() - 1.258_305_739).abs() < 1e-9);
        assert_eq!(BinStatistics(&[0, 0]).median(), 0.0);
    }
}
