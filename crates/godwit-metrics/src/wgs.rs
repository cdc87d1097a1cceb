//! Depth of coverage along the genome: the metrics of Picard 3.4.0 `CollectWgsMetrics` with its default options.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::io;

use godwit_kernels::qc::{Alignment, ReferenceBases, starts_with_adapter};
use godwit_model::{RawRecord, flags};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use crate::bin_statistics::BinStatistics;
use crate::count_scope::CountScope;
use crate::het_sensitivity::het_snp_sensitivity;
use crate::metrics_text::{HistogramColumn, MetricsText, join_numbers};
use crate::reference_scan::N_CODE;

/// Depth above which positions count as if they had this depth (`COVERAGE_CAP`).
const MAX_DEPTH: usize = 250;
/// Minimum mapping quality of a read that counts.
const MIN_MAPPING_QUALITY: u8 = 20;
/// Minimum quality of a base that counts.
const MIN_BASE_QUALITY: u8 = 20;
/// Maximum quality of a base that counts nowhere.
const MAX_IGNORED_QUALITY: u8 = 2;
/// Number of qualities that Picard counts.
pub(crate) const QUALITY_BINS: usize = 127;
/// Number of finished positions that are kept before they are removed from the window together.
const MAX_FINISHED_POSITIONS: usize = 1 << 14;
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
    fn contains(&self, position: u32) -> bool {
        let at = position.wrapping_sub(self.start) as usize;
        self.bits.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    fn insert(&mut self, position: u32) {
        let at = (position - self.start) as usize;
        if let Some(word) = self.bits.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
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
    qualities: Vec<u64>,
}

impl Default for WgsCounts {
    fn default() -> Self {
        Self {
            excluded: ExcludedBases::default(),
            filtered: vec![0; MAX_DEPTH + 1],
            unfiltered: vec![0; MAX_DEPTH + 1],
            qualities: vec![0; QUALITY_BINS],
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
        let no_qualities = record.qualities().first() == Some(&u8::MAX);
        let excluded = flags::SECONDARY | flags::UNMAPPED | flags::QC_FAIL;
        if flag & excluded != 0 || no_qualities || record.contig() < 0 || alignment.reference_bases == 0 {
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
        let mut records = std::mem::take(self.templates.entry(name).or_default());
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
            let against = reference.get(reference_start..).unwrap_or_default();
            let window = &mut self.window[offset + reference_start..];
            let read = codes.iter().zip(qualities).take(counted.len());
            for (at, ((code, quality), (against, depth))) in read.zip(against.iter().zip(window)).enumerate() {
                if *against == N_CODE {
                    continue;
                }
                if *quality <= MAX_IGNORED_QUALITY {
                    excluded.base_quality += 1;
                    continue;
                }
                if depth.unfiltered < MAX_DEPTH as u32 {
                    quality_counts[usize::from(*quality).min(QUALITY_BINS - 1)] += 1;
                    depth.unfiltered += 1;
                }
                let position = start + (reference_start + at) as u32;
                if *quality < MIN_BASE_QUALITY || *code == N_CODE {
                    excluded.base_quality += 1;
                } else if records.iter().any(|other| other.contains(position)) {
                    excluded.overlap += 1;
                } else {
                    covered.insert(position);
                    depth.filtered += 1;
                }
            }
        }
        self.open_records.push_back((start + alignment.reference_bases as u32, name));
        records.push(covered);
        self.templates.insert(name, records);
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
    pub(crate) fn text(mut self, called_bases: u64, comment: &str) -> String {
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
        let (sensitivity, quality) = het_snp_sensitivity(&self.unfiltered, &self.qualities);
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
