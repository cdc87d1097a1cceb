//! Indexes of coordinate-sorted BAM: `.bai` (SAMv1 §5.2) and `.csi` (CSIv1), built while the file is written.
//!
//! Flows in: contig, interval and virtual offsets of each record, per partition, in coordinate order. Flows out: one index
//! of the whole file ([`IndexBuilder::merge`]) and the bytes of either format; and the counts that `samtools idxstats`
//! prints ([`ContigCounts`]). The same for bgzipped text as tabix indexes it ([`TabixBuilder`]). Of an existing index this
//! module reads a summary ([`IndexSummary`]), the distribution of the data along the genome ([`DataDensity`]), or all of
//! it, to find regions ([`RegionIndex`]).

mod contig_counts;
mod contig_index;
mod data_density;
mod index_summary;
mod index_writer;
mod region_index;
mod tabix;

#[cfg(test)]
mod tests;

use std::io;

use godwit_model::Genome;
use serde::{Deserialize, Serialize};

pub use self::contig_counts::ContigCounts;
use self::contig_index::ContigIndex;
pub use self::data_density::{DENSITY_WINDOW_BASES, DataDensity};
pub use self::index_summary::{IndexReadError, IndexSummary};
pub use self::region_index::{Chunk as FileChunk, RegionIndex, merge_chunks};
pub use self::tabix::TabixBuilder;
use crate::bgzf::RecordOffsets;

/// Width of the smallest bins: 16,384 bases.
const MIN_SHIFT: u32 = 14;
/// Levels of bins below the one that covers everything, in `.bai`.
const BAI_DEPTH: u32 = 5;
/// Maximum bases of a contig that `.bai` can index.
const BAI_MAX_BASES: u64 = (1 << 29) - 1;
/// htslib sizes `.csi` for alignments that extend past the end of the longest contig by this many bases.
const OVERHANG_BASES: u64 = 256;

/// A format of binning indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexFormat {
    /// `.bai`.
    Bai,
    /// `.csi`.
    Csi,
}

impl IndexFormat {
    /// Returns `.bai` unless a contig is longer than 2^29 - 1 bases.
    pub fn for_genome(genome: &Genome) -> Self {
        if longest_contig_bases(genome) > BAI_MAX_BASES { Self::Csi } else { Self::Bai }
    }

    /// Returns the file name extension: `bai` or `csi`.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Bai => "bai",
            Self::Csi => "csi",
        }
    }
}

fn longest_contig_bases(genome: &Genome) -> u64 {
    genome.contigs().iter().map(|contig| u64::from(contig.length)).max().unwrap_or(0)
}

/// Returns the levels of bins that cover the genome: as htslib 1.16 `sam_index` chooses them.
fn binning_depth(genome: &Genome) -> u32 {
    let mut depth = BAI_DEPTH;
    if IndexFormat::for_genome(genome) == IndexFormat::Csi {
        while longest_contig_bases(genome) + OVERHANG_BASES > 1 << (MIN_SHIFT + 3 * depth) {
            depth += 1;
        }
    }
    depth
}

/// A reason why records cannot be indexed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum IndexError {
    /// Records are not in coordinate order, or merged parts are not in the order of the file.
    #[error("records to index are not in coordinate order: contig {contig}, 0-based position {position}")]
    Order {
        /// Index of the contig, -1 for none.
        contig: i32,
        /// 0-based.
        position: i32,
    },
    /// A record ends beyond the limit of the index, so beyond its contig as well.
    #[error(
        "a record on contig {contig} ends at base {end}, beyond what its index can hold; check it against the header"
    )]
    Range {
        /// Index of the contig.
        contig: i32,
        /// One past the last base, 0-based.
        end: i64,
    },
    /// Merged parts were built for genomes of different size.
    #[error("parts of one index have different depths, {first} and {second}")]
    Depth {
        /// Levels of the first part.
        first: u32,
        /// Levels of the other one.
        second: u32,
    },
}

