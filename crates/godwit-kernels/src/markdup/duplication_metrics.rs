//! Duplication metrics, computed and printed in the same way as Picard 3.4.0 (`DuplicationMetrics`, htsjdk 4.2.0
//! `MetricsFile`).

use std::collections::BTreeMap;

use godwit_model::DuplicateCounts;

use crate::picard_text::{format_double, picard_header};

/// Name of the library of records that have no read group, or whose read group has no `LB`.
pub const UNKNOWN_LIBRARY: &str = "Unknown Library";

/// Number of bisection steps in the estimate of the library size.
const BISECTION_STEPS: u32 = 40;
/// Maximum multiple of the present sequencing depth in the return-on-investment histogram.
const MAX_COVERAGE_MULTIPLE: u64 = 100;

/// The record and duplicate counts of one library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LibraryMetrics {
    /// Name of the library: `LB` of the read group, or [`UNKNOWN_LIBRARY`].
    pub library: String,
    /// Record counts before duplicate marking.
    pub counts: DuplicateCounts,
    /// Number of duplicate reads without a mapped mate.
    pub unpaired_duplicates: u64,
    /// Number of duplicate reads with a mapped mate; twice the number of duplicate pairs.
    pub paired_duplicates: u64,
    /// Number of pairs that are optical duplicates.
    pub optical_pairs: u64,
}

/// Number of duplicate sets for each size in pairs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SetSizes {
    pub(super) all: BTreeMap<u64, u64>,
    pub(super) optical: BTreeMap<u64, u64>,
    pub(super) not_optical: BTreeMap<u64, u64>,
}

impl SetSizes {
    /// Counts a set of `pairs` pairs, of which `optical` pairs are optical duplicates.
    pub(super) fn count(&mut self, pairs: u64, optical: u64) {
        *self.all.entry(pairs).or_default() += 1;
        if pairs > optical {
            *self.not_optical.entry(pairs - optical).or_default() += 1;
        }
        if optical > 0 {
            *self.optical.entry(optical + 1).or_default() += 1;
        }
    }

    /// Adds the counts of other sets.
    pub(super) fn add(&mut self, other: Self) {
        let counts = [(&mut self.all, other.all), (&mut self.optical, other.optical)];
        for (sizes, others) in counts.into_iter().chain([(&mut self.not_optical, other.not_optical)]) {
            others.into_iter().for_each(|(pairs, sets)| *sizes.entry(pairs).or_default() += sets);
        }
    }
}

/// The content of a Picard duplicate metrics file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DuplicationMetrics {
    /// Metrics of each library, sorted by name: the libraries in the header, and other libraries that have records.
    pub libraries: Vec<LibraryMetrics>,
    pub(super) set_sizes: SetSizes,
}

impl LibraryMetrics {
    /// Adds the numbers of duplicates of other records of the library.
    pub(super) fn add_duplicates(&mut self, other: &Self) {
        self.unpaired_duplicates += other.unpaired_duplicates;
        self.paired_duplicates += other.paired_duplicates;
        self.optical_pairs += other.optical_pairs;
    }

    /// Returns the number of pairs in which both mates are mapped (`READ_PAIRS_EXAMINED`).
    pub fn pairs(&self) -> u64 {
        self.counts.paired_reads / 2
    }

    /// Returns the number of pairs that are duplicates.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_kernels::markdup::LibraryMetrics;
    /// use godwit_model::DuplicateCounts;
    ///
    /// let counts = DuplicateCounts { paired_reads: 2_000, ..DuplicateCounts::default() };
    /// let library = LibraryMetrics { counts, paired_duplicates: 400, ..LibraryMetrics::default() };
    /// assert_eq!(library.pairs(), 1_000);
    /// assert_eq!(library.pair_duplicates(), 200);
    /// ```
    pub fn pair_duplicates(&self) -> u64 {
        self.paired_duplicates / 2
    }

    /// Returns the fraction of mapped primary reads that are duplicates, 0 to 1.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_kernels::markdup::LibraryMetrics;
    /// use godwit_model::DuplicateCounts;
    ///
    /// let counts = DuplicateCounts { paired_reads: 2_000, ..DuplicateCounts::default() };
    /// let library = LibraryMetrics { counts, paired_duplicates: 400, ..LibraryMetrics::default() };
    /// assert_eq!(library.fraction_duplicate(), 0.2);
    /// ```
    pub fn fraction_duplicate(&self) -> f64 {
        let examined = self.counts.unpaired_reads + self.pairs() * 2;
        if examined == 0 {
            0.0
        } else {
            (self.unpaired_duplicates + self.pair_duplicates() * 2) as f64 / examined as f64
        }
    }

