//! Counts of `samtools stats` 1.16 (`stats.c`) when it runs without options and without a reference.
//!
//! Some sections are not counted: GC-depth, because it depends on the order in which 32-bit floats are added;
//! mismatches per cycle, because samtools needs the option `-r`; and barcode sections. All other sections are
//! independent of the record order.

mod report_text;

use godwit_model::{RawRecord, flags};
use libdeflater::Crc;
use serde::{Deserialize, Serialize};

use super::alignment::Alignment;
use super::cycle_counts::TemplateSegment;
use super::histogram::Histogram;
use super::record_counts::count_byte_pairs;

/// Number of bins of the GC content histogram.
const GC_BINS: usize = 200;
/// Maximum insert size in the histogram; larger insert sizes count as this maximum.
const MAX_INSERT_BASES: u32 = 8000;
/// Maximum length of insertions and deletions in the length distribution.
const MAX_INDEL_BASES: u64 = 300;
/// Read length from which on no coverage is printed, because the pile-up buffer of samtools (five times 300 bases)
/// fails on longer reads.
const MAX_PILEUP_READ_BASES: u64 = 300;
const MAX_PILEUP_REFERENCE_BASES: i64 = 1500;

/// The attributes of a record that are not part of its alignment.
#[derive(Clone, Copy)]
pub(super) struct ReadAttributes {
    pub(super) segment: TemplateSegment,
    /// Value of the tag `NM`, or 0 if absent.
    pub(super) edit_distance: i64,
}

/// The counts of `samtools stats`; [`SamtoolsStats::to_text`] prints them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamtoolsStats {
    /// 32-bit sums (with overflow) of the checksums of names, bases and qualities.
    checksums: [u32; 3],
    numbers: SummaryNumbers,
    /// Number of reads for each length, including hard-clipped bases: of all, first and last reads.
    lengths: [Histogram; 3],
    /// Length of the longest read, including supplementary records: of all, first and last reads.
    longest: [u64; 3],
    /// Number of reads for each bin of GC content: of first and last reads.
    gc: [Vec<u64>; 2],
    /// Histograms of insert sizes of inward, outward and other pairs. Each pair is counted twice.
    #[serde(rename = "inserts")]
    insert_sizes: [Histogram; 3],
    /// Histograms of the lengths of insertions and of deletions.
    indels: [Histogram; 2],
    /// Number of insertions and deletions for each 0-based cycle: of first reads, then of last reads.
    indel_cycles: [[Histogram; 2]; 2],
    #[serde(rename = "longest_span")]
    longest_reference_length: i64,
}

/// The counters of the section "Summary Numbers".
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct SummaryNumbers {
    first: u64,
    last: u64,
    other: u64,
    paired_and_mapped: u64,
    single_mapped: u64,
    unmapped: u64,
    properly_paired: u64,
    paired: u64,
    duplicates: u64,
    #[serde(rename = "quality_zero")]
    mapping_quality_zero: u64,
    qc_failed: u64,
    secondary: u64,
    supplementary: u64,
    bases: u64,
    bases_first: u64,
    bases_last: u64,
    bases_mapped: u64,
    bases_in_cigar: u64,
    bases_duplicate: u64,
    mismatches: u64,
    other_contig: u64,
}

impl SamtoolsStats {
    /// Counts a record of any kind.
    #[inline]
    pub(super) fn add(&mut self, record: RawRecord, alignment: &Alignment, read: ReadAttributes) {
        self.add_checksums(record, alignment.codes.len());
        let flag = alignment.flag;
        if flag & flags::SECONDARY != 0 {
            self.numbers.secondary += 1;
            return;
        }
        self.numbers.supplementary += u64::from(flag & flags::SUPPLEMENTARY != 0);
        let bases = alignment.codes.len() as u64;
        if bases == 0 {
            return;
        }
        if flag & flags::DUPLICATE != 0 {
            self.numbers.duplicates += 1;
            self.numbers.bases_duplicate += bases;
        }
        let length = bases + alignment.hard_clipped;
        let ends = [true, read.segment == TemplateSegment::First, read.segment == TemplateSegment::Last];
        let is_primary = flag & flags::SUPPLEMENTARY == 0;
        for at in (0..3).filter(|at| ends[*at]) {
            self.longest[at] = self.longest[at].max(length);
            if is_primary {
                self.lengths[at].add(length);
            }
        }
        if is_primary {
            self.add_primary(record, alignment, read.segment);
        }
        if flag & flags::UNMAPPED != 0 {
            return;
        }
        self.longest_reference_length = self.longest_reference_length.max(alignment.reference_bases);
        if alignment.indels > 0 {
            self.add_indels(record, alignment, read.segment);
        }
        if is_primary && flag & (flags::PAIRED | flags::MATE_UNMAPPED) == flags::PAIRED {
            self.add_insert_size(record, flag);
        }
        self.numbers.mismatches = self.numbers.mismatches.wrapping_add_signed(read.edit_distance);
        self.numbers.bases_in_cigar += alignment.unclipped_read_bases;
    }

