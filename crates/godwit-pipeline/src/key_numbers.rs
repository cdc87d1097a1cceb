//! The most requested numbers of a job, for `run.json` and the report page alike.

use godwit_kernels::markdup::DuplicationMetrics;
use serde::Serialize;

use crate::reduce::Qc;

/// The most requested numbers. Percentages are 0 to 100; `None`: not measured, or without a value.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KeyNumbers {
    /// Reads in the BAM: records that are neither secondary nor supplementary.
    pub reads: u64,
    /// Bases of these reads.
    pub bases: u64,
    /// Reads that are mapped, percent.
    pub mapped_percent: f64,
    /// Paired reads that are properly paired, percent; `None` without paired reads.
    pub properly_paired_percent: Option<f64>,
    /// Mapped reads that are duplicates, percent: Picard's `PERCENT_DUPLICATION` over all libraries.
    pub duplicate_percent: Option<f64>,
    /// Pairs that are optical duplicates.
    pub optical_duplicate_pairs: Option<u64>,
    /// Picard's estimate of distinct molecules, summed over libraries; `None` if a library has no estimate.
    pub estimated_library_size: Option<u64>,
    /// Median insert size of the most frequent orientation, bases.
    pub median_insert: Option<f64>,
    /// Aligned bases that differ from the reference, percent; `None` if they were not compared.
    pub mismatch_percent: Option<f64>,
    /// Mean coverage of the genome, without duplicates; overlapping mates count once.
    pub mean_coverage: Option<f64>,
    /// Fraction of the genome covered at least 10, 20 and 30 times, percent.
    pub covered_percent: Option<[f64; 3]>,
}

impl KeyNumbers {
    /// Computes the numbers of a written file.
    pub(crate) fn new(qc: &Qc, duplication: Option<&DuplicationMetrics>) -> Self {
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

/// Sums the estimates over the libraries that have reads.
fn library_size(found: &DuplicationMetrics) -> Option<u64> {
    let with_reads = found.libraries.iter().filter(|one| one.pairs() + one.counts.unpaired_reads > 0);
    let sizes: Option<Vec<u64>> = with_reads.map(|one| one.estimated_library_size()).collect();
    sizes.filter(|sizes| !sizes.is_empty()).map(|sizes| sizes.iter().sum())
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { rounded(part as f64 * 100.0 / whole as f64) }
}

/// Rounds to four decimals.
fn rounded(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}
