//! Metrics of Picard 3.4.0 `CollectAlignmentSummaryMetrics` (`AlignmentSummaryMetricsCollector`) over all reads of a
//! file.

use std::io;

use godwit_model::{RawRecord, flags};
use serde::{Deserialize, Serialize};

use super::adapters::starts_with_adapter;
use super::alignment::Alignment;
use super::histogram::Histogram;
use super::insert_size::PairOrientation;
use super::record_counts::count_byte_pairs;
use crate::picard_text::{format_double, picard_header};

/// Minimum mapping quality of a read that Picard calls high-quality.
const HIGH_MAPPING_QUALITY: u8 = 20;
/// Minimum quality of a base that counts in `PF_HQ_ALIGNED_Q20_BASES`.
const HIGH_BASE_QUALITY: u8 = 20;
/// Maximum insert size of a pair that does not count as chimeric.
const MAX_INSERT_BASES: u32 = 100_000;
/// 4-bit code of the base N, which Picard calls a no-call.
const N_CODE: u8 = 15;
/// Minimum fraction of reads with a no-call or a mismatch in a cycle for the cycle to count as bad.
const BAD_CYCLE_FRACTION: f64 = 0.8;

/// A source of reference bases.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::io;
///
/// use godwit_kernels::qc::ReferenceBases;
///
/// struct Contigs(Vec<Vec<u8>>);
///
/// impl ReferenceBases for Contigs {
///     fn codes(&mut self, contig: i32, start: u32, end: u32) -> io::Result<&[u8]> {
///         let codes = &self.0[contig as usize];
///         Ok(&codes[(start as usize).min(codes.len())..(end as usize).min(codes.len())])
///     }
/// }
///
/// // A contig of the bases ACGT.
/// let mut reference = Contigs(vec![vec![1, 2, 4, 8]]);
/// assert_eq!(reference.codes(0, 2, 9)?, [4, 8]);
/// # Ok(())
/// # }
/// ```
pub trait ReferenceBases {
    /// Returns the 4-bit codes of the reference bases in `[start, end)` of a contig, 0-based. Returns fewer codes if
    /// the contig ends before `end`. A letter that is not a base has code 0.
    ///
    /// # Errors
    /// The I/O error of reading the reference.
    fn codes(&mut self, contig: i32, start: u32, end: u32) -> io::Result<&[u8]>;
}

/// The counts of the alignment summary for first reads, last reads and unpaired reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlignmentSummary {
    first: ReadCategory,
    last: ReadCategory,
    unpaired: ReadCategory,
}

/// The counts of one category of reads. The prefix `pf` means that a read passes the vendor's filter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct ReadCategory {
    reads: u64,
    pf_reads: u64,
    noise: u64,
    adapters: u64,
    aligned: u64,
    aligned_bases: u64,
    high_quality: u64,
    high_quality_bases: u64,
    high_quality_q20_bases: u64,
    mismatches: u64,
    high_quality_mismatches: Histogram,
    indels: u64,
    lengths: Histogram,
    aligned_lengths: Histogram,
    in_pairs: u64,
    improper_pairs: u64,
    forward: u64,
    chimeras: u64,
    #[serde(rename = "maybe_chimeras")]
    chimera_candidates: u64,
    #[serde(rename = "soft_clipped")]
    soft_clipped_bases: u64,
    #[serde(rename = "hard_clipped")]
    hard_clipped_bases: u64,
    #[serde(rename = "trailing_clipped")]
    trailing_clipped_bases: u64,
    reads_with_trailing_clip: u64,
    bad_cycles: Histogram,
}

