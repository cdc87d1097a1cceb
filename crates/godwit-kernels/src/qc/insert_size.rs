//! Insert sizes, counted and printed in the same way as Picard 3.4.0 `CollectInsertSizeMetrics`
//! (`InsertSizeMetricsCollector`).

use godwit_model::{RawRecord, flags};
use serde::{Deserialize, Serialize};

use super::histogram::Histogram;
use crate::picard_text::{format_double, picard_header};

/// Minimum fraction of all pairs that an orientation must have to be reported (`MINIMUM_PCT` of Picard, a 32-bit
/// float).
const MIN_ORIENTATION_FRACTION: f32 = 0.05;
/// Maximum distance above the median of an insert size that counts in mean and standard deviation. The unit is the
/// median absolute deviation (`OUTLIER_DEVIATIONS` of Picard).
const OUTLIER_DEVIATIONS: f64 = 10.0;
/// Fractions of the pairs for which the width of a window around the median is reported.
const WIDTH_FRACTIONS: [f64; 11] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99];
/// Names of the pair orientations, in the order of Picard.
const ORIENTATION_NAMES: [&str; 3] = ["FR", "RF", "TANDEM"];

/// The relative orientation of two mates on the same contig.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PairOrientation {
    /// The mates point towards each other.
    Inward = 0,
    /// The mates point away from each other.
    Outward = 1,
    /// The mates are on the same strand.
    Tandem = 2,
}

impl PairOrientation {
    /// Returns the orientation of a pair whose mates are mapped to the same contig (htsjdk 4.2.0
    /// `SamPairUtil.getPairOrientation`).
    pub(super) fn from_record(record: RawRecord, reference_bases: i64) -> Self {
        let reverse = record.flag() & flags::REVERSE != 0;
        if reverse == (record.flag() & flags::MATE_REVERSE != 0) {
            return Self::Tandem;
        }
        let start = i64::from(record.position());
        // Both positions are 1-based, as in htsjdk. The last base of a reverse read is `start + reference_bases - 1`,
        // 0-based.
        let (forward_five_prime, reverse_five_prime) = if reverse {
            (i64::from(record.mate_position()) + 1, start + reference_bases)
        } else {
            (start + 1, start + 1 + i64::from(record.template_length()))
        };
        if forward_five_prime < reverse_five_prime { Self::Inward } else { Self::Outward }
    }
}

/// The insert sizes of all pairs that are not duplicates, by orientation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InsertSizeCounts {
    sizes: [Histogram; 3],
}

/// The insert size metrics of one pair orientation: one row of the metrics file.
#[derive(Clone, Debug, PartialEq)]
pub struct InsertSizeRow {
    /// Name of the orientation: `FR`, `RF` or `TANDEM`.
    pub orientation: &'static str,
    /// Number of pairs with this orientation.
    pub pairs: u64,
    /// Median insert size, bases.
    pub median: f64,
    /// Most frequent insert size, bases.
    pub mode: u64,
    /// Median absolute deviation of the insert size, bases.
    pub median_absolute_deviation: f64,
    /// Lowest insert size, bases.
    pub min: u64,
    /// Highest insert size, bases.
    pub max: u64,
    /// Mean insert size without outliers, bases; 0 if no pair remains.
    pub mean: f64,
    /// Standard deviation of the insert size without outliers, bases; NaN for one pair, 0 if no pair remains.
    pub standard_deviation: f64,
    /// Widths of the windows around the median that contain 10, 20, 30, 40, 50, 60, 70, 80, 90, 95 and 99 percent of
    /// the pairs, bases.
    pub widths: [u64; 11],
    /// Histogram of the insert sizes without outliers.
    pub sizes: Histogram,
}

impl InsertSizeCounts {
    /// Counts a record if it is the last read of a mapped pair that is not a duplicate. `flag` is the FLAG with the
    /// decided duplicate bit.
    #[inline]
    pub fn add(&mut self, record: RawRecord, flag: u16, reference_bases: i64) {
        let excluded = flags::UNMAPPED | flags::MATE_UNMAPPED | flags::FIRST | flags::NOT_PRIMARY | flags::DUPLICATE;
        let length = record.template_length();
        if flag & flags::PAIRED == 0 || flag & excluded != 0 || length == 0 {
            return;
        }
        // Picard rejects files in which a pair on two contigs has a nonzero TLEN.
        if record.contig() != record.mate_contig() {
            return;
        }
        let orientation = PairOrientation::from_record(record, reference_bases);
        self.sizes[orientation as usize].add(u64::from(length.unsigned_abs()));
    }

    /// Adds the counts of other records of the same file.
    pub fn merge(&mut self, other: &Self) {
        self.sizes.iter_mut().zip(&other.sizes).for_each(|(mine, theirs)| mine.merge(theirs));
    }

