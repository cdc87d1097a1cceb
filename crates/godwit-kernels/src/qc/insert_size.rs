//! Insert sizes as Picard 3.4.0 `CollectInsertSizeMetrics` counts and prints them (`InsertSizeMetricsCollector`).

use godwit_model::{RawRecord, flags};
use serde::{Deserialize, Serialize};

use super::histogram::Histogram;
use super::picard_header;
use crate::markdup::format_double;

/// Share of all pairs an orientation must have to be reported: Picard's `MINIMUM_PCT`, a 32-bit float there.
const MINIMUM_SHARE: f32 = 0.05;
/// Median absolute deviations beyond the median that mean and standard deviation look at: Picard's `DEVIATIONS`.
const DEVIATIONS: f64 = 10.0;
/// Shares of the pairs whose width around the median is reported.
const WIDTH_SHARES: [f64; 11] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99];
/// Names of the orientations, in Picard's order.
const ORIENTATIONS: [&str; 3] = ["FR", "RF", "TANDEM"];

/// How the mates of a pair on one contig lie to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Orientation {
    /// Towards each other.
    Inward = 0,
    /// Away from each other.
    Outward = 1,
    /// On one strand.
    Tandem = 2,
}

impl Orientation {
    /// Of a record whose mate is mapped to the same contig (htsjdk 4.2.0 `SamPairUtil.getPairOrientation`).
    pub(super) fn of(record: RawRecord, reference_bases: i64) -> Self {
        let reverse = record.flag() & flags::REVERSE != 0;
        if reverse == (record.flag() & flags::MATE_REVERSE != 0) {
            return Self::Tandem;
        }
        let start = i64::from(record.position());
        // Both as 1-based positions there; the last base of a reverse read is `start + reference_bases - 1`, 0-based.
        let (forward_five_prime, reverse_five_prime) = if reverse {
            (i64::from(record.mate_position()) + 1, start + reference_bases)
        } else {
            (start + 1, start + 1 + i64::from(record.template_length()))
        };
        if forward_five_prime < reverse_five_prime { Self::Inward } else { Self::Outward }
    }
}

/// Insert sizes of all pairs that are no duplicates, by orientation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InsertSizes {
    sizes: [Histogram; 3],
}

/// What is reported of one orientation.
#[derive(Clone, Debug, PartialEq)]
pub struct InsertSizeRow {
    /// `FR`, `RF` or `TANDEM`.
    pub orientation: &'static str,
    /// Pairs.
    pub pairs: u64,
    /// Median, bases.
    pub median: f64,
    /// The most frequent size, bases.
    pub mode: u64,
    /// Median absolute deviation, bases.
    pub median_absolute_deviation: f64,
    /// The least size, bases.
    pub min: u64,
    /// The greatest size, bases.
    pub max: u64,
    /// Mean without outliers, bases; not a number when nothing is left.
    pub mean: f64,
    /// Standard deviation without outliers, bases.
    pub standard_deviation: f64,
    /// Width around the median that holds 10, 20, 30, 40, 50, 60, 70, 80, 90, 95 and 99 percent of the pairs, bases.
    pub widths: [u64; 11],
    /// The sizes without outliers.
    pub sizes: Histogram,
}

impl InsertSizes {
    /// Counts a record whose FLAG is `flag`: the last of a mapped pair that is no duplicate.
    #[inline]
    pub fn add(&mut self, record: RawRecord, flag: u16, reference_bases: i64) {
        let excluded = flags::UNMAPPED | flags::MATE_UNMAPPED | flags::FIRST | flags::NOT_PRIMARY | flags::DUPLICATE;
        let length = record.template_length();
        if flag & flags::PAIRED == 0 || flag & excluded != 0 || length == 0 {
            return;
        }
        // Picard refuses files in which such a pair has a length.
        if record.contig() != record.mate_contig() {
            return;
        }
        let orientation = Orientation::of(record, reference_bases);
        self.sizes[orientation as usize].add(u64::from(length.unsigned_abs()));
    }

    /// Adds the counts of another part.
    pub fn merge(&mut self, other: &Self) {
        self.sizes.iter_mut().zip(&other.sizes).for_each(|(mine, theirs)| mine.merge(theirs));
    }

    /// The orientations that enough pairs have, in Picard's order.
    pub fn rows(&self) -> Vec<InsertSizeRow> {
        let all: u64 = self.sizes.iter().map(Histogram::count).sum();
        let least = all as f64 * f64::from(MINIMUM_SHARE);
        let pairs = ORIENTATIONS.iter().zip(&self.sizes);
        let enough = pairs.filter(|(_, sizes)| all > 0 && sizes.count() as f64 >= least);
        enough.map(|(orientation, sizes)| InsertSizeRow::new(orientation, sizes)).collect()
    }