impl AlignmentSummary {
    /// Counts a record. Without `reference`, no base counts as a mismatch, as in Picard.
    ///
    /// # Errors
    /// The errors of `reference`.
    pub fn add<R: ReferenceBases>(
        &mut self,
        record: RawRecord,
        alignment: &Alignment,
        reference: Option<&mut R>,
    ) -> io::Result<()> {
        if alignment.flag & flags::NOT_PRIMARY != 0 {
            return Ok(());
        }
        let category = match alignment.flag & (flags::PAIRED | flags::FIRST) {
            flag if flag & flags::PAIRED == 0 => &mut self.unpaired,
            flag if flag & flags::FIRST != 0 => &mut self.first,
            _ => &mut self.last,
        };
        category.reads += 1;
        if alignment.flag & flags::QC_FAIL == 0 {
            category.add_read(record, alignment);
        }
        if alignment.flag & (flags::QC_FAIL | flags::UNMAPPED) != 0 {
            let no_calls = alignment.codes.iter().enumerate().filter(|(_, code)| **code == N_CODE);
            no_calls.for_each(|(at, _)| category.bad_cycles.add(alignment.cycle(at)));
            return Ok(());
        }
        category.add_bases(record, alignment, reference)
    }

    /// Adds the counts of other records of the same file.
    pub fn merge(&mut self, other: &Self) {
        self.first.merge(&other.first);
        self.last.merge(&other.last);
        self.unpaired.merge(&other.unpaired);
    }

    /// Returns the number of mismatches to the reference and the number of aligned bases, for primary records.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_kernels::qc::{AlignmentBuffer, RecordCounts};
    /// # use godwit_kernels::qc::ReferenceBases;
    ///
    /// # struct Reference;
    /// # impl ReferenceBases for Reference {
    /// #     fn codes(&mut self, _: i32, _: u32, _: u32) -> std::io::Result<&[u8]> {
    /// #         Ok(&[1, 2, 4, 8, 1, 2, 4, 1])
    /// #     }
    /// # }
    /// # let reference = &mut Reference;
    /// # let words = [
    /// #     0, 999, 4681 << 16 | 60 << 8 | 4, 0 << 16 | 1, 8, -1, -1, 0, i32::from_le_bytes(*b"r01\0"),
    /// #     8 << 4, 0x4812_4812, 0x1e1e_1e1e, 0x1e1e_1e1e,
    /// # ];
    /// # let bytes = words.map(i32::to_le_bytes).concat();
    /// # let record = godwit_model::RawRecord::from_bytes(&bytes, 2)?;
    /// // The bases of `record` are ACGTACGT, those of the reference ACGTACGA.
    /// let (mut buffer, mut counts) = (AlignmentBuffer::default(), RecordCounts::default());
    /// counts.add(record, &buffer.decode(record, record.flag()), Some(reference))?;
    /// assert_eq!(counts.summary.mismatches(), (1, 8));
    /// # Ok(())
    /// # }
    /// ```
    pub fn mismatches(&self) -> (u64, u64) {
        let all = [&self.first, &self.last, &self.unpaired];
        (all.iter().map(|one| one.mismatches).sum(), all.iter().map(|one| one.aligned_bases).sum())
    }

