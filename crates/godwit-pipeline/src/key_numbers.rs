//! The most requested metrics of a job, for `run.json` and for the report page.

use godwit_kernels::markdup::DuplicationMetrics;
use serde::Serialize;

use crate::reduce::Qc;

/// The most requested metrics. Percentages are in the range 0 to 100; `None` means that the metric was not measured or
/// is undefined.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KeyNumbers {
    /// Number of reads in the BAM, which are the records that are neither secondary nor supplementary.
    pub reads: u64,
    /// Number of bases in these reads.
    pub bases: u64,
    /// Percentage of reads that are mapped.
    pub mapped_percent: f64,
    /// Percentage of paired reads that are properly paired; `None` if there are no paired reads.
    pub properly_paired_percent: Option<f64>,
    /// Percentage of mapped reads that are duplicates: Picard's `PERCENT_DUPLICATION` over all libraries.
    pub duplicate_percent: Option<f64>,
    /// Number of read pairs that are optical duplicates.
    pub optical_duplicate_pairs: Option<u64>,
    /// Picard's estimate of the number of distinct molecules, summed over all libraries; `None` if a library has no
    /// estimate.
    pub estimated_library_size: Option<u64>,
    /// Median insert size of the most frequent pair orientation, bases.
    pub median_insert: Option<f64>,
    /// Percentage of aligned bases that differ from the reference; `None` if no reference was compared.
    pub mismatch_percent: Option<f64>,
    /// Mean coverage of the genome without duplicates. Overlapping mates count once.
    pub mean_coverage: Option<f64>,
    /// Percentage of the genome that is covered at least 10, 20 and 30 times.
    pub covered_percent: Option<[f64; 3]>,
}

impl KeyNumbers {
    /// Computes the metrics of a written file.
    pub fn new(qc: &Qc, duplication: Option<&DuplicationMetrics>) -> Self {
        let stats = &qc.counts.stats;
        let (paired, proper) = stats.paired();
        let (mismatches, aligned) = qc.counts.summary.mismatches();
        let rows = qc.counts.insert_sizes.rows();
        let main = rows.iter().max_by_key(|row| row.pairs);
        let mosdepth = qc.coverage.mosdepth.as_ref();
        Self {
            reads: stats.reads(),
            bases: stats.bases(),
            mapped_percent: percent(stats.mapped(), stats.reads()),
            properly_paired_percent: (paired > 0).then(|| percent(proper, paired)),
            duplicate_percent: duplication.map(duplicate_percent),
            optical_duplicate_pairs: duplication.map(|found| found.libraries.iter().map(|one| one.optical_pairs).sum()),
            estimated_library_size: duplication.and_then(library_size),
            median_insert: main.map(|row| row.median),
            mismatch_percent: (qc.is_reference_compared && aligned > 0).then(|| percent(mismatches, aligned)),
            mean_coverage: mosdepth.map(|depth| rounded(depth.mean())),
            covered_percent: mosdepth
                .map(|depth| [10, 20, 30].map(|least| rounded(100.0 * depth.fraction_at_least(least)))),
        }
    }
}

fn duplicate_percent(found: &DuplicationMetrics) -> f64 {
    let sum = |number: fn(&godwit_kernels::markdup::LibraryMetrics) -> u64| -> u64 {
        found.libraries.iter().map(number).sum()
    };
    let duplicates = sum(|one| one.unpaired_duplicates + 2 * one.pair_duplicates());
    percent(duplicates, sum(|one| one.counts.unpaired_reads + 2 * one.pairs()))
}

/// Returns the sum of the estimated library sizes over all libraries that have reads; `None` if one has no estimate.
fn library_size(found: &DuplicationMetrics) -> Option<u64> {
    let with_reads = found.libraries.iter().filter(|one| one.pairs() + one.counts.unpaired_reads > 0);
    let sizes: Option<Vec<u64>> = with_reads.map(|one| one.estimated_library_size()).collect();
    sizes.filter(|sizes| !sizes.is_empty()).map(|sizes| sizes.iter().sum())
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { rounded(part as f64 * 100.0 / whole as f64) }
}

/// Rounds to four decimal places.
fn rounded(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}