    /// The metrics file; `comment` becomes its header line. `None` without pairs: Picard writes no file then.
    pub fn to_text(&self, comment: &str) -> Option<String> {
        let mut text = picard_header(comment);
        let rows = self.rows();
        if rows.is_empty() {
            return None;
        }
        text += "## METRICS CLASS\tpicard.analysis.InsertSizeMetrics\n\
            MEDIAN_INSERT_SIZE\tMODE_INSERT_SIZE\tMEDIAN_ABSOLUTE_DEVIATION\tMIN_INSERT_SIZE\tMAX_INSERT_SIZE\t\
            MEAN_INSERT_SIZE\tSTANDARD_DEVIATION\tREAD_PAIRS\tPAIR_ORIENTATION\tWIDTH_OF_10_PERCENT\t\
            WIDTH_OF_20_PERCENT\tWIDTH_OF_30_PERCENT\tWIDTH_OF_40_PERCENT\tWIDTH_OF_50_PERCENT\tWIDTH_OF_60_PERCENT\t\
            WIDTH_OF_70_PERCENT\tWIDTH_OF_80_PERCENT\tWIDTH_OF_90_PERCENT\tWIDTH_OF_95_PERCENT\tWIDTH_OF_99_PERCENT\t\
            SAMPLE\tLIBRARY\tREAD_GROUP\n";
        rows.iter().for_each(|row| text += &row.line());
        let columns: Vec<&InsertSizeRow> = rows.iter().filter(|row| row.sizes.count() > 0).collect();
        if !columns.is_empty() {
            text += "\n## HISTOGRAM\tjava.lang.Integer\ninsert_size";
            columns.iter().for_each(|row| text += &format!("\tAll_Reads.{}_count", row.orientation.to_lowercase()));
            let mut all = Histogram::default();
            columns.iter().for_each(|row| all.merge(&row.sizes));
            for (size, _) in all.iter() {
                text += &format!("\n{size}");
                columns.iter().for_each(|row| text += &format!("\t{}", row.sizes.get(size)));
            }
            text.push('\n');
        }
        Some(text + "\n")
    }
}

impl InsertSizeRow {
    fn new(orientation: &'static str, sizes: &Histogram) -> Self {
        let (median, deviation) = (sizes.median(), sizes.median_absolute_deviation());
        let kept = sizes.up_to((median + DEVIATIONS * deviation) as u64);
        let some = kept.count() > 0;
        Self {
            orientation,
            pairs: sizes.count(),
            median,
            mode: sizes.mode(),
            median_absolute_deviation: deviation,
            min: sizes.min(),
            max: sizes.max(),
            mean: if some { kept.mean() } else { 0.0 },
            standard_deviation: if some { kept.standard_deviation() } else { 0.0 },
            widths: widths(sizes, median),
            sizes: kept,
        }
    }

    fn line(&self) -> String {
        let decimals = [self.median, self.mode as f64, self.median_absolute_deviation].map(format_double).join("\t");
        let spread = [self.mean, self.standard_deviation].map(format_double).join("\t");
        let widths = self.widths.map(|width| width.to_string()).join("\t");
        let (min, max, pairs, orientation) = (self.min, self.max, self.pairs, self.orientation);
        format!("{decimals}\t{min}\t{max}\t{spread}\t{pairs}\t{orientation}\t{widths}\t\t\t\n")
    }
}

/// Picard widens a window around the (whole part of the) median by one base on either side until each share is covered.
fn widths(sizes: &Histogram, median: f64) -> [u64; 11] {
    let centre = median as u64;
    let total = sizes.count() as f64;
    let mut by_distance: Vec<(u64, u64)> = sizes.iter().map(|(size, count)| (size.abs_diff(centre), count)).collect();
    by_distance.sort_unstable();
    let mut widths = [0; 11];
    let mut covered = 0.0;
    for (at, (distance, count)) in by_distance.iter().enumerate() {
        covered += *count as f64;
        if by_distance.get(at + 1).is_some_and(|(next, _)| next == distance) {
            continue;
        }
        for (width, share) in widths.iter_mut().zip(WIDTH_SHARES) {
            if *width == 0 && covered / total >= share {
                *width = 2 * distance + 1;
            }
        }
    }
    widths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_grow_around_the_median() {
        let mut sizes = Histogram::default();
        [(100, 2), (99, 1), (102, 1)].into_iter().for_each(|(size, count)| sizes.add_times(size, count));
        let found = widths(&sizes, 100.0);
        assert_eq!(found, [1, 1, 1, 1, 1, 3, 3, 5, 5, 5, 5]);
    }

    #[test]
    fn rare_orientations_are_left_out() {
        let mut inserts = InsertSizes::default();
        inserts.sizes[0].add_times(300, 97);
        inserts.sizes[1].add_times(200, 3);
        assert_eq!(inserts.rows().iter().map(|row| row.orientation).collect::<Vec<_>>(), ["FR"]);
        assert_eq!(InsertSizes::default().to_text("x"), None);
    }
}