    /// Returns the text of the metrics file. `comment` becomes a header line (`# ...`).
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_kernels::qc::{AlignmentBuffer, RecordCounts};
    /// # use godwit_kernels::qc::ReferenceBases;
    ///
    /// # struct NoReference;
    /// # impl ReferenceBases for NoReference {
    /// #     fn codes(&mut self, _: i32, _: u32, _: u32) -> std::io::Result<&[u8]> {
    /// #         Ok(&[])
    /// #     }
    /// # }
    /// # let words = [
    /// #     0, 999, 4681 << 16 | 60 << 8 | 4, 0 << 16 | 1, 8, -1, -1, 0, i32::from_le_bytes(*b"r01\0"),
    /// #     8 << 4, 0x4812_4812, 0x1e1e_1e1e, 0x1e1e_1e1e,
    /// # ];
    /// # let bytes = words.map(i32::to_le_bytes).concat();
    /// # let record = godwit_model::RawRecord::from_bytes(&bytes, 2)?;
    /// let (mut buffer, mut counts) = (AlignmentBuffer::default(), RecordCounts::default());
    /// counts.add(record, &buffer.decode(record, record.flag()), None::<&mut NoReference>)?;
    /// let text = counts.summary.to_text("CollectAlignmentSummaryMetrics");
    /// // One read passes the filter and is aligned, with eight bases.
    /// assert!(text.contains("\nUNPAIRED\t1\t1\t1\t0\t1\t1\t8\t"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn to_text(&self, comment: &str) -> String {
        let mut pair = self.first.clone();
        pair.merge(&self.last);
        let mut text = picard_header([comment]) + METRICS_HEADER;
        if self.first.reads > 0 {
            let (first, last) = (self.first.count_bad_cycles(), self.last.count_bad_cycles());
            text += &self.first.metrics_row("FIRST_OF_PAIR", first);
            text += &self.last.metrics_row("SECOND_OF_PAIR", last);
            text += &pair.metrics_row("PAIR", first + last);
        }
        if self.unpaired.reads > 0 || self.first.reads == 0 {
            text += &self.unpaired.metrics_row("UNPAIRED", self.unpaired.count_bad_cycles());
        }
        let columns = [
            ("PAIRED_TOTAL_LENGTH_COUNT", &pair.lengths),
            ("PAIRED_ALIGNED_LENGTH_COUNT", &pair.aligned_lengths),
            ("UNPAIRED_TOTAL_LENGTH_COUNT", &self.unpaired.lengths),
            ("UNPAIRED_ALIGNED_LENGTH_COUNT", &self.unpaired.aligned_lengths),
        ];
        let columns: Vec<_> = columns.into_iter().filter(|(_, lengths)| lengths.count() > 0).collect();
        text.push('\n');
        if !columns.is_empty() {
            text += "## HISTOGRAM\tjava.lang.Integer\nREAD_LENGTH";
            columns.iter().for_each(|(name, _)| text += &format!("\t{name}"));
            let mut all = Histogram::default();
            columns.iter().for_each(|(_, lengths)| all.merge(lengths));
            for (length, _) in all.iter() {
                text += &format!("\n{length}");
                columns.iter().for_each(|(_, lengths)| text += &format!("\t{}", lengths.get(length)));
            }
            text.push('\n');
        }
        text + "\n"
    }
}

const METRICS_HEADER: &str = "## METRICS CLASS\tpicard.analysis.AlignmentSummaryMetrics\n\
    CATEGORY\tTOTAL_READS\tPF_READS\tPCT_PF_READS\tPF_NOISE_READS\tPF_READS_ALIGNED\tPCT_PF_READS_ALIGNED\t\
    PF_ALIGNED_BASES\tPF_HQ_ALIGNED_READS\tPF_HQ_ALIGNED_BASES\tPF_HQ_ALIGNED_Q20_BASES\tPF_HQ_MEDIAN_MISMATCHES\t\
    PF_MISMATCH_RATE\tPF_HQ_ERROR_RATE\tPF_INDEL_RATE\tMEAN_READ_LENGTH\tSD_READ_LENGTH\tMEDIAN_READ_LENGTH\t\
    MAD_READ_LENGTH\tMIN_READ_LENGTH\tMAX_READ_LENGTH\tMEAN_ALIGNED_READ_LENGTH\tREADS_ALIGNED_IN_PAIRS\t\
    PCT_READS_ALIGNED_IN_PAIRS\tPF_READS_IMPROPER_PAIRS\tPCT_PF_READS_IMPROPER_PAIRS\tBAD_CYCLES\tSTRAND_BALANCE\t\
    PCT_CHIMERAS\tPCT_ADAPTER\tPCT_SOFTCLIP\tPCT_HARDCLIP\tAVG_POS_3PRIME_SOFTCLIP_LENGTH\tSAMPLE\tLIBRARY\tREAD_GROUP\n";

