//! Coverage of target regions by reads selected by baits or amplicons: the counts of Picard 3.4.0
//! `TargetMetricsCollector`, for `CollectHsMetrics` and `CollectTargetedPcrMetrics`.

use std::io;
use std::sync::Arc;

use godwit_kernels::qc::{Alignment, ReferenceBases, count_byte_pairs, starts_with_adapter};
use godwit_model::{Genome, RawRecord, flags};
use serde::{Deserialize, Serialize};

use crate::count_scope::CountScope;
use crate::interval_list::{ContigInterval, IntervalList, overlapping, overlapping_indexes};
use crate::wgs::{MAX_IGNORED_QUALITY, QUALITY_BINS};

/// Distance from a bait or amplicon within which bases count as near, bases (`NEAR_DISTANCE`).
const NEAR_DISTANCE: u32 = 250;
/// Depth up to which the qualities of bases are counted for the theoretical sensitivity (`COVERAGE_CAP`).
pub(crate) const MAX_SENSITIVITY_DEPTH: u32 = 200;

/// The differences between the two tools.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TargetRules {
    /// Minimum mapping quality of a read that counts as coverage.
    pub(crate) min_mapping_quality: u8,
    /// Minimum quality of a base that counts as coverage.
    pub(crate) min_base_quality: u8,
    /// True if bases of a read that its mate covers too are not counted.
    pub(crate) clips_overlaps: bool,
}

/// Rules of `CollectHsMetrics`.
pub(crate) const HYBRID_SELECTION_RULES: TargetRules =
    TargetRules { min_mapping_quality: 20, min_base_quality: 20, clips_overlaps: true };
/// Rules of `CollectTargetedPcrMetrics`.
pub(crate) const AMPLICON_RULES: TargetRules =
    TargetRules { min_mapping_quality: 1, min_base_quality: 0, clips_overlaps: false };

/// The counts of reads and bases. The prefix `pf` means that a read passes the vendor's filter.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct TargetCounts {
    pub(crate) reads: u64,
    pub(crate) pf_reads: u64,
    pub(crate) pf_unique_reads: u64,
    pub(crate) pf_unique_reads_aligned: u64,
    pub(crate) pf_bases: u64,
    pub(crate) pf_bases_aligned: u64,
    pub(crate) pf_unique_bases_aligned: u64,
    pub(crate) selected_pairs: u64,
    pub(crate) selected_unique_pairs: u64,
    pub(crate) on_probe: u64,
    pub(crate) near_probe: u64,
    pub(crate) off_probe: u64,
    pub(crate) duplicate: u64,
    pub(crate) adapter: u64,
    pub(crate) low_mapping_quality: u64,
    pub(crate) low_base_quality: u64,
    pub(crate) overlap: u64,
    pub(crate) off_target: u64,
    pub(crate) on_target: u64,
    pub(crate) on_target_from_pair: u64,
}

/// The targets, the probes that select them, and the rules by which bases are counted.
#[derive(Clone, Debug)]
pub(crate) struct TargetPanel {
    rules: TargetRules,
    probes: IntervalList,
    targets: IntervalList,
    /// For each contig, the number of target bases before each target.
    offsets: Vec<Vec<usize>>,
    /// Number of target bases.
    target_bases: usize,
    genome_bases: u64,
}

/// The counts of some records, on consecutive bases of the targets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TargetTotals {
    pub(crate) counts: TargetCounts,
    /// Number of target bases before the first entry of the depths.
    first_base: usize,
    /// Depth of each base of the targets: bases of high quality, and all bases with a quality above 2.
    pub(crate) depths: Vec<u32>,
    pub(crate) unfiltered_depths: Vec<u32>,
    /// Number of bases on targets by quality, up to `MAX_SENSITIVITY_DEPTH`, and of all.
    pub(crate) capped_qualities: Vec<u64>,
    pub(crate) qualities: Vec<u64>,
}

impl TargetTotals {
    fn new(first_base: usize, bases: usize) -> Self {
        Self {
            counts: TargetCounts::default(),
            first_base,
            depths: vec![0; bases],
            unfiltered_depths: vec![0; bases],
            capped_qualities: vec![0; QUALITY_BINS],
            qualities: vec![0; QUALITY_BINS],
        }
    }
}