    fn add_checksums(&mut self, record: RawRecord, bases: usize) {
        self.add_checksum(0, record.name());
        if bases > 0 {
            self.add_checksum(1, record.packed_bases());
            // For the checksum of the qualities, samtools reads only as many bytes as the packed bases have.
            self.add_checksum(2, &record.qualities()[..bases.div_ceil(2)]);
        }
    }

    fn add_checksum(&mut self, which: usize, bytes: &[u8]) {
        let mut crc = Crc::new();
        crc.update(bytes);
        self.checksums[which] = self.checksums[which].wrapping_add(crc.sum());
    }

    /// Counts a record that is neither secondary nor supplementary.
    fn add_primary(&mut self, record: RawRecord, alignment: &Alignment, end: TemplateSegment) {
        let (flag, bases) = (alignment.flag, alignment.codes.len() as u64);
        let numbers = &mut self.numbers;
        numbers.bases += bases;
        numbers.qc_failed += u64::from(flag & flags::QC_FAIL != 0);
        numbers.paired += u64::from(flag & flags::PAIRED != 0);
        match end {
            TemplateSegment::First => {
                numbers.first += 1;
                numbers.bases_first += bases;
            }
            TemplateSegment::Last => {
                numbers.last += 1;
                numbers.bases_last += bases;
            }
            TemplateSegment::Other => numbers.other += 1,
        }
        if flag & flags::UNMAPPED != 0 {
            numbers.unmapped += 1;
        } else {
            numbers.bases_mapped += bases;
            numbers.mapping_quality_zero += u64::from(record.mapping_quality() == 0);
            if flag & (flags::PAIRED | flags::MATE_UNMAPPED) == flags::PAIRED {
                numbers.paired_and_mapped += 1;
                numbers.properly_paired += u64::from(flag & flags::PROPER_PAIR != 0);
                numbers.other_contig += u64::from(record.contig() != record.mate_contig());
            } else {
                numbers.single_mapped += 1;
            }
        }
        if end != TemplateSegment::Other {
            let gc = count_byte_pairs(alignment.codes, alignment.codes, |code, _| code == 2 || code == 4) as usize;
            self.add_gc(gc, bases as usize, end);
        }
    }

    fn add_gc(&mut self, gc: usize, bases: usize, end: TemplateSegment) {
        let bins = &mut self.gc[end as usize];
        bins.resize(GC_BINS, 0);
        let from = gc * (GC_BINS - 1) / bases;
        let to = ((gc + 1) * (GC_BINS - 1) / bases).min(GC_BINS - 1);
        bins.get_mut(from..to).into_iter().flatten().for_each(|count| *count += 1);
    }

    fn add_indels(&mut self, record: RawRecord, alignment: &Alignment, end: TemplateSegment) {
        let forward = alignment.flag & flags::REVERSE == 0;
        let length = alignment.codes.len() as i64;
        let mut cycle = 0i64;
        for op in record.cigar() {
            let bases = i64::from(op.bases());
            let (kind, place) = match op.code() {
                1 if forward => (0, cycle),
                1 => (0, length - cycle - bases),
                2 if forward => (1, cycle - 1),
                2 => (1, length - cycle - 1),
                _ => (0, -1),
            };
            if place >= 0 && bases > 0 {
                if end != TemplateSegment::Other {
                    self.indel_cycles[end as usize][kind].add(place as u64);
                }
                if bases as u64 <= MAX_INDEL_BASES {
                    self.indels[kind].add(bases as u64);
                }
            }
            if op.consumes_read() {
                cycle += bases;
            }
        }
    }

    fn add_insert_size(&mut self, record: RawRecord, flag: u16) {
        let size = record.template_length().unsigned_abs().min(MAX_INSERT_BASES);
        if size == 0 && record.contig() != record.mate_contig() {
            return;
        }
        let (first, forward) = (flag & flags::FIRST != 0, flag & flags::REVERSE == 0);
        let kind = if forward == (flag & flags::MATE_REVERSE == 0) {
            2
        } else {
            let distance = i64::from(record.mate_position()) - i64::from(record.position());
            let mate_follows = if first { distance >= 0 } else { -distance >= 0 };
            usize::from((first == forward) != mate_follows)
        };
        self.insert_sizes[kind].add(u64::from(size));
    }