/// A builder of the index of a file or of a part of one.
///
/// ```
/// use godwit_formats::bgzf::RecordOffsets;
/// use godwit_formats::binning_index::{IndexBuilder, IndexFormat};
/// use godwit_model::{Contig, Genome};
/// let genome = Genome::new(vec![Contig { name: "a".into(), length: 1000, alternate: false }])?;
/// let mut part = IndexBuilder::new(&genome);
/// part.push(0, 10, 110, true, RecordOffsets { start: 0, end: 250 })?;
/// let index = IndexBuilder::merge(vec![(part, 4096)])?;
/// let mut bytes = Vec::new();
/// index.write(IndexFormat::Bai, &genome, &mut bytes)?;
/// assert!(bytes.starts_with(b"BAI\x01"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IndexBuilder {
    depth: u32,
    /// Contigs that have records, ascending.
    contigs: Vec<(i32, ContigIndex)>,
    #[serde(rename = "without_contig")]
    unplaced_records: u64,
    last_position: i32,
}

impl IndexBuilder {
    /// Creates an empty index for records on these contigs.
    pub fn new(genome: &Genome) -> Self {
        Self { depth: binning_depth(genome), contigs: Vec::new(), unplaced_records: 0, last_position: -1 }
    }

    /// Adds a record: contig index (-1: none), interval `[start, end)` (0-based; an end at or before the start counts as
    /// one base), whether it is mapped (FLAG 0x4 unset), and its virtual offsets. Coordinate order; offsets ascend.
    ///
    /// # Errors
    /// [`IndexError::Order`] for a record before the previous one; [`IndexError::Range`] for one beyond the limit of the
    /// index.
    pub fn push(
        &mut self,
        contig: i32,
        start: i32,
        end: i32,
        mapped: bool,
        offsets: RecordOffsets,
    ) -> Result<(), IndexError> {
        if contig < 0 {
            self.unplaced_records += 1;
            return Ok(());
        }
        let last_contig = self.contigs.last().map_or(-1, |(contig, _)| *contig);
        let back = contig < last_contig || (contig == last_contig && start < self.last_position);
        if back || self.unplaced_records > 0 {
            return Err(IndexError::Order { contig, position: start });
        }
        // htslib puts a record at position -1 into the leftmost bin.
        let first = i64::from(start.max(0));
        let end = i64::from(end).max(first + 1);
        if end > 1 << (MIN_SHIFT + 3 * self.depth) {
            return Err(IndexError::Range { contig, end });
        }
        if contig > last_contig {
            self.contigs.push((contig, ContigIndex::new(offsets.start)));
        }
        self.last_position = start;
        let bin = contig_index::smallest_bin(first, end, self.depth);
        if let Some((_, index)) = self.contigs.last_mut() {
            index.push(bin, first, end, mapped, offsets);
        }
        Ok(())
    }

    /// Merges the parts of one file, in their order. `compressed_shift` is the offset in the file at which the part starts,
    /// in bytes.
    ///
    /// # Errors
    /// [`IndexError::Order`] where a part starts before the contig on which the previous part ended; [`IndexError::Depth`]
    /// where depths differ.
    pub fn merge(parts: Vec<(Self, u64)>) -> Result<Self, IndexError> {
        let mut parts = parts.into_iter();
        let Some((mut whole, shift)) = parts.next() else {
            return Ok(Self { depth: BAI_DEPTH, contigs: Vec::new(), unplaced_records: 0, last_position: -1 });
        };
        whole.contigs.iter_mut().for_each(|(_, index)| index.shift_offsets(shift));
        for (part, shift) in parts {
            if part.depth != whole.depth {
                return Err(IndexError::Depth { first: whole.depth, second: part.depth });
            }
            for (contig, mut index) in part.contigs {
                index.shift_offsets(shift);
                let last_contig = whole.contigs.last().map_or(-1, |(contig, _)| *contig);
                if contig < last_contig || whole.unplaced_records > 0 {
                    return Err(IndexError::Order { contig, position: 0 });
                }
                match whole.contigs.last_mut() {
                    Some((last, before)) if *last == contig => before.append(index),
                    _ => whole.contigs.push((contig, index)),
                }
            }
            whole.unplaced_records += part.unplaced_records;
            whole.last_position = part.last_position;
        }
        Ok(whole)
    }

    /// Writes the index in a format, with entries for as many contigs as the genome has.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, format: IndexFormat, genome: &Genome, out: impl io::Write) -> io::Result<()> {
        match format {
            IndexFormat::Bai => self.write_bai(genome, out),
            IndexFormat::Csi => self.write_csi(genome, out),
        }
    }
}
