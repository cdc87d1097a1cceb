//! Sums of base qualities and counts of bases for each cycle of the sequencer: the metrics of Picard 3.4.0
//! `MeanQualityByCycle` (`HistogramGenerator`) and `CollectBaseDistributionByCycle`.

use godwit_kernels::qc::Alignment;
use godwit_model::{RawRecord, flags};
use serde::{Deserialize, Serialize};

use crate::base_codes::{A_CODE, C_CODE, G_CODE, T_CODE};
use crate::metrics_text::{HistogramColumn, MetricsText, join_numbers};
use crate::phred::QUALITY_LETTER_OFFSET;

/// Maximum number of reads in the 8-bit and 16-bit sums, which are then added to the 64-bit sums. The sum of that many
/// qualities, at most 255 each, fits 16 bits, and a count of that many bases 8 bits.
const MAX_PENDING_READS: u32 = 255;
/// Codes of the bases that are counted. All other codes count as N.
const BASE_CODES: [u8; 4] = [A_CODE, C_CODE, G_CODE, T_CODE];

/// A sum over at most [`MAX_PENDING_READS`] reads.
trait PendingSum: Copy + Default + Into<u64> {
    /// Adds a value. The sum never overflows; without a check the compiler adds several values at once.
    fn add(self, value: Self) -> Self;
}

impl PendingSum for u8 {
    fn add(self, value: Self) -> Self {
        self.wrapping_add(value)
    }
}

impl PendingSum for u16 {
    fn add(self, value: Self) -> Self {
        self.wrapping_add(value)
    }
}

/// One value per cycle, summed over reads. Values of a few reads are added up in few bits, and in the order of the record,
/// so that the compiler adds many cycles at once.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct CycleSum<T> {
    /// Sums of reads on the forward strand, from the first cycle on.
    forward: Vec<T>,
    /// Sums of reads on the reverse strand; the last one is that of the first cycle.
    reverse: Vec<T>,
    total: Vec<u64>,
}

impl<T: PendingSum> CycleSum<T> {
    /// Adds the values of one read. `reverse`: the last value belongs to the first cycle.
    fn add(&mut self, reverse: bool, values: impl ExactSizeIterator<Item = T>) {
        let pending = if reverse { &mut self.reverse } else { &mut self.forward };
        let missing = values.len().saturating_sub(pending.len());
        if missing > 0 {
            let at = if reverse { 0 } else { pending.len() };
            pending.splice(at..at, std::iter::repeat_n(T::default(), missing));
        }
        let first = if reverse { pending.len() - values.len() } else { 0 };
        pending[first..].iter_mut().zip(values).for_each(|(sum, value)| *sum = sum.add(value));
    }

    fn flush(&mut self) {
        let cycles = self.total.len().max(self.forward.len()).max(self.reverse.len());
        self.total.resize(cycles, 0);
        for (total, pending) in self.total.iter_mut().zip(&mut self.forward) {
            *total += Into::<u64>::into(std::mem::take(pending));
        }
        for (total, pending) in self.total.iter_mut().zip(self.reverse.iter_mut().rev()) {
            *total += Into::<u64>::into(std::mem::take(pending));
        }
    }

    fn merge(&mut self, other: &Self) {
        if self.total.len() < other.total.len() {
            self.total.resize(other.total.len(), 0);
        }
        self.total.iter_mut().zip(&other.total).for_each(|(mine, theirs)| *mine += theirs);
    }

    /// Returns the sum of a 0-based cycle.
    fn get(&self, cycle: usize) -> u64 {
        self.total.get(cycle).copied().unwrap_or(0)
    }
}

/// The number of reads that reach each cycle, as the number of reads of each length.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct ReadLengths(Vec<u64>);

impl ReadLengths {
    fn add(&mut self, bases: usize) {
        if self.0.len() <= bases {
            self.0.resize(bases + 1, 0);
        }
        self.0[bases] += 1;
    }

    fn merge(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| *mine += theirs);
    }

    /// Returns for each 0-based cycle the number of reads that have it.
    fn reads_by_cycle(&self) -> Vec<u64> {
        let mut reads = 0;
        let mut by_cycle: Vec<u64> = self
            .0
            .iter()
            .skip(1)
            .rev()
            .map(|count| {
                reads += count;
                reads
            })
            .collect();
        by_cycle.reverse();
        by_cycle
    }
}

/// Sums of qualities by cycle, for first and for second reads of pairs. Unpaired reads are first reads.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct QualitySums {
    sums: [CycleSum<u16>; 2],
    lengths: [ReadLengths; 2],
}

impl QualitySums {
    fn add(&mut self, end: usize, reverse: bool, qualities: impl ExactSizeIterator<Item = u16>) {
        self.lengths[end].add(qualities.len());
        self.sums[end].add(reverse, qualities);
    }

    fn flush(&mut self) {
        self.sums.iter_mut().for_each(CycleSum::flush);
    }

