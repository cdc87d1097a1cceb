//! Coverage by GC content of the reference: the metrics of Picard 3.4.0 `CollectGcBiasMetrics` over all reads.

use std::io;

use godwit_kernels::qc::{Alignment, AlignmentBlock, ReferenceBases, count_byte_pairs};
use godwit_model::{RawRecord, flags};
use serde::{Deserialize, Serialize};

use crate::count_array;
use crate::metrics_text::{MetricsText, join_numbers};
use crate::phred::phred_score;
use crate::reference_scan::{GC_BINS, ReferenceCounts, WINDOW_BASES, window_gc};

/// Ranges of GC content whose normalized coverage is reported, first and last percent.
const COVERAGE_RANGES: [(usize, usize); 5] = [(0, 19), (20, 39), (40, 59), (60, 79), (80, 100)];
/// Maximum GC content whose dropout counts as AT dropout.
const MAX_AT_DROPOUT_GC: usize = 50;

/// Counts of all records, secondary and supplementary ones included, by the GC content at the start of the read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GcBias {
    clusters: u64,
    aligned: u64,
    #[serde(with = "count_array")]
    reads: [u64; GC_BINS],
    #[serde(with = "count_array")]
    bases: [u64; GC_BINS],
    #[serde(with = "count_array")]
    errors: [u64; GC_BINS],
}

impl Default for GcBias {
    fn default() -> Self {
        Self { clusters: 0, aligned: 0, reads: [0; GC_BINS], bases: [0; GC_BINS], errors: [0; GC_BINS] }
    }
}

impl GcBias {
    /// Counts a record. `contig_length`: the length of its contig, bases.
    ///
    /// # Errors
    /// The errors of `reference`.
    pub(crate) fn add<R: ReferenceBases>(
        &mut self,
        record: RawRecord,
        alignment: &Alignment,
        contig_length: u32,
        reference: &mut R,
    ) -> io::Result<()> {
        let flag = alignment.flag;
        if alignment.codes.is_empty() {
            return Ok(());
        }
        self.clusters += u64::from(flag & flags::PAIRED == 0 || flag & flags::FIRST != 0);
        if flag & flags::UNMAPPED != 0 {
            return Ok(());
        }
        self.aligned += 1;
        let start = i64::from(record.position());
        // Picard uses the 1-based position as an index from 0.
        let window = match flag & flags::REVERSE {
            0 => start + 1,
            _ => start + alignment.reference_bases - i64::from(WINDOW_BASES),
        };
        if window <= 0 {
            return Ok(());
        }
        let Some(gc) = window_gc(reference, record.contig(), contig_length, window as u32)? else { return Ok(()) };
        self.reads[gc] += 1;
        self.bases[gc] += alignment.codes.len() as u64;
        let start = record.position().max(0) as u32;
        let bases = reference.codes(record.contig(), start, start + alignment.reference_bases as u32)?;
        let mismatches = count_mismatches(alignment, bases);
        self.errors[gc] += mismatches + alignment.indel_bases;
        Ok(())
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.clusters += other.clusters;
        self.aligned += other.aligned;
        for (mine, theirs) in
            [(&mut self.reads, &other.reads), (&mut self.bases, &other.bases), (&mut self.errors, &other.errors)]
        {
            mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
        }
    }

    fn mean_reads_per_window(&self, windows: &ReferenceCounts) -> f64 {
        sum(&self.reads) / sum(&windows.windows_by_gc)
    }