    /// Returns the estimated number of distinct molecules in the library; `None` if all duplicate pairs are optical or
    /// if there are none.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_kernels::markdup::LibraryMetrics;
    /// use godwit_model::DuplicateCounts;
    ///
    /// let counts = DuplicateCounts { paired_reads: 2_000, ..DuplicateCounts::default() };
    /// let library = LibraryMetrics { counts, paired_duplicates: 400, ..LibraryMetrics::default() };
    /// assert_eq!(library.estimated_library_size(), Some(2_154));
    /// assert_eq!(LibraryMetrics { paired_duplicates: 0, ..library }.estimated_library_size(), None);
    /// ```
    pub fn estimated_library_size(&self) -> Option<u64> {
        let pairs = self.pairs().checked_sub(self.optical_pairs)?;
        estimate_library_size(pairs, self.pairs().checked_sub(self.pair_duplicates())?)
    }
}

/// Returns the estimated number of distinct molecules in a library of which `pairs` pairs were sequenced, `unique` of them
/// without duplicates; `None` if there are no duplicates.
///
/// Solves the Lander-Waterman equation C/X = 1 - exp(-N/X) by bisection, with the number of steps and the start interval
/// of Picard.
pub fn estimate_library_size(pairs: u64, unique: u64) -> Option<u64> {
    let (pairs, unique) = (pairs as f64, unique as f64);
    if pairs <= 0.0 || pairs <= unique {
        return None;
    }
    let library_size_residual =
        |multiple: f64| unique / (multiple * unique) - 1.0 + (-pairs / (multiple * unique)).exp();
    if library_size_residual(1.0) < 0.0 {
        return None;
    }
    let (mut low, mut high) = (1.0, 100.0);
    while library_size_residual(high) > 0.0 {
        high *= 10.0;
    }
    for _ in 0..BISECTION_STEPS {
        let middle = (low + high) / 2.0;
        let value = library_size_residual(middle);
        if value == 0.0 {
            break;
        } else if value > 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some((unique * (low + high) / 2.0) as u64)
}

/// Returns the number of distinct pairs expected from `multiple` times the sequencing depth, divided by the present
/// number `unique`. `pairs`: the number of sequenced pairs.
pub fn expected_unique_ratio(library_size: u64, multiple: f64, pairs: u64, unique: u64) -> f64 {
    let size = library_size as f64;
    size * (1.0 - (-(multiple * pairs as f64) / size).exp()) / unique as f64
}

impl DuplicationMetrics {
    /// Sets the number of duplicate records of a library that the caller has counted: reads without (`unpaired`) and
    /// with (`paired`) a mapped mate.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_kernels::markdup::{DuplicationMetrics, LibraryMetrics};
    ///
    /// let mut metrics = DuplicationMetrics::default();
    /// metrics.libraries.push(LibraryMetrics { library: "lib1".to_owned(), ..LibraryMetrics::default() });
    /// metrics.set_duplicates("lib1", 3, 400);
    /// assert_eq!(metrics.libraries[0].unpaired_duplicates, 3);
    /// assert_eq!(metrics.libraries[0].pair_duplicates(), 200);
    /// ```
    pub fn set_duplicates(&mut self, library: &str, unpaired: u64, paired: u64) {
        for metrics in self.libraries.iter_mut().filter(|metrics| metrics.library == library) {
            metrics.unpaired_duplicates = unpaired;
            metrics.paired_duplicates = paired;
        }
    }

    /// Returns the number of duplicate sets for each size in pairs. Pairs without duplicates count as sets of size 1.
    pub fn sets_by_pairs(&self) -> &BTreeMap<u64, u64> {
        &self.set_sizes.all
    }

    /// Returns the text of the metrics file. Each of `comments` becomes a header line (`# ...`).
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_kernels::markdup::{DuplicationMetrics, LibraryMetrics};
    /// use godwit_model::DuplicateCounts;
    ///
    /// let library = "lib1".to_owned();
    /// let counts = DuplicateCounts { paired_reads: 2_000, ..DuplicateCounts::default() };
    /// let mut metrics = DuplicationMetrics::default();
    /// metrics.libraries.push(LibraryMetrics { library, counts, paired_duplicates: 400, ..LibraryMetrics::default() });
    /// let text = metrics.to_text(&["MarkDuplicates".to_owned()]);
    /// assert!(text.starts_with("## htsjdk.samtools.metrics.StringHeader\n# MarkDuplicates\n"));
    /// assert!(text.contains("lib1\t0\t1000\t0\t0\t0\t200\t0\t0.2\t2154\n"));
    /// ```
    pub fn to_text(&self, comments: &[String]) -> String {
        let mut text = picard_header(comments.iter().map(String::as_str));
        self.write_libraries(&mut text);
        text.push('\n');
        self.write_histogram(&mut text);
        text.push('\n');
        text
    }

    fn write_libraries(&self, text: &mut String) {
        if self.libraries.is_empty() {
            return;
        }
        *text += "## METRICS CLASS\tpicard.sam.DuplicationMetrics\n\
            LIBRARY\tUNPAIRED_READS_EXAMINED\tREAD_PAIRS_EXAMINED\tSECONDARY_OR_SUPPLEMENTARY_RDS\tUNMAPPED_READS\t\
            UNPAIRED_READ_DUPLICATES\tREAD_PAIR_DUPLICATES\tREAD_PAIR_OPTICAL_DUPLICATES\tPERCENT_DUPLICATION\t\
            ESTIMATED_LIBRARY_SIZE\n";
        for library in &self.libraries {
            let counts = &library.counts;
            let size = library.estimated_library_size().map(|size| size.to_string()).unwrap_or_default();
            let numbers = [
                counts.unpaired_reads,
                library.pairs(),
                counts.not_primary,
                counts.unmapped,
                library.unpaired_duplicates,
                library.pair_duplicates(),
                library.optical_pairs,
            ];
            *text += &library.library;
            for number in numbers {
                *text += &format!("\t{number}");
            }
            *text += &format!("\t{}\t{size}\n", format_double(library.fraction_duplicate()));
        }
    }

    /// Writes the histogram: the number of sets by size and, if there is only one library and its size is known, the
    /// return on investment.
    fn write_histogram(&self, text: &mut String) {
        let mut columns: Vec<(&str, BTreeMap<u64, f64>)> = Vec::new();
        let mut bin_label = "set_size";
        if let [library] = &self.libraries[..]
            && let Some(size) = library.estimated_library_size()
        {
            bin_label = "BIN";
            let (pairs, unique) = (library.pairs(), library.pairs() - library.pair_duplicates());
            let value = |multiple| expected_unique_ratio(size, multiple as f64, pairs, unique);
            columns.push(("CoverageMult", (1..=MAX_COVERAGE_MULTIPLE).map(|m| (m, value(m))).collect()));
        }
        let sizes = &self.set_sizes;
        for (label, sets) in
            [("all_sets", &sizes.all), ("optical_sets", &sizes.optical), ("non_optical_sets", &sizes.not_optical)]
        {
            if !sets.is_empty() {
                columns.push((label, sets.iter().map(|(size, count)| (*size, *count as f64)).collect()));
            }
        }
        if columns.is_empty() {
            return;
        }
        *text += "## HISTOGRAM\tjava.lang.Double\n";
        *text += bin_label;
        columns.iter().for_each(|(label, _)| *text += &format!("\t{label}"));
        text.push('\n');
        let bins: BTreeMap<u64, ()> = columns.iter().flat_map(|(_, bins)| bins.keys().map(|bin| (*bin, ()))).collect();
        for bin in bins.keys() {
            *text += &java_double(*bin);
            for (_, values) in &columns {
                *text += &format!("\t{}", format_double(values.get(bin).copied().unwrap_or(0.0)));
            }
            text.push('\n');
        }
    }
}

/// Formats an integer as Java's `Double.toString` does.
fn java_double(value: u64) -> String {
    if value < 10_000_000 {
        return format!("{value}.0");
    }
    // From 10^7 on, Java uses scientific notation; Rust's `{:e}` prints the same (shortest) digits.
    let scientific = format!("{:e}", value as f64);
    match scientific.split_once('e') {
        Some((mantissa, exponent)) if mantissa.contains('.') => format!("{mantissa}E{exponent}"),
        Some((mantissa, exponent)) => format!("{mantissa}.0E{exponent}"),
        None => scientific,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_printed_as_java_prints_them() {
        assert_eq!(java_double(3), "3.0");
        assert_eq!(java_double(10_000_000), "1.0E7");
        assert_eq!(java_double(12_345_678), "1.2345678E7");
    }

    #[test]
    fn library_size_needs_duplicates_that_are_not_optical() {
        let mut library = LibraryMetrics::default();
        library.counts.paired_reads = 200;
        assert_eq!(library.estimated_library_size(), None);
        library.paired_duplicates = 20;
        assert!(library.estimated_library_size().is_some_and(|size| size > 400));
        library.optical_pairs = 10;
        assert_eq!(library.estimated_library_size(), None);
    }
}