    fn merge(&mut self, other: &Self) {
        self.sums.iter_mut().zip(&other.sums).for_each(|(mine, theirs)| mine.merge(theirs));
        self.lengths.iter_mut().zip(&other.lengths).for_each(|(mine, theirs)| mine.merge(theirs));
    }

    /// Returns the mean quality of each 1-based cycle. The cycles of second reads follow the last cycle of first reads
    /// that has a quality above 0.
    fn mean_by_cycle(&self) -> Vec<(u64, f64)> {
        let mut means = Vec::new();
        let mut first_cycles = 0;
        for (at, reads) in self.lengths[0].reads_by_cycle().into_iter().enumerate() {
            let sum = self.sums[0].get(at);
            if sum > 0 {
                first_cycles = at as u64 + 1;
                means.push((first_cycles, sum as f64 / reads as f64));
            }
        }
        for (at, reads) in self.lengths[1].reads_by_cycle().into_iter().enumerate() {
            if reads > 0 {
                means.push((first_cycles + at as u64 + 1, self.sums[1].get(at) as f64 / reads as f64));
            }
        }
        means
    }
}

/// The sums of all reads that are neither secondary nor supplementary.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct CycleTotals {
    qualities: QualitySums,
    original_qualities: QualitySums,
    /// Counts of A, C, G and T as stored in the records, for first and for second reads.
    bases: [[CycleSum<u8>; 4]; 2],
    lengths: [ReadLengths; 2],
    pending_reads: u32,
}

impl CycleTotals {
    /// Counts a record, which must be primary.
    pub(crate) fn add(&mut self, record: RawRecord, alignment: &Alignment) {
        let is_second = alignment.flag & (flags::PAIRED | flags::LAST) == flags::PAIRED | flags::LAST;
        let (end, reverse) = (usize::from(is_second), alignment.flag & flags::REVERSE != 0);
        if record.has_qualities() {
            self.qualities.add(end, reverse, record.qualities().iter().map(|quality| u16::from(*quality)));
        }
        if let Some(letters) = alignment.tags.original_qualities {
            let numbers = letters.iter().map(|letter| u16::from(letter.saturating_sub(QUALITY_LETTER_OFFSET)));
            self.original_qualities.add(end, reverse, numbers);
        }
        self.lengths[end].add(alignment.codes.len());
        for (sum, base) in self.bases[end].iter_mut().zip(BASE_CODES) {
            sum.add(reverse, alignment.codes.iter().map(|code| u8::from(*code == base)));
        }
        self.pending_reads += 1;
        if self.pending_reads == MAX_PENDING_READS {
            self.flush();
        }
    }

    /// Adds all pending values to the sums.
    pub(crate) fn flush(&mut self) {
        self.pending_reads = 0;
        self.qualities.flush();
        self.original_qualities.flush();
        self.bases.iter_mut().flatten().for_each(CycleSum::flush);
    }

    /// Adds the sums of other records, which must have no pending values.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.qualities.merge(&other.qualities);
        self.original_qualities.merge(&other.original_qualities);
        for (mine, theirs) in self.bases.iter_mut().flatten().zip(other.bases.iter().flatten()) {
            mine.merge(theirs);
        }
        self.lengths.iter_mut().zip(&other.lengths).for_each(|(mine, theirs)| mine.merge(theirs));
    }

    /// Returns the text of Picard's `MeanQualityByCycle`.
    pub(crate) fn to_quality_text(&self, comment: &str) -> String {
        let columns = [
            HistogramColumn { name: "MEAN_QUALITY", bins: self.qualities.mean_by_cycle() },
            HistogramColumn { name: "MEAN_ORIGINAL_QUALITY", bins: self.original_qualities.mean_by_cycle() },
        ];
        MetricsText::new(comment).finish("java.lang.Integer", "CYCLE", &columns)
    }

    /// Returns the text of Picard's `CollectBaseDistributionByCycle`.
    pub(crate) fn to_base_text(&self, comment: &str) -> String {
        let mut rows = Vec::new();
        let mut first_cycles = 0;
        for (end, (bases, lengths)) in self.bases.iter().zip(&self.lengths).enumerate() {
            for (at, reads) in lengths.reads_by_cycle().into_iter().enumerate() {
                let counts: Vec<u64> = bases.iter().map(|sum| sum.get(at)).collect();
                let others = reads - counts.iter().sum::<u64>();
                let percent = |count: u64| 100.0 * count as f64 / reads as f64;
                let percents: Vec<f64> = counts.into_iter().chain([others]).map(percent).collect();
                let cycle = at + 1 + if end == 1 { first_cycles } else { 0 };
                rows.push(format!("{}\t{cycle}\t{}", end + 1, join_numbers(&percents)));
            }
            first_cycles = rows.len();
        }
        MetricsText::new(comment)
            .with_rows(
                "picard.analysis.BaseDistributionByCycleMetrics",
                "READ_END\tCYCLE\tPCT_A\tPCT_C\tPCT_G\tPCT_T\tPCT_N",
                &rows,
            )
            .finish_without_histogram()
    }
}
