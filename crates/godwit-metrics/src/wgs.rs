//! Depth of coverage along the genome: the metrics of Picard 3.4.0 `CollectWgsMetrics` with its default options.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::io;

use godwit_kernels::qc::{Alignment, ReferenceBases, starts_with_adapter};
use godwit_model::{RawRecord, flags};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use crate::base_codes::N_CODE;
use crate::bin_statistics::BinStatistics;
use crate::count_scope::CountScope;
use crate::het_sensitivity::het_snp_sensitivity;
use crate::metrics_text::{HistogramColumn, MetricsText, join_numbers};

/// Depth above which positions count as if they had this depth (`COVERAGE_CAP`).
const MAX_DEPTH: usize = 250;
/// Minimum mapping quality of a read that counts.
const MIN_MAPPING_QUALITY: u8 = 20;
/// Minimum quality of a base that counts.
const MIN_BASE_QUALITY: u8 = 20;
/// Maximum quality of a base that counts nowhere.
pub(crate) const MAX_IGNORED_QUALITY: u8 = 2;
/// Number of qualities that Picard counts.
pub(crate) const QUALITY_BINS: usize = 127;
/// Number of arrays over which the counts of qualities are spread.
const QUALITY_LANES: usize = 4;
/// Number of finished positions that are kept before they are removed from the window together.
pub(crate) const MAX_FINISHED_POSITIONS: usize = 1 << 14;
/// Depths for which the fraction of positions with at least this depth is reported.
const REPORTED_DEPTHS: [usize; 14] = [1, 5, 10, 15, 20, 25, 30, 40, 50, 60, 70, 80, 90, 100];
/// Fractions of positions above the percentile from which a fold penalty is computed.
const PENALTY_PERCENTILES: [f64; 3] = [0.2, 0.1, 0.05];

/// Numbers of bases at a position that is not N in the reference.
#[derive(Clone, Copy, Debug, Default)]
struct PositionDepth {
    /// Bases with a quality above 2, at most `MAX_DEPTH`.
    unfiltered: u32,
    /// Bases of high quality, one per template.
    filtered: u32,
}

/// The positions at which a record of a template has a base of high quality.
#[derive(Clone, Debug)]
struct CoveredPositions {
    /// 0-based position of the first bit.
    start: u32,
    bits: Vec<u64>,
}

impl CoveredPositions {
    /// Returns the bits of 64 positions. `position`: the first of them, not before `start`.
    fn word_at(&self, position: u32) -> u64 {
        let at = (position - self.start) as usize;
        let word = |index: usize| self.bits.get(index).copied().unwrap_or(0);
        let following = word(at / 64 + 1).unbounded_shl(64 - at as u32 % 64);
        word(at / 64) >> (at % 64) | following
    }
}

/// The hash of a name, which needs no further hash as key of a map.
#[derive(Clone, Copy, Debug, Default)]
struct HashedName(u64);

impl Hasher for HashedName {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.chunks_exact(8).for_each(|bytes| self.0 ^= u64::from_le_bytes(bytes.try_into().unwrap_or_default()));
    }

    fn write_u128(&mut self, hash: u128) {
        self.0 = hash as u64;
    }
}

/// Aligned bases that were not counted, by the reason.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct ExcludedBases {
    adapter: u64,
    mapping_quality: u64,
    duplicate: u64,
    unpaired: u64,
    base_quality: u64,
    overlap: u64,
    capped: u64,
}

/// The counts of finished positions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WgsCounts {
    excluded: ExcludedBases,
    /// Number of positions by depth, for positions with a base.
    filtered: Vec<u64>,
    unfiltered: Vec<u64>,
    /// Numbers of bases by quality. Neighbouring bases are counted in different lanes, so that equal qualities do not wait
    /// for each other.
    qualities: Vec<u64>,
}

impl Default for WgsCounts {
    fn default() -> Self {
        Self {
            excluded: ExcludedBases::default(),
            filtered: vec![0; MAX_DEPTH + 1],
            unfiltered: vec![0; MAX_DEPTH + 1],
            qualities: vec![0; QUALITY_LANES * QUALITY_BINS],
        }
    }
}

impl WgsCounts {
    fn merge(&mut self, other: &Self) {
        self.excluded.merge(&other.excluded);
        for (mine, theirs) in [
            (&mut self.filtered, &other.filtered),
            (&mut self.unfiltered, &other.unfiltered),
            (&mut self.qualities, &other.qualities),
        ] {
            mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
        }
    }
}