impl TargetPanel {
    fn new(rules: TargetRules, probes: IntervalList, targets: IntervalList, genome: &Genome) -> Self {
        let mut target_bases = 0;
        let mut offset = |interval: &ContigInterval| {
            let offset = target_bases;
            target_bases += (interval.end - interval.start) as usize;
            offset
        };
        let offsets = targets.merged.iter().map(|contig| contig.iter().map(&mut offset).collect()).collect();
        Self { rules, probes, targets, offsets, target_bases, genome_bases: genome.total_bases() }
    }

    /// Returns the number of target bases before a 0-based position of a contig.
    fn bases_before(&self, contig: u32, position: u32) -> usize {
        let Some(targets) = self.targets.merged.get(contig as usize) else { return self.target_bases };
        let at = targets.partition_point(|target| target.end <= position);
        match targets.get(at) {
            Some(target) => self.offsets[contig as usize][at] + position.saturating_sub(target.start) as usize,
            None => self.offsets[contig as usize + 1..].iter().flatten().next().copied().unwrap_or(self.target_bases),
        }
    }
}

/// The coverage of targets.
#[derive(Clone, Debug)]
pub(crate) struct TargetCoverage {
    panel: Arc<TargetPanel>,
    pub(crate) totals: TargetTotals,
}

impl TargetCoverage {
    pub(crate) fn new(rules: TargetRules, probes: IntervalList, targets: IntervalList, genome: &Genome) -> Self {
        let panel = TargetPanel::new(rules, probes, targets, genome);
        Self { totals: TargetTotals::new(0, panel.target_bases), panel: Arc::new(panel) }
    }

    /// Returns counts of no records of the same targets, which take only bases from the position `start` to before the
    /// position `end`. A position is the index of a contig and a 0-based position in it.
    pub(crate) fn for_bounds(&self, start: (u32, u32), end: (u32, u32)) -> Self {
        let [first, last] = [start, end].map(|(contig, position)| self.panel.bases_before(contig, position));
        Self { panel: Arc::clone(&self.panel), totals: TargetTotals::new(first, last.saturating_sub(first)) }
    }

    /// Adds the counts of other records or positions.
    pub(crate) fn add_totals(&mut self, other: &TargetTotals) {
        let totals = &mut self.totals;
        totals.counts.merge(&other.counts);
        let at = other.first_base.saturating_sub(totals.first_base);
        for (mine, theirs) in
            [(&mut totals.depths, &other.depths), (&mut totals.unfiltered_depths, &other.unfiltered_depths)]
        {
            mine.iter_mut().skip(at).zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
        }
        for (mine, theirs) in
            [(&mut totals.capped_qualities, &other.capped_qualities), (&mut totals.qualities, &other.qualities)]
        {
            mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
        }
    }

    /// Returns the number of bases of the genome.
    pub(crate) fn genome_bases(&self) -> u64 {
        self.panel.genome_bases
    }

    /// Returns the baits or amplicons.
    pub(crate) fn probes(&self) -> &IntervalList {
        &self.panel.probes
    }

    /// Returns the targets.
    pub(crate) fn targets(&self) -> &IntervalList {
        &self.panel.targets
    }

    /// Returns the depths at the bases of each target, in order.
    pub(crate) fn depths_by_target(&self) -> impl Iterator<Item = &[u32]> {
        let targets = self.panel.targets.merged.iter().flatten().zip(self.panel.offsets.iter().flatten());
        targets.map(|(target, offset)| &self.totals.depths[*offset..*offset + (target.end - target.start) as usize])
    }

    /// Returns the fraction of G and C of each target (0 to 1), in order.
    ///
    /// # Errors
    /// The errors of `reference`.
    pub(crate) fn gc_by_target<R: ReferenceBases>(&self, reference: &mut R) -> io::Result<Vec<f64>> {
        let mut fractions = Vec::new();
        for (contig, targets) in self.panel.targets.merged.iter().enumerate() {
            for target in targets {
                let codes = reference.codes(contig as i32, target.start, target.end)?;
                let gc = codes.iter().filter(|code| matches!(code, 2 | 4)).count();
                fractions.push(gc as f64 / f64::from(target.end - target.start));
            }
        }
        Ok(fractions)
    }

