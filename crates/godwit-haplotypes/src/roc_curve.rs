//! ROC curves for plots: the rows of a ROC table, at most as many as a plot can show.

use serde::Serialize;

/// Maximum number of points of a curve. A plot has fewer pixels across.
const MAX_POINTS: usize = 200;

/// A ROC curve of all variants or of a subset.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RocCurve {
    /// Name of the subset as in the tables, for example `SNP`; `ALL` for all variants.
    pub subset: &'static str,
    /// Points from the best score to the worst; the last one has all calls.
    pub points: Vec<RocPoint>,
}

/// The calls with a score or a better one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RocPoint {
    /// Lowest score of the calls; null if calls without a score are included.
    pub score: Option<f64>,
    /// Variants of the truth that the calls explain.
    pub found: f64,
    /// False calls.
    #[serde(rename = "false")]
    pub false_calls: f64,
    /// True calls per call; null if there are no calls.
    pub precision: Option<f64>,
    /// Found variants per variant of the truth; null if the truth has no variants.
    pub recall: Option<f64>,
}

impl RocCurve {
    /// Returns the curve through `count` points. Of many points, it keeps evenly spaced ones with the first and the last.
    pub(crate) fn new(subset: &'static str, count: usize, points: impl Iterator<Item = RocPoint>) -> Self {
        let kept_count = count.min(MAX_POINTS);
        let index = |kept: usize| kept * (count - 1) / (kept_count - 1).max(1);
        let mut kept: Vec<RocPoint> = Vec::with_capacity(kept_count);
        for (number, point) in points.take(count).enumerate() {
            if number == index(kept.len()) {
                kept.push(point);
            }
        }
        Self { subset, points: kept }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_keeps_its_ends_and_few_points_between() {
        let point = |found: u32| RocPoint {
            score: None,
            found: f64::from(found),
            false_calls: 0.0,
            precision: None,
            recall: None,
        };
        let kept = |count: u32| {
            let curve = RocCurve::new("ALL", count as usize, (0..count).map(point));
            let found: Vec<f64> = curve.points.iter().map(|point| point.found).collect();
            (found.len(), found.first().copied(), found.last().copied())
        };
        assert_eq!(kept(0), (0, None, None));
        assert_eq!(kept(1), (1, Some(0.0), Some(0.0)));
        assert_eq!(kept(2), (2, Some(0.0), Some(1.0)));
        assert_eq!(kept(1_000_000), (MAX_POINTS, Some(0.0), Some(999_999.0)));
    }
}