impl ExcludedBases {
    fn merge(&mut self, other: &Self) {
        self.adapter += other.adapter;
        self.mapping_quality += other.mapping_quality;
        self.duplicate += other.duplicate;
        self.unpaired += other.unpaired;
        self.base_quality += other.base_quality;
        self.overlap += other.overlap;
        self.capped += other.capped;
    }
}

/// Properties of at most 64 bases, one bit each.
#[derive(Clone, Copy, Debug, Default)]
struct StepBits {
    /// The reference is not N.
    called: u64,
    /// The reference is not N, and the base is called and of high quality.
    high: u64,
}

/// Counts at most 64 bases of a record, given as codes and qualities. `others`: a bit for each base, set if another record
/// of the template has a base of high quality there.
fn count_step(
    (codes, qualities): (&[u8], &[u8]),
    reference: &[u8],
    window: &mut [PositionDepth],
    others: u64,
    quality_counts: &mut [u64],
) -> StepBits {
    let mut bits = StepBits::default();
    // Few branches: qualities cannot be predicted.
    let read = codes.iter().zip(qualities).enumerate();
    for ((at, (code, quality)), (against, depth)) in read.zip(reference.iter().zip(window)) {
        let is_called = *against != N_CODE;
        let is_counted = is_called & (*quality > MAX_IGNORED_QUALITY) & (depth.unfiltered < MAX_DEPTH as u32);
        let is_high = is_called & (*quality >= MIN_BASE_QUALITY) & (*code != N_CODE);
        let bin = at % QUALITY_LANES * QUALITY_BINS + usize::from(*quality).min(QUALITY_BINS - 1);
        quality_counts[bin] += u64::from(is_counted);
        depth.unfiltered += u32::from(is_counted);
        depth.filtered += u32::from(is_high & (others >> at & 1 == 0));
        bits.called |= u64::from(is_called) << at;
        bits.high |= u64::from(is_high) << at;
    }
    bits
}

/// The depth of coverage. Records must come in the order of their coordinates.
#[derive(Clone, Debug)]
pub(crate) struct WgsDepth {
    counts: WgsCounts,
    contig: i32,
    /// 0-based position of the first entry of `window`.
    window_start: u32,
    window: Vec<PositionDepth>,
    /// Number of entries of `window` that are finished.
    finished: usize,
    /// Covered positions of the templates with records that end after the current position, by the hash of the name.
    templates: HashMap<u128, Vec<CoveredPositions>, BuildHasherDefault<HashedName>>,
    /// Position after the last base of each record in `templates`, with its hash, in the order of the records.
    open_records: VecDeque<(u32, u128)>,
    /// Bit sets of removed records, for the next ones.
    unused: Vec<Vec<u64>>,
}

impl Default for WgsDepth {
    fn default() -> Self {
        Self {
            counts: WgsCounts::default(),
            contig: -1,
            window_start: 0,
            window: Vec::new(),
            finished: 0,
            templates: HashMap::default(),
            open_records: VecDeque::new(),
            unused: Vec::new(),
        }
    }
}

impl WgsDepth {
    /// Counts a record, and its bases within `scope`.
    ///
    /// # Errors
    /// The errors of `reference`.
    pub(crate) fn add<R: ReferenceBases>(
        &mut self,
        record: RawRecord,
        alignment: &Alignment,
        scope: CountScope,
        reference: &mut R,
    ) -> io::Result<()> {
        if let Some(counter) = self.exclusion(record, alignment) {
            *counter += if scope.counts_record { alignment.aligned_bases() } else { 0 };
            return Ok(());
        }
        let flag = alignment.flag;
        let excluded = flags::SECONDARY | flags::UNMAPPED | flags::QC_FAIL;
        if flag & excluded != 0 || !record.has_qualities() || record.contig() < 0 || alignment.reference_bases == 0 {
            return Ok(());
        }
        let start = record.position().max(0) as u32;
        let end = start + alignment.reference_bases as u32;
        self.advance(record.contig(), start);
        let needed = (end - self.window_start) as usize;
        if self.window.len() < needed {
            self.window.resize(needed, PositionDepth::default());
        }
        let bases = reference.codes(record.contig(), start, end)?;
        self.add_bases(record, alignment, scope, bases);
        Ok(())
    }

