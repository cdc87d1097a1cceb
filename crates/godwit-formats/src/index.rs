//! Indexes of coordinate-sorted BAM: `.bai` (SAMv1 §5.2) and `.csi` (CSIv1), built while the file is written.
//!
//! Flows in: contig, span and virtual offsets of each record, per partition, in coordinate order. Flows out: one index of
//! the whole file ([`IndexBuilder::merge`]) and the bytes of either format; and the counts that `samtools idxstats` prints
//! ([`ContigCounts`]). The same for bgzipped text as tabix indexes it ([`TabixBuilder`]). Of an index that is there only a
//! summary is read ([`IndexSummary`]), where on the genome the data of its file lie ([`DataSpread`]), or all of it, to find regions
//! ([`RegionIndex`]).

mod contig;
mod counts;
mod read;
mod regions;
mod spread;
mod tabix;
mod write;

#[cfg(test)]
mod tests;

use std::io;

use godwit_model::Genome;
use serde::{Deserialize, Serialize};

use self::contig::ContigIndex;
pub use self::counts::ContigCounts;
pub use self::read::{IndexReadError, IndexSummary};
pub use self::regions::{Chunk as FileChunk, RegionIndex, merge_chunks};
pub use self::spread::{DataSpread, WINDOW_BASES};
pub use self::tabix::TabixBuilder;
use crate::bgzf::RecordPlace;

/// Width of the smallest bins: 16,384 bases.
const MIN_SHIFT: u32 = 14;
/// Levels of bins below the one that spans everything, in `.bai`.
const BAI_DEPTH: u32 = 5;
/// Most bases of a contig that `.bai` can index.
const BAI_MAX_BASES: u64 = (1 << 29) - 1;
/// htslib sizes `.csi` for alignments that hang over the end of the longest contig by this much.
const OVERHANG_BASES: u64 = 256;

/// The two formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexFormat {
    /// `.bai`.
    Bai,
    /// `.csi`.
    Csi,
}

impl IndexFormat {
    /// `.bai` unless a contig is longer than 2^29 - 1 bases.
    pub fn for_genome(genome: &Genome) -> Self {
        if longest(genome) > BAI_MAX_BASES { Self::Csi } else { Self::Bai }
    }

    /// The file name's ending: `bai` or `csi`.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Bai => "bai",
            Self::Csi => "csi",
        }
    }
}

fn longest(genome: &Genome) -> u64 {
    genome.contigs().iter().map(|contig| u64::from(contig.length)).max().unwrap_or(0)
}

/// Levels of bins that cover the genome: as htslib 1.16 `sam_index` chooses them.
fn depth(genome: &Genome) -> u32 {
    let mut depth = BAI_DEPTH;
    if IndexFormat::for_genome(genome) == IndexFormat::Csi {
        while longest(genome) + OVERHANG_BASES > 1 << (MIN_SHIFT + 3 * depth) {
            depth += 1;
        }
    }
    depth
}

/// Why records cannot be indexed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum IndexError {
    /// Records do not come in coordinate order, or merged parts are not in the order of the file.
    #[error("records to index are not in coordinate order: contig {contig}, 0-based position {position}")]
    Order {
        /// Index of the contig, -1 for none.
        contig: i32,
        /// 0-based.
        position: i32,
    },
    /// A record lies beyond what the index can express, so beyond its contig as well.
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

/// Collects the index of a file or of a part of one.
///
/// ```
/// use godwit_formats::bgzf::RecordPlace;
/// use godwit_formats::index::{IndexBuilder, IndexFormat};
/// use godwit_model::{Contig, Genome};
/// let genome = Genome::new(vec![Contig { name: "a".into(), length: 1000, alternate: false }])?;
/// let mut part = IndexBuilder::new(&genome);
/// part.push(0, 10, 110, true, RecordPlace { before: 0, after: 250 })?;
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
    without_contig: u64,
    last_position: i32,
}

impl IndexBuilder {
    /// An empty index for records on these contigs.
    pub fn new(genome: &Genome) -> Self {
        Self { depth: depth(genome), contigs: Vec::new(), without_contig: 0, last_position: -1 }
    }

    /// Adds a record: contig index (-1: none), span `[start, end)` (0-based; an end at or before the start counts as one
    /// base), whether it is mapped (FLAG 0x4 unset), and where it lies. Coordinate order; offsets ascend.
    ///
    /// # Errors
    /// [`IndexError::Order`], [`IndexError::Range`].
    pub fn push(
        &mut self,
        contig: i32,
        start: i32,
        end: i32,
        mapped: bool,
        place: RecordPlace,
    ) -> Result<(), IndexError> {
        if contig < 0 {
            self.without_contig += 1;
            return Ok(());
        }
        let last_contig = self.contigs.last().map_or(-1, |(contig, _)| *contig);
        let back = contig < last_contig || (contig == last_contig && start < self.last_position);
        if back || self.without_contig > 0 {
            return Err(IndexError::Order { contig, position: start });
        }
        // htslib puts a record at position -1 into the leftmost bin.
        let first = i64::from(start.max(0));
        let end = i64::from(end).max(first + 1);
        if end > 1 << (MIN_SHIFT + 3 * self.depth) {
            return Err(IndexError::Range { contig, end });
        }
        if contig > last_contig {
            self.contigs.push((contig, ContigIndex::new(place.before)));
        }
        self.last_position = start;
        let bin = contig::bin_of(first, end, self.depth);
        if let Some((_, index)) = self.contigs.last_mut() {
            index.push(bin, first, end, mapped, place);
        }
        Ok(())
    }

    /// Puts the parts of one file together, in their order. `compressed_shift` is the offset in the file where the part
    /// starts, in bytes.
    ///
    /// # Errors
    /// [`IndexError::Order`] where a part starts before the contig that the one before it ended on;
    /// [`IndexError::Depth`].
    pub fn merge(parts: Vec<(Self, u64)>) -> Result<Self, IndexError> {
        let mut parts = parts.into_iter();
        let Some((mut whole, shift)) = parts.next() else {
            return Ok(Self { depth: BAI_DEPTH, contigs: Vec::new(), without_contig: 0, last_position: -1 });
        };
        whole.contigs.iter_mut().for_each(|(_, index)| index.shift(shift));
        for (part, shift) in parts {
            if part.depth != whole.depth {
                return Err(IndexError::Depth { first: whole.depth, second: part.depth });
            }
            for (contig, mut index) in part.contigs {
                index.shift(shift);
                let last_contig = whole.contigs.last().map_or(-1, |(contig, _)| *contig);
                if contig < last_contig || whole.without_contig > 0 {
                    return Err(IndexError::Order { contig, position: 0 });
                }
                match whole.contigs.last_mut() {
                    Some((last, before)) if *last == contig => before.append(index),
                    _ => whole.contigs.push((contig, index)),
                }
            }
            whole.without_contig += part.without_contig;
            whole.last_position = part.last_position;
        }
        Ok(whole)
    }

    /// The index in a format, with places for as many contigs as the genome has.
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