    /// Returns the metrics of the orientations that enough pairs have, in the order of Picard.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_kernels::qc::InsertSizeCounts;
    ///
    /// # let words = [
    /// #     0, 1_291, 4681 << 16 | 60 << 8 | 4, 147 << 16 | 1, 8, 0, 999, -300, i32::from_le_bytes(*b"r01\0"),
    /// #     8 << 4, 0x4812_4812, 0x1e1e_1e1e, 0x1e1e_1e1e,
    /// # ];
    /// # let bytes = words.map(i32::to_le_bytes).concat();
    /// # let record = godwit_model::RawRecord::from_bytes(&bytes, 2)?;
    /// // `record` is the last read of a pair with a TLEN of -300; it covers eight bases of the reference.
    /// let mut counts = InsertSizeCounts::default();
    /// counts.add(record, record.flag(), 8);
    /// let rows = counts.rows();
    /// assert_eq!((rows[0].orientation, rows[0].pairs, rows[0].median), ("FR", 1, 300.0));
    /// # Ok(())
    /// # }
    /// ```
    pub fn rows(&self) -> Vec<InsertSizeRow> {
        let all: u64 = self.sizes.iter().map(Histogram::count).sum();
        let least = all as f64 * f64::from(MIN_ORIENTATION_FRACTION);
        let pairs = ORIENTATION_NAMES.iter().zip(&self.sizes);
        let enough = pairs.filter(|(_, sizes)| all > 0 && sizes.count() as f64 >= least);
        enough.map(|(orientation, sizes)| InsertSizeRow::new(orientation, sizes)).collect()
    }

    /// Returns the text of the metrics file. `comment` becomes a header line (`# ...`). Returns `None` if there are no
    /// pairs; Picard does not write a file in this case.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_kernels::qc::InsertSizeCounts;
    ///
    /// # let words = [
    /// #     0, 1_291, 4681 << 16 | 60 << 8 | 4, 147 << 16 | 1, 8, 0, 999, -300, i32::from_le_bytes(*b"r01\0"),
    /// #     8 << 4, 0x4812_4812, 0x1e1e_1e1e, 0x1e1e_1e1e,
    /// # ];
    /// # let bytes = words.map(i32::to_le_bytes).concat();
    /// # let record = godwit_model::RawRecord::from_bytes(&bytes, 2)?;
    /// // `record` is the last read of a pair with a TLEN of -300; it covers eight bases of the reference.
    /// let mut counts = InsertSizeCounts::default();
    /// assert_eq!(counts.to_text("CollectInsertSizeMetrics"), None);
    /// counts.add(record, record.flag(), 8);
    /// let text = counts.to_text("CollectInsertSizeMetrics").unwrap();
    /// assert!(text.contains("\ninsert_size\tAll_Reads.fr_count\n300\t1\n"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn to_text(&self, comment: &str) -> Option<String> {
        let mut text = picard_header([comment]);
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
        rows.iter().for_each(|row| text += &row.metrics_row());
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
        let without_outliers = sizes.up_to((median + OUTLIER_DEVIATIONS * deviation) as u64);
        let some = without_outliers.count() > 0;
        Self {
            orientation,
            pairs: sizes.count(),
            median,
            mode: sizes.mode(),
            median_absolute_deviation: deviation,
            min: sizes.min(),
            max: sizes.max(),
            mean: if some { without_outliers.mean() } else { 0.0 },
            standard_deviation: if some { without_outliers.standard_deviation() } else { 0.0 },
            widths: window_widths(sizes, median),
            sizes: without_outliers,
        }
    }

    fn metrics_row(&self) -> String {
        let decimals = [self.median, self.mode as f64, self.median_absolute_deviation].map(format_double).join("\t");
        let spread = [self.mean, self.standard_deviation].map(format_double).join("\t");
        let widths = self.widths.map(|width| width.to_string()).join("\t");
        let (min, max, pairs, orientation) = (self.min, self.max, self.pairs, self.orientation);
        format!("{decimals}\t{min}\t{max}\t{spread}\t{pairs}\t{orientation}\t{widths}\t\t\t\n")
    }
}

/// Returns the widths of windows around the integer part of the median. As in Picard, a window grows by one base on
/// either side until it covers the fraction of the pairs.
fn window_widths(sizes: &Histogram, median: f64) -> [u64; 11] {
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
        for (width, share) in widths.iter_mut().zip(WIDTH_FRACTIONS) {
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
        let found = window_widths(&sizes, 100.0);
        assert_eq!(found, [1, 1, 1, 1, 1, 3, 3, 5, 5, 5, 5]);
    }

    #[test]
    fn rare_orientations_are_left_out() {
        let mut inserts = InsertSizeCounts::default();
        inserts.sizes[0].add_times(300, 97);
        inserts.sizes[1].add_times(200, 3);
        assert_eq!(inserts.rows().iter().map(|row| row.orientation).collect::<Vec<_>>(), ["FR"]);
        assert_eq!(InsertSizeCounts::default().to_text("x"), None);
    }
}