    /// Counts a record, and its bases on targets within `scope`.
    pub(crate) fn add(&mut self, record: RawRecord, alignment: &Alignment, scope: CountScope) {
        let flag = alignment.flag;
        if flag & flags::SECONDARY != 0 {
            return;
        }
        let (mapped, unique) = (flag & flags::UNMAPPED == 0, flag & flags::DUPLICATE == 0);
        let is_supplementary = flag & flags::SUPPLEMENTARY != 0;
        let aligned_bases = if mapped { alignment.aligned_bases() } else { 0 };
        let mut uncounted = TargetCounts::default();
        let counts = if scope.counts_record { &mut self.totals.counts } else { &mut uncounted };
        counts.add_read(alignment, aligned_bases);
        if flag & flags::QC_FAIL != 0 || !mapped {
            return;
        }
        let Some(probes) =
            usize::try_from(record.contig()).ok().and_then(|contig| self.panel.probes.merged.get(contig))
        else {
            return;
        };
        let start = record.position().max(0) as u32;
        let end = start + alignment.reference_bases as u32;
        let near = overlapping(probes, start, end, NEAR_DISTANCE);
        let both_mapped = flag & flags::PAIRED != 0 && flag & flags::MATE_UNMAPPED == 0 && !is_supplementary;
        if both_mapped && flag & flags::FIRST != 0 && !near.is_empty() {
            counts.selected_pairs += 1;
            counts.selected_unique_pairs += u64::from(unique);
        }
        if near.is_empty() {
            counts.off_probe += aligned_bases;
        } else {
            let on_probe = shared_bases(alignment, start, near);
            counts.on_probe += on_probe;
            counts.near_probe += aligned_bases - on_probe;
        }
        if !unique {
            counts.duplicate += aligned_bases;
        } else if record.mapping_quality() == 0 && starts_with_adapter(alignment.codes, flag & flags::REVERSE != 0) {
            counts.adapter += aligned_bases;
        } else if record.mapping_quality() < self.panel.rules.min_mapping_quality {
            counts.low_mapping_quality += aligned_bases;
        } else {
            self.add_bases(record, alignment, scope, both_mapped);
        }
    }

    fn add_bases(&mut self, record: RawRecord, alignment: &Alignment, scope: CountScope, both_mapped: bool) {
        let start = record.position().max(0) as u32;
        let TargetPanel { rules, targets, offsets, .. } = &*self.panel;
        let totals = &mut self.totals;
        let mut read_end = alignment.codes.len();
        if rules.clips_overlaps {
            let clipped = overlapping_bases(record, alignment.flag);
            totals.counts.overlap += if scope.counts_record { clipped } else { 0 };
            if clipped > 0 {
                if record.mate_position() <= record.position() {
                    return;
                }
                let last = record.cigar().next_back();
                let soft_clipped = last.filter(|op| op.code() == 4).map_or(0, |op| op.bases() as usize);
                read_end = read_end.saturating_sub(clipped as usize + soft_clipped);
            }
        }
        let qualities = record.qualities();
        if !record.has_qualities() {
            return;
        }
        let contig = record.contig() as usize;
        let end = start + alignment.reference_bases as u32;
        let (from, until) = overlapping_indexes(&targets.merged[contig], start, end, 0);
        let targets = &targets.merged[contig][from..until];
        let offsets = &offsets[contig][from..until];
        let mut at = 0;
        for block in alignment.blocks {
            let bases = block.bases.min(read_end.saturating_sub(block.read_start));
            let counted = scope.clip_block(start, block);
            let block_qualities = qualities.get(block.read_start..).unwrap_or_default();
            let block_end = counted.end.min(bases).min(block_qualities.len());
            let mut index = counted.start;
            // Each step counts the bases up to the next border of a target.
            while index < block_end {
                let position = start + (block.reference_offset + index) as u32;
                while targets.get(at).is_some_and(|target| target.end <= position) {
                    at += 1;
                }
                let target = targets.get(at).filter(|target| target.start <= position);
                let border =
                    target.map_or_else(|| targets.get(at).map_or(u32::MAX, |next| next.start), |target| target.end);
                let step_end = block_end.min(index + (border - position) as usize);
                let step = &block_qualities[index..step_end];
                let high = count_byte_pairs(step, step, |quality, _| quality >= rules.min_base_quality);
                totals.counts.low_base_quality += step.len() as u64 - high;
                if let Some(target) = target {
                    totals.counts.on_target += high;
                    totals.counts.on_target_from_pair += if both_mapped { high } else { 0 };
                    let first = offsets[at] + (position - target.start) as usize - totals.first_base;
                    totals.add_target_bases(first, step, rules.min_base_quality);
                } else {
                    totals.counts.off_target += high;
                }
                index = step_end;
            }
        }
    }
}