    /// Adds the counts of other records of the same file.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.checksums.iter_mut().zip(other.checksums) {
            *mine = mine.wrapping_add(theirs);
        }
        for (mine, theirs) in self.numbers.counts_mut().into_iter().zip(other.numbers.clone().counts_mut()) {
            *mine = mine.wrapping_add(*theirs);
        }
        for (mine, theirs) in self.longest.iter_mut().zip(other.longest) {
            *mine = (*mine).max(theirs);
        }
        self.longest_reference_length = self.longest_reference_length.max(other.longest_reference_length);
        for (mine, theirs) in self.gc.iter_mut().zip(&other.gc) {
            mine.resize(mine.len().max(theirs.len()), 0);
            mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
        }
        let theirs = other.lengths.iter().chain(&other.insert_sizes).chain(&other.indels);
        let mine = self.lengths.iter_mut().chain(&mut self.insert_sizes).chain(&mut self.indels);
        let mine = mine.chain(self.indel_cycles.iter_mut().flatten());
        mine.zip(theirs.chain(other.indel_cycles.iter().flatten())).for_each(|(mine, theirs)| mine.merge(theirs));
    }

    /// Returns the number of reads, which are the records that are neither secondary nor supplementary.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_kernels::qc::{AlignmentBuffer, RecordCounts};
    /// use godwit_model::flags;
    /// # use godwit_kernels::qc::ReferenceBases;
    ///
    /// # struct NoReference;
    /// # impl ReferenceBases for NoReference {
    /// #     fn codes(&mut self, _: i32, _: u32, _: u32) -> std::io::Result<&[u8]> {
    /// #         Ok(&[])
    /// #     }
    /// # }
    /// # let words = [
    /// #     0, 999, 4681 << 16 | 60 << 8 | 4, 99 << 16 | 1, 8, 0, 1_291, 300, i32::from_le_bytes(*b"r01\0"),
    /// #     8 << 4, 0x4812_4812, 0x1e1e_1e1e, 0x1e1e_1e1e,
    /// # ];
    /// # let bytes = words.map(i32::to_le_bytes).concat();
    /// # let record = godwit_model::RawRecord::from_bytes(&bytes, 2)?;
    /// let (mut buffer, mut counts) = (AlignmentBuffer::default(), RecordCounts::default());
    /// counts.add(record, &buffer.decode(record, record.flag()), None::<&mut NoReference>)?;
    /// counts.add(record, &buffer.decode(record, record.flag() | flags::SECONDARY), None::<&mut NoReference>)?;
    /// assert_eq!((counts.stats.reads(), counts.stats.mapped()), (1, 1));
    /// assert_eq!(counts.stats.paired(), (1, 1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn reads(&self) -> u64 {
        self.numbers.first + self.numbers.last + self.numbers.other
    }

    /// Returns the number of mapped reads.
    pub fn mapped(&self) -> u64 {
        self.numbers.paired_and_mapped + self.numbers.single_mapped
    }

    /// Returns the number of paired reads, and the number of these that are properly paired.
    pub fn paired(&self) -> (u64, u64) {
        (self.numbers.paired, self.numbers.properly_paired)
    }

    /// Returns the total number of bases of all reads.
    pub fn bases(&self) -> u64 {
        self.numbers.bases
    }

    /// Returns the `GC content` histogram of first reads (`end` is 0) or last reads (1), as pairs of GC percentage and
    /// number of reads.
    pub fn gc_content(&self, end: usize) -> Vec<(f64, u64)> {
        let bins = &self.gc[end];
        let (mut previous, mut found) = (0, Vec::new());
        for at in 0..bins.len() {
            if bins[at] != bins[previous] {
                found.push(((at + previous) as f64 * 0.5 * 100.0 / (GC_BINS - 1) as f64, bins[previous]));
                previous = at;
            }
        }
        found
    }
}

impl SummaryNumbers {
    fn counts_mut(&mut self) -> [&mut u64; 21] {
        [
            &mut self.first,
            &mut self.last,
            &mut self.other,
            &mut self.paired_and_mapped,
            &mut self.single_mapped,
            &mut self.unmapped,
            &mut self.properly_paired,
            &mut self.paired,
            &mut self.duplicates,
            &mut self.mapping_quality_zero,
            &mut self.qc_failed,
            &mut self.secondary,
            &mut self.supplementary,
            &mut self.bases,
            &mut self.bases_first,
            &mut self.bases_last,
            &mut self.bases_mapped,
            &mut self.bases_in_cigar,
            &mut self.bases_duplicate,
            &mut self.mismatches,
            &mut self.other_contig,
        ]
    }
}