    /// Returns the counter of the bases of a record that a filter removes, by the filters of Picard in their order.
    fn exclusion(&mut self, record: RawRecord, alignment: &Alignment) -> Option<&mut u64> {
        let flag = alignment.flag;
        let (mapped, reverse) = (flag & flags::UNMAPPED == 0, flag & flags::REVERSE != 0);
        if flag & flags::SECONDARY != 0 {
            None
        } else if (!mapped || record.mapping_quality() == 0) && starts_with_adapter(alignment.codes, mapped && reverse)
        {
            Some(&mut self.counts.excluded.adapter)
        } else if record.mapping_quality() < MIN_MAPPING_QUALITY {
            Some(&mut self.counts.excluded.mapping_quality)
        } else if flag & flags::DUPLICATE != 0 {
            Some(&mut self.counts.excluded.duplicate)
        } else if flag & flags::PAIRED == 0 || flag & flags::MATE_UNMAPPED != 0 {
            Some(&mut self.counts.excluded.unpaired)
        } else {
            None
        }
    }

    fn add_bases(&mut self, record: RawRecord, alignment: &Alignment, scope: CountScope, reference: &[u8]) {
        let start = record.position().max(0) as u32;
        let (name, qualities) = (xxh3_128(record.name()), record.qualities());
        let records = self.templates.entry(name).or_default();
        let mut bits = self.unused.pop().unwrap_or_default();
        bits.clear();
        bits.resize(reference.len().div_ceil(64), 0);
        let mut covered = CoveredPositions { start, bits };
        let offset = (start - self.window_start) as usize;
        let WgsCounts { excluded, qualities: quality_counts, .. } = &mut self.counts;
        for block in alignment.blocks {
            let counted = scope.clip_block(start, block);
            let (read_start, reference_start) =
                (block.read_start + counted.start, block.reference_offset + counted.start);
            let codes = alignment.codes.get(read_start..).unwrap_or_default();
            let qualities = qualities.get(read_start..).unwrap_or_default();
            let reference_bases = reference.len().saturating_sub(reference_start);
            let bases = counted.len().min(codes.len()).min(qualities.len()).min(reference_bases);
            let mut at = reference_start;
            // Each step counts the bases whose positions are in one word of the bits.
            while at < reference_start + bases {
                let (word, bit) = (at / 64, at % 64);
                let until = (reference_start + bases).min((word + 1) * 64);
                let step = at - reference_start..until - reference_start;
                let others = records.iter().fold(0, |bits, other| bits | other.word_at(start + (at - bit) as u32));
                let found = count_step(
                    (&codes[step.clone()], &qualities[step]),
                    &reference[at..until],
                    &mut self.window[offset + at..offset + until],
                    others >> bit,
                    quality_counts,
                );
                covered.bits[word] |= (found.high & !(others >> bit)) << bit;
                excluded.overlap += u64::from((found.high & others >> bit).count_ones());
                excluded.base_quality += u64::from((found.called & !found.high).count_ones());
                at = until;
            }
        }
        self.open_records.push_back((start + alignment.reference_bases as u32, name));
        records.push(covered);
    }

    /// Finishes all positions before `start`, and forgets the records that end before it.
    fn advance(&mut self, contig: i32, start: u32) {
        if contig != self.contig {
            self.finish_contig();
            (self.contig, self.window_start) = (contig, start);
            return;
        }
        while let Some((_, name)) = self.open_records.front().filter(|(end, _)| *end <= start).copied() {
            self.open_records.pop_front();
            self.forget_first_record(name);
        }
        let until = ((start - self.window_start) as usize).min(self.window.len());
        self.finish_positions(until);
        if self.finished == self.window.len() {
            self.window.clear();
            (self.window_start, self.finished) = (start, 0);
        } else if self.finished >= MAX_FINISHED_POSITIONS {
            self.window.drain(..self.finished);
            self.window_start += self.finished as u32;
            self.finished = 0;
        }
    }

    /// Removes the first record of a template. The queue and the template have the records in the same order.
    fn forget_first_record(&mut self, name: u128) {
        let Entry::Occupied(mut records) = self.templates.entry(name) else { return };
        if !records.get().is_empty() {
            self.unused.push(records.get_mut().remove(0).bits);
        }
        if records.get().is_empty() {
            records.remove();
        }
    }

