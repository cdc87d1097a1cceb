//! Merge of the depths of all partitions into the depth of the whole file.

use std::collections::{BTreeMap, HashMap};

use godwit_model::Genome;

use super::depth::{DepthInterval, DepthProfile, PartitionContigDepth, PartitionCoverage};
use super::histogram::Histogram;
use super::mate_overlap::Mate;
use super::mosdepth::{ContigDepth, MosdepthReport};

/// A merger of the depths of partitions. Depths are merged in file order. A depth that is added too early is stored; at
/// most, these are the partitions that other threads finish while one partition is processed.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_kernels::qc::{DepthMerger, PartitionDepth};
/// use godwit_model::{Contig, Genome, RawRecord};
///
/// # let read = |position: i32| {
/// #     let words = [
/// #         0, position, 4681 << 16 | 60 << 8 | 4, 1, 8, -1, -1, 0, i32::from_le_bytes(*b"r01\0"),
/// #         8 << 4, 0x4812_4812, 0x1e1e_1e1e, 0x1e1e_1e1e,
/// #     ];
/// #     words.map(i32::to_le_bytes).concat()
/// # };
/// let genome = Genome::new(vec![Contig { name: "chrM".to_owned(), length: 100, alternate: false }])?;
/// let mut partition = PartitionDepth::default();
/// // Two reads of eight aligned bases, which share four positions.
/// for bytes in [read(10), read(14)] {
///     partition.add(RawRecord::from_bytes(&bytes, 1)?, 0, 100);
/// }
/// let mut merger = DepthMerger::new(&genome);
/// merger.add(0, partition.finish());
/// let coverage = merger.finish(&genome);
/// assert_eq!(coverage.mosdepth.map(|report| report.mean()), Some(0.16));
/// # Ok(())
/// # }
/// ```
pub struct DepthMerger {
    contig_lengths: Vec<u32>,
    next_partition: usize,
    out_of_order: BTreeMap<usize, PartitionCoverage>,
    contig: i32,
    mosdepth: ContigDepthMerger,
    samtools: ContigDepthMerger,
    pending_mates: HashMap<u128, Mate>,
    contigs: Vec<Option<Histogram>>,
    samtools_depths: Histogram,
}

/// The depth of coverage of the whole genome.
#[derive(Clone, Debug)]
pub struct GenomeCoverage {
    /// Depth as mosdepth counts it. `None` if an alignment reached so far across a partition border that the depth is
    /// not known.
    pub mosdepth: Option<MosdepthReport>,
    /// Number of positions for each depth as `samtools stats` counts it; positions of depth 0 are not counted. `None`
    /// as for `mosdepth`.
    pub samtools_depths: Option<Histogram>,
}

/// A merger of the depth of one contig across partition borders.
#[derive(Default)]
struct ContigDepthMerger {
    /// 0-based position before which the depth is final.
    position: u32,
    /// Depth at `position` that is due to alignments of earlier partitions.
    depth: i32,
    /// Changes of depth at later positions that are due to alignments of earlier partitions.
    changes: BTreeMap<u32, i32>,
    positions_by_depth: Histogram,
    /// True if an alignment of an earlier partition reached past the leading intervals of a partition.
    is_unavailable: bool,
}

impl DepthMerger {
    /// Creates a merger for a file with these contigs.
    pub fn new(genome: &Genome) -> Self {
        Self {
            contig_lengths: genome.contigs().iter().map(|contig| contig.length).collect(),
            next_partition: 0,
            out_of_order: BTreeMap::new(),
            contig: -1,
            mosdepth: ContigDepthMerger::default(),
            samtools: ContigDepthMerger::default(),
            pending_mates: HashMap::new(),
            contigs: vec![None; genome.contigs().len()],
            samtools_depths: Histogram::default(),
        }
    }

    /// Adds the depth of a finished partition with the 0-based index `at` in the file.
    pub fn add(&mut self, at: usize, partition: PartitionCoverage) {
        self.out_of_order.insert(at, partition);
        while let Some(partition) = self.out_of_order.remove(&self.next_partition) {
            partition.0.into_iter().for_each(|part| self.merge_contig(part));
            self.next_partition += 1;
        }
    }