impl ReadCategory {
    fn add_read(&mut self, record: RawRecord, alignment: &Alignment) {
        let (flag, tags) = (alignment.flag, &alignment.tags);
        let (mapped, reverse) = (flag & flags::UNMAPPED == 0, flag & flags::REVERSE != 0);
        self.pf_reads += 1;
        self.noise += u64::from(tags.is_noise);
        self.lengths.add(alignment.codes.len() as u64);
        self.aligned_lengths.add(alignment.unclipped_read_bases);
        self.hard_clipped_bases += alignment.hard_clipped;
        if (!mapped || record.mapping_quality() == 0) && starts_with_adapter(alignment.codes, mapped && reverse) {
            self.adapters += 1;
        }
        if !mapped {
            return;
        }
        self.soft_clipped_bases += alignment.soft_clipped;
        let trailing = trailing_soft_clip_bases(record, reverse);
        self.trailing_clipped_bases += trailing;
        self.reads_with_trailing_clip += u64::from(trailing > 0);
        self.aligned += 1;
        self.forward += u64::from(!reverse);
        let paired = flag & flags::PAIRED != 0;
        self.improper_pairs += u64::from(paired && flag & flags::PROPER_PAIR == 0);
        let high_quality = record.mapping_quality() >= HIGH_MAPPING_QUALITY;
        if paired && flag & flags::MATE_UNMAPPED == 0 {
            self.in_pairs += 1;
            if tags.mate_mapping_quality.is_none_or(|mate| mate >= i64::from(HIGH_MAPPING_QUALITY) && high_quality) {
                self.chimera_candidates += 1;
                self.chimeras += u64::from(is_chimeric(record, alignment));
            }
        } else if high_quality {
            self.chimera_candidates += 1;
            self.chimeras += u64::from(tags.has_supplementary);
        }
    }

    fn add_bases<R: ReferenceBases>(
        &mut self,
        record: RawRecord,
        alignment: &Alignment,
        reference: Option<&mut R>,
    ) -> io::Result<()> {
        let high_quality = record.mapping_quality() >= HIGH_MAPPING_QUALITY;
        self.high_quality += u64::from(high_quality);
        let start = record.position().max(0) as u32;
        let span = alignment.reference_bases as u32;
        let bases = match reference {
            Some(reference) if span > 0 => Some(reference.codes(record.contig(), start, start + span)?),
            _ => None,
        };
        let (qualities, has_qualities) = (record.qualities(), record.has_qualities());
        let mut mismatches = 0;
        for block in alignment.blocks {
            // A record without SEQ has alignment blocks but no bases.
            let Some(read) = alignment.codes.get(block.read_start..) else { continue };
            let mut length = block.bases.min(read.len());
            let reference_block = match bases {
                Some(bases) => {
                    let against = &bases[block.reference_offset.min(bases.len())..];
                    length = length.min(against.len());
                    Some(&against[..length])
                }
                None => None,
            };
            let read = &read[..length];
            mismatches += self.count_mismatches(read, reference_block, alignment);
            self.aligned_bases += length as u64;
            if high_quality {
                self.high_quality_bases += length as u64;
                let quality = &qualities[block.read_start..block.read_start + length];
                if has_qualities {
                    self.high_quality_q20_bases +=
                        count_byte_pairs(quality, quality, |one, _| one >= HIGH_BASE_QUALITY);
                }
            }
        }
        self.mismatches += mismatches;
        self.high_quality_mismatches.add(if high_quality { mismatches } else { 0 });
        self.indels += alignment.indels;
        Ok(())
    }

    /// Counts the mismatches of an alignment block. As in Picard, the cycle for bad cycles is computed from the offset
    /// in the block, not in the read.
    fn count_mismatches(&mut self, read: &[u8], against: Option<&[u8]>, alignment: &Alignment) -> u64 {
        let no_calls = count_byte_pairs(read, read, |code, _| code == N_CODE);
        let differing = against.map_or(0, |against| count_byte_pairs(read, against, |a, b| a != b));
        if no_calls + differing > 0 {
            for (at, code) in read.iter().enumerate() {
                if *code == N_CODE || against.is_some_and(|against| against[at] != *code) {
                    self.bad_cycles.add(alignment.cycle(at));
                }
            }
        }
        differing
    }

    fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts_mut().into_iter().zip(other.clone().counts_mut()) {
            *mine += *theirs;
        }
        self.high_quality_mismatches.merge(&other.high_quality_mismatches);
        self.lengths.merge(&other.lengths);
        self.aligned_lengths.merge(&other.aligned_lengths);
        self.bad_cycles.merge(&other.bad_cycles);
    }

    fn counts_mut(&mut self) -> [&mut u64; 20] {
        [
            &mut self.reads,
            &mut self.pf_reads,
            &mut self.noise,
            &mut self.adapters,
            &mut self.aligned,
            &mut self.aligned_bases,
            &mut self.high_quality,
            &mut self.high_quality_bases,
            &mut self.high_quality_q20_bases,
            &mut self.mismatches,
            &mut self.indels,
            &mut self.in_pairs,
            &mut self.improper_pairs,
            &mut self.forward,
            &mut self.chimeras,
            &mut self.chimera_candidates,
            &mut self.soft_clipped_bases,
            &mut self.hard_clipped_bases,
            &mut self.trailing_clipped_bases,
            &mut self.reads_with_trailing_clip,
        ]
    }

    fn count_bad_cycles(&self) -> u64 {
        let reads = self.reads as f64;
        self.bad_cycles.iter().filter(|(_, count)| *count as f64 / reads >= BAD_CYCLE_FRACTION).count() as u64
    }

    fn metrics_row(&self, category: &str, bad_cycles: u64) -> String {
        let rate = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        // If no read passes the filter, Picard does not compute these values and prints 0.
        let or_zero = |value: f64| if self.pf_reads == 0 { 0.0 } else { value };
        let bases = self.lengths.sum();
        let high_quality_mismatches = self.high_quality_mismatches.sum();
        let cells = [
            self.reads as f64,
            self.pf_reads as f64,
            rate(self.pf_reads, self.reads),
            self.noise as f64,
            self.aligned as f64,
            rate(self.aligned, self.pf_reads),
            self.aligned_bases as f64,
            self.high_quality as f64,
            self.high_quality_bases as f64,
            self.high_quality_q20_bases as f64,
            self.high_quality_mismatches.median(),
            rate(self.mismatches, self.aligned_bases),
            rate(high_quality_mismatches, self.high_quality_bases),
            rate(self.indels, self.aligned_bases),
            or_zero(self.lengths.mean()),
            or_zero(self.lengths.standard_deviation()),
            self.lengths.median(),
            self.lengths.median_absolute_deviation(),
            self.lengths.min() as f64,
            self.lengths.max() as f64,
            or_zero(self.aligned_lengths.mean()),
            self.in_pairs as f64,
            rate(self.in_pairs, self.aligned),
            self.improper_pairs as f64,
            rate(self.improper_pairs, self.aligned),
            bad_cycles as f64,
            rate(self.forward, self.aligned),
            rate(self.chimeras, self.chimera_candidates),
            rate(self.adapters, self.pf_reads),
            rate(self.soft_clipped_bases, bases),
            rate(self.hard_clipped_bases, bases),
            rate(self.trailing_clipped_bases, self.reads_with_trailing_clip),
        ];
        format!("{category}\t{}\t\t\t\n", cells.map(format_double).join("\t"))
    }
}

/// Returns the number of soft-clipped bases that follow the last aligned base in sequencing order.
fn trailing_soft_clip_bases(record: RawRecord, reverse: bool) -> u64 {
    let mut seen_aligned = false;
    let mut clipped = 0;
    let mut count_clip = |op: godwit_model::CigarOp| {
        if !op.is_clip() {
            seen_aligned = true;
        } else if seen_aligned && op.code() == 4 {
            clipped += u64::from(op.bases());
        }
    };
    if reverse {
        record.cigar().rev().for_each(&mut count_clip)
    } else {
        record.cigar().for_each(&mut count_clip)
    }
    clipped
}

/// Returns whether a record with a mapped mate is chimeric by the rule of `ChimeraUtil.isChimeric`.
fn is_chimeric(record: RawRecord, alignment: &Alignment) -> bool {
    record.template_length().unsigned_abs() > MAX_INSERT_BASES
        || record.contig() != record.mate_contig()
        || alignment.tags.has_supplementary
        || PairOrientation::from_record(record, alignment.reference_bases) != PairOrientation::Inward
}