    fn finish_positions(&mut self, until: usize) {
        let Some(positions) = self.window.get(self.finished..until) else { return };
        for depth in positions.iter().filter(|depth| depth.unfiltered > 0) {
            let filtered = (depth.filtered as usize).min(MAX_DEPTH);
            self.counts.excluded.capped += u64::from(depth.filtered) - filtered as u64;
            self.counts.filtered[filtered] += 1;
            self.counts.unfiltered[depth.unfiltered as usize] += 1;
        }
        self.finished = until;
    }

    /// Finishes all positions and forgets all records. The next record may have any position.
    pub(crate) fn finish_contig(&mut self) {
        self.finish_positions(self.window.len());
        self.window.clear();
        self.finished = 0;
        self.templates.clear();
        self.open_records.clear();
        self.contig = -1;
    }

    /// Returns the counts. All positions must be finished.
    pub(crate) fn into_counts(self) -> WgsCounts {
        self.counts
    }

    /// Adds the counts of other positions and records.
    pub(crate) fn add_counts(&mut self, other: &WgsCounts) {
        self.counts.merge(other);
    }

    /// Returns the text of the metrics file. All records must have been counted. `called_bases`: the number of bases of
    /// the reference that are not N.
    pub(crate) fn into_text(mut self, called_bases: u64, comment: &str) -> String {
        self.finish_contig();
        let counts = &mut self.counts;
        let uncovered = called_bases.saturating_sub(counts.filtered.iter().sum());
        counts.filtered[0] += uncovered;
        counts.unfiltered[0] += uncovered;
        let bins = counts.filtered.iter().enumerate().map(|(depth, count)| (depth as u64, *count as f64)).collect();
        let histogram = [HistogramColumn { name: "high_quality_coverage_count", bins }];
        MetricsText::new(comment).with_rows("picard.analysis.WgsMetrics", COLUMNS, &[self.counts.row()]).finish(
            "java.lang.Integer",
            "coverage",
            &histogram,
        )
    }
}

impl WgsCounts {
    fn row(&self) -> String {
        let depths = BinStatistics(&self.filtered);
        let (territory, mean, counted) = (depths.count(), depths.mean(), depths.sum());
        let excluded = &self.excluded;
        let by_reason = [
            excluded.adapter,
            excluded.mapping_quality,
            excluded.duplicate,
            excluded.unpaired,
            excluded.base_quality,
            excluded.overlap,
            excluded.capped,
        ];
        let all_excluded: u64 = by_reason.iter().sum();
        let all = (counted + all_excluded) as f64;
        let share = |bases: u64| if all == 0.0 { 0.0 } else { bases as f64 / all };
        let mut values = vec![
            territory as f64,
            mean,
            depths.standard_deviation(),
            depths.median(),
            depths.median_absolute_deviation(),
        ];
        values.extend(by_reason.map(share));
        values.push(share(all_excluded));
        values.extend(REPORTED_DEPTHS.map(|depth| depths.count_from(depth) as f64 / territory as f64));
        let penalty = |fraction| if territory == 0 { 0.0 } else { mean / depths.percentile(fraction) };
        values.extend(PENALTY_PERCENTILES.map(penalty));
        let lanes = |bin| self.qualities.iter().skip(bin).step_by(QUALITY_BINS).sum();
        let qualities: Vec<u64> = (0..QUALITY_BINS).map(lanes).collect();
        let (sensitivity, quality) = het_snp_sensitivity(&self.unfiltered, &qualities);
        values.extend([sensitivity, f64::from(quality)]);
        join_numbers(&values)
    }
}

/// Names of the columns.
const COLUMNS: &str = "GENOME_TERRITORY\tMEAN_COVERAGE\tSD_COVERAGE\tMEDIAN_COVERAGE\tMAD_COVERAGE\tPCT_EXC_ADAPTER\t\
    PCT_EXC_MAPQ\tPCT_EXC_DUPE\tPCT_EXC_UNPAIRED\tPCT_EXC_BASEQ\tPCT_EXC_OVERLAP\tPCT_EXC_CAPPED\tPCT_EXC_TOTAL\t\
    PCT_1X\tPCT_5X\tPCT_10X\tPCT_15X\tPCT_20X\tPCT_25X\tPCT_30X\tPCT_40X\tPCT_50X\tPCT_60X\tPCT_70X\tPCT_80X\t\
    PCT_90X\tPCT_100X\tFOLD_80_BASE_PENALTY\tFOLD_90_BASE_PENALTY\tFOLD_95_BASE_PENALTY\tHET_SNP_SENSITIVITY\t\
    HET_SNP_Q";