    /// Ends the file and returns the depth of the whole genome.
    pub fn finish(mut self, genome: &Genome) -> GenomeCoverage {
        self.finish_contig();
        let contigs = genome.contigs().iter().zip(self.contigs);
        let contigs = contigs.map(|(contig, depths)| ContigDepth::new(contig, depths)).collect();
        GenomeCoverage {
            mosdepth: (!self.mosdepth.is_unavailable).then_some(MosdepthReport { contigs }),
            samtools_depths: (!self.samtools.is_unavailable).then_some(self.samtools_depths),
        }
    }

    fn merge_contig(&mut self, part: PartitionContigDepth) {
        if part.contig != self.contig {
            self.finish_contig();
            self.contig = part.contig;
        }
        for (key, mate) in &part.unmatched_mates.second_mates {
            if let Some(earlier) = self.pending_mates.remove(key) {
                self.mosdepth.subtract_overlap(&earlier, mate);
            }
        }
        for (key, mate) in part.unmatched_mates.first_mates {
            match self.pending_mates.remove(&key) {
                // Both mates start at the same position, on both sides of a partition border, so both were stored as
                // first mates.
                Some(earlier) if earlier.start == mate.start => self.mosdepth.subtract_overlap(&earlier, &mate),
                _ => {
                    self.pending_mates.insert(key, mate);
                }
            }
        }
        let end = part.mosdepth.end;
        self.pending_mates.retain(|_, mate| mate.end > end);
        self.mosdepth.merge_profile(part.mosdepth);
        self.samtools.merge_profile(part.samtools);
    }

    fn finish_contig(&mut self) {
        let Some(length) = usize::try_from(self.contig).ok().and_then(|at| self.contig_lengths.get(at).copied()) else {
            return;
        };
        self.pending_mates.clear();
        self.contigs[self.contig as usize] = Some(self.mosdepth.finish_contig(length));
        self.samtools_depths.merge(&self.samtools.finish_contig(length));
    }
}

impl ContigDepthMerger {
    /// Subtracts one from the depth at positions that both mates cover.
    fn subtract_overlap(&mut self, earlier: &Mate, later: &Mate) {
        for (start, end) in earlier.shared_ranges(later) {
            *self.changes.entry(start).or_default() -= 1;
            *self.changes.entry(end).or_default() += 1;
        }
    }

    fn merge_profile(&mut self, track: DepthProfile) {
        self.advance_to(track.start);
        for DepthInterval { length, depth } in track.leading {
            let end = self.position + length;
            self.count_until(end, depth);
        }
        if track.end > track.leading_end {
            self.apply_changes_at(self.position);
            if self.depth != 0 || self.changes.values().any(|change| *change != 0) {
                self.is_unavailable = true;
            }
            self.positions_by_depth.merge(&track.interior);
            self.position = track.end;
        }
        for (position, change) in track.trailing_changes {
            *self.changes.entry(position).or_default() += change;
        }
    }

    /// Counts the positions up to `end`. Their depth is `added_depth` plus the depth of alignments of earlier
    /// partitions.
    fn count_until(&mut self, end: u32, added_depth: i32) {
        while self.position < end {
            self.apply_changes_at(self.position);
            let next = self.changes.keys().next().map_or(end, |next| (*next).min(end));
            self.positions_by_depth
                .add_times((self.depth + added_depth).max(0) as u64, u64::from(next - self.position));
            self.position = next;
        }
    }

    fn apply_changes_at(&mut self, at: u32) {
        while let Some(entry) = self.changes.first_entry()
            && *entry.key() <= at
        {
            self.depth += entry.remove();
        }
    }

    fn advance_to(&mut self, to: u32) {
        self.count_until(to, 0);
    }

    /// Counts the remaining positions of the contig and returns the number of positions for each depth.
    fn finish_contig(&mut self, length: u32) -> Histogram {
        self.advance_to(length);
        let counts = std::mem::take(&mut self.positions_by_depth);
        *self = Self { is_unavailable: self.is_unavailable, ..Self::default() };
        counts
    }
}