impl TargetTotals {
    /// Counts bases on a target with these qualities. `first`: index of the first one in the depths.
    fn add_target_bases(&mut self, first: usize, qualities: &[u8], min_quality: u8) {
        let positions = first..first + qualities.len();
        let depths = self.depths[positions.clone()].iter_mut().zip(&mut self.unfiltered_depths[positions]);
        for (quality, (depth, unfiltered)) in qualities.iter().zip(depths) {
            if *quality <= MAX_IGNORED_QUALITY {
                continue;
            }
            *unfiltered += 1;
            *depth += u32::from(*quality >= min_quality);
            let bin = usize::from(*quality).min(QUALITY_BINS - 1);
            self.capped_qualities[bin] += u64::from(*unfiltered <= MAX_SENSITIVITY_DEPTH);
            self.qualities[bin] += 1;
        }
    }
}

impl TargetCounts {
    fn merge(&mut self, other: &Self) {
        self.reads += other.reads;
        self.pf_reads += other.pf_reads;
        self.pf_unique_reads += other.pf_unique_reads;
        self.pf_unique_reads_aligned += other.pf_unique_reads_aligned;
        self.pf_bases += other.pf_bases;
        self.pf_bases_aligned += other.pf_bases_aligned;
        self.pf_unique_bases_aligned += other.pf_unique_bases_aligned;
        self.selected_pairs += other.selected_pairs;
        self.selected_unique_pairs += other.selected_unique_pairs;
        self.on_probe += other.on_probe;
        self.near_probe += other.near_probe;
        self.off_probe += other.off_probe;
        self.duplicate += other.duplicate;
        self.adapter += other.adapter;
        self.low_mapping_quality += other.low_mapping_quality;
        self.low_base_quality += other.low_base_quality;
        self.overlap += other.overlap;
        self.off_target += other.off_target;
        self.on_target += other.on_target;
        self.on_target_from_pair += other.on_target_from_pair;
    }

    /// Counts a read before any filter but that of the vendor.
    fn add_read(&mut self, alignment: &Alignment, aligned_bases: u64) {
        let flag = alignment.flag;
        let (mapped, unique) = (flag & flags::UNMAPPED == 0, flag & flags::DUPLICATE == 0);
        let passes = flag & flags::QC_FAIL == 0;
        if flag & flags::SUPPLEMENTARY == 0 {
            self.reads += 1;
            self.pf_reads += u64::from(passes);
            self.pf_unique_reads += u64::from(passes && unique);
            self.pf_unique_reads_aligned += u64::from(passes && unique && mapped);
            self.pf_bases += if passes { alignment.codes.len() as u64 } else { 0 };
        }
        if passes {
            self.pf_bases_aligned += aligned_bases;
            self.pf_unique_bases_aligned += if unique { aligned_bases } else { 0 };
        }
    }
}

/// Returns the number of aligned bases within the intervals.
fn shared_bases(alignment: &Alignment, start: u32, intervals: &[ContigInterval]) -> u64 {
    let shared = |first: u32, last: u32| {
        let overlap = |interval: &ContigInterval| last.min(interval.end).saturating_sub(first.max(interval.start));
        intervals.iter().map(|interval| u64::from(overlap(interval))).sum::<u64>()
    };
    let blocks = alignment.blocks.iter().map(|block| {
        let first = start + block.reference_offset as u32;
        shared(first, first + block.bases as u32)
    });
    blocks.sum()
}

/// Returns the number of bases at the end of a read that its mate covers too, by the rule of htsjdk 4.2.0
/// `SAMUtils.getNumOverlappingAlignedBasesToClip`. As there, the contig of the mate is not compared.
fn overlapping_bases(record: RawRecord, flag: u16) -> u64 {
    let (start, mate) = (i64::from(record.position()), i64::from(record.mate_position()));
    if flag & flags::PAIRED == 0 || flag & (flags::UNMAPPED | flags::MATE_UNMAPPED) != 0 || mate < start {
        return 0;
    }
    if mate == start && flag & flags::FIRST != 0 {
        return 0;
    }
    let (mut clipped, mut position) = (0, start);
    for op in record.cigar() {
        let bases = i64::from(op.bases());
        let covered = if op.consumes_reference() { bases } else { 0 };
        if mate < position + covered {
            clipped += match op.code() {
                0 => covered.min(position + covered - mate),
                // N, S, H and P.
                3..=6 => 0,
                _ if op.consumes_read() => bases,
                _ => 0,
            };
        }
        position += covered;
    }
    clipped.max(0) as u64
}