    /// Returns the text of the detail metrics, one row for each GC content.
    pub(crate) fn to_detail_text(&self, windows: &ReferenceCounts, comment: &str) -> String {
        let mean = self.mean_reads_per_window(windows);
        let row = |gc: usize| {
            let (count, reads) = (windows.windows_by_gc[gc], self.reads[gc]);
            let quality = match self.errors[gc] {
                0 => 0,
                errors => phred_score(errors as f64 / self.bases[gc] as f64),
            };
            let normalized = |value: f64| if count == 0 { 0.0 } else { value / count as f64 / mean };
            let values = join_numbers(&[normalized(reads as f64), normalized((reads as f64).sqrt())]);
            format!("All Reads\tALL\t{gc}\t{count}\t{reads}\t{quality}\t{values}\t\t\t")
        };
        let rows: Vec<String> = if self.aligned > 0 { (0..GC_BINS).map(row).collect() } else { Vec::new() };
        MetricsText::new(comment)
            .with_rows(
                "picard.analysis.GcBiasDetailMetrics",
                "ACCUMULATION_LEVEL\tREADS_USED\tGC\tWINDOWS\tREAD_STARTS\tMEAN_BASE_QUALITY\tNORMALIZED_COVERAGE\t\
                 ERROR_BAR_WIDTH\tSAMPLE\tLIBRARY\tREAD_GROUP",
                &rows,
            )
            .finish_without_histogram()
    }

    /// Returns the text of the summary metrics, one row.
    pub(crate) fn to_summary_text(&self, windows: &ReferenceCounts, comment: &str) -> String {
        let mean = self.mean_reads_per_window(windows);
        let [at_dropout, gc_dropout] = self.dropouts(windows);
        let coverage = |(first, last): (usize, usize)| {
            let counted = (first..=last).filter(|gc| windows.windows_by_gc[*gc] != 0);
            let (reads, count) = counted.fold((0.0, 0), |(reads, count), gc| {
                (reads + self.reads[gc] as f64, count + windows.windows_by_gc[gc])
            });
            if count == 0 { 0.0 } else { reads / (count as f64 * mean) }
        };
        let mut values = vec![at_dropout, gc_dropout];
        values.extend(COVERAGE_RANGES.map(coverage));
        let counts = format!("{WINDOW_BASES}\t{}\t{}", self.clusters, self.aligned);
        let row = format!("All Reads\tALL\t{counts}\t{}\t\t\t", join_numbers(&values));
        let rows = if self.aligned > 0 { vec![row] } else { Vec::new() };
        MetricsText::new(comment)
            .with_rows(
                "picard.analysis.GcBiasSummaryMetrics",
                "ACCUMULATION_LEVEL\tREADS_USED\tWINDOW_SIZE\tTOTAL_CLUSTERS\tALIGNED_READS\tAT_DROPOUT\tGC_DROPOUT\t\
                 GC_NC_0_19\tGC_NC_20_39\tGC_NC_40_59\tGC_NC_60_79\tGC_NC_80_100\tSAMPLE\tLIBRARY\tREAD_GROUP",
                &rows,
            )
            .finish_without_histogram()
    }

    /// Returns the percentages of reads that are missing at a GC content of at most 50, and above.
    fn dropouts(&self, windows: &ReferenceCounts) -> [f64; 2] {
        let (all_reads, all_windows) = (sum(&self.reads), sum(&windows.windows_by_gc));
        let mut dropouts = [0.0; 2];
        for gc in 0..GC_BINS {
            let relative_reads = self.reads[gc] as f64 / all_reads;
            let relative_windows = windows.windows_by_gc[gc] as f64 / all_windows;
            let dropout = (relative_windows - relative_reads) * 100.0;
            if dropout > 0.0 {
                dropouts[usize::from(gc > MAX_AT_DROPOUT_GC)] += dropout;
            }
        }
        dropouts
    }
}

/// Counts the bases in alignment blocks that differ from the reference. `bases`: the codes of the reference from POS on.
/// The function is not generic, so that this crate compiles it.
fn count_mismatches(alignment: &Alignment, bases: &[u8]) -> u64 {
    let block_mismatches = |block: &AlignmentBlock| {
        let read = alignment.codes.get(block.read_start..).unwrap_or_default();
        let against = bases.get(block.reference_offset..).unwrap_or_default();
        let length = block.bases.min(read.len()).min(against.len());
        count_byte_pairs(&read[..length], &against[..length], |a, b| a != b)
    };
    alignment.blocks.iter().map(block_mismatches).sum()
}

fn sum(values: &[u64; GC_BINS]) -> f64 {
    values.iter().sum::<u64>() as f64
}
