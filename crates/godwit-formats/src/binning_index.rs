//! Binning indexes of coordinate-sorted BAM files: `.bai` (SAMv1 §5.2) and `.csi` (CSIv1), built while the BAM file is
//! written.
//!
//! Flows in: for each partition of a file, the contig, interval and virtual offsets of each record, in coordinate
//! order. Flows out: one index of the whole file ([`IndexBuilder::merge`]), the bytes of the index in either format,
//! and the record counts that `samtools idxstats` prints ([`ContigCounts`]). [`TabixBuilder`] builds the corresponding
//! tabix index of a bgzipped VCF. This module also reads existing indexes: a summary ([`IndexSummary`]), the
//! distribution of the data along the genome ([`DataDensity`]), or the whole index, to find regions ([`RegionIndex`]).

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
use std::path::{Path, PathBuf};

use godwit_model::Genome;
use serde::{Deserialize, Serialize};

pub use self::contig_counts::ContigCounts;
use self::contig_index::ContigIndex;
pub use self::data_density::{DENSITY_WINDOW_BASES, DataDensity};
pub use self::index_summary::{IndexReadError, IndexSummary};
pub use self::region_index::{Chunk as FileChunk, RegionIndex, merge_chunks};
pub use self::tabix::TabixBuilder;
use godwit_io::bgzf::RecordOffsets;

/// Binary logarithm of the width of the smallest bins, which is 16,384 bases.
const MIN_SHIFT: u32 = 14;
/// Number of levels of bins in `.bai`, not counting the bin that covers the whole contig.
const BAI_DEPTH: u32 = 5;
/// Maximum length in bases of a contig that `.bai` can index.
const BAI_MAX_BASES: u64 = (1 << 29) - 1;
/// Bases by which alignments may extend past the end of the longest contig; htslib chooses the levels of a `.csi` index
/// accordingly.
const OVERHANG_BASES: u64 = 256;

/// Returns the paths at which the index of a file may be, for each extension: `a.bam.bai` and `a.bai` for `a.bam`.
pub fn index_paths<'a>(path: &'a Path, extensions: &'a [&str]) -> impl Iterator<Item = PathBuf> + 'a {
    let appended = extensions.iter().map(|extension| path.with_added_extension(extension));
    appended.chain(extensions.iter().map(|extension| path.with_extension(extension)))
}

/// A format of binning indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexFormat {
    /// The BAM index format `.bai`.
    Bai,
    /// The coordinate-sorted index format `.csi`.
    Csi,
}

impl IndexFormat {
    /// Returns `.csi` if a contig is longer than 2^29 - 1 bases, otherwise `.bai`.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_formats::binning_index::IndexFormat;
    /// use godwit_model::{Contig, Genome};
    ///
    /// let genome = |length| Genome::new(vec![Contig { name: "chr1".to_owned(), length, alternate: false }]);
    /// assert_eq!(IndexFormat::for_genome(&genome(248_956_422)?), IndexFormat::Bai);
    /// assert_eq!(IndexFormat::for_genome(&genome(600_000_000)?), IndexFormat::Csi);
    /// # Ok(())
    /// # }
    /// ```
    pub fn for_genome(genome: &Genome) -> Self {
        if longest_contig_bases(genome) > BAI_MAX_BASES { Self::Csi } else { Self::Bai }
    }

    /// Returns the file name extension of the format: `bai` or `csi`.
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

/// Returns the number of levels of bins needed to cover the longest contig, as `sam_index` of htslib 1.16 chooses it.
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
    /// Records are not in coordinate order, or the parts to merge are not in the order of the file.
    #[error("records to index are not in coordinate order: contig {contig}, 0-based position {position}")]
    Order {
        /// Index of the contig; -1 if the record has no contig.
        contig: i32,
        /// 0-based position of the record.
        position: i32,
    },
    /// A record ends beyond the limit of the index, and therefore also beyond the end of its contig.
    #[error(
        "a record on contig {contig} ends at base {end}, beyond what its index can hold; check it against the header"
    )]
    Range {
        /// Index of the contig of the record.
        contig: i32,
        /// 0-based position after the last base of the record.
        end: i64,
    },
    /// The parts to merge were built for genomes that need different numbers of levels.
    #[error("parts of one index have different depths, {first} and {second}")]
    Depth {
        /// Number of levels of the first part.
        first: u32,
        /// Number of levels of the part that differs.
        second: u32,
    },
}

/// A builder of the index of a BAM file, or of a part of a BAM file.
///
/// # Examples
///
/// ```
/// use godwit_io::bgzf::RecordOffsets;
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
    /// Indexes of the contigs that have records, by ascending contig number.
    contigs: Vec<(i32, ContigIndex)>,
    #[serde(rename = "without_contig")]
    unplaced_records: u64,
    last_position: i32,
}

impl IndexBuilder {
    /// Creates an empty index for records on the contigs of this genome.
    pub fn new(genome: &Genome) -> Self {
        Self { depth: binning_depth(genome), contigs: Vec::new(), unplaced_records: 0, last_position: -1 }
    }

    /// Adds a record. `contig` is its contig index (-1 if it has no contig), `start` and `end` are its interval
    /// (0-based, half-open), and `mapped` is true if FLAG 0x4 is unset. If `end` is not after `start`, the record
    /// counts as one base long. Records must be added in coordinate order, with ascending offsets.
    ///
    /// # Errors
    /// [`IndexError::Order`] if the record precedes the previous record; [`IndexError::Range`] if it ends beyond the
    /// limit of the index.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_io::bgzf::RecordOffsets;
    /// use godwit_formats::binning_index::{IndexBuilder, IndexError};
    /// use godwit_model::{Contig, Genome};
    ///
    /// let contig = Contig { name: "chr1".to_owned(), length: 1_000_000, alternate: false };
    /// let genome = Genome::new(vec![contig])?;
    /// let mut index = IndexBuilder::new(&genome);
    /// index.push(0, 500, 600, true, RecordOffsets { start: 0, end: 90 })?;
    /// let error = index.push(0, 400, 500, true, RecordOffsets { start: 90, end: 180 }).unwrap_err();
    /// assert_eq!(error, IndexError::Order { contig: 0, position: 400 });
    /// # Ok(())
    /// # }
    /// ```
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
        // As in htslib, a record at position -1 belongs to the leftmost bin.
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

    /// Merges the indexes of the parts of one file, in the order of the file. Each part comes with the offset in bytes
    /// at which it starts in the file.
    ///
    /// # Errors
    /// [`IndexError::Order`] if a part starts on a contig before the one on which the previous part ended;
    /// [`IndexError::Depth`] if the parts have different numbers of levels.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_io::bgzf::RecordOffsets;
    /// use godwit_formats::binning_index::{IndexBuilder, RegionIndex};
    /// use godwit_model::{Contig, Genome};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("a.bam.bai");
    /// # let contig = Contig { name: "chr1".to_owned(), length: 1_000_000, alternate: false };
    /// # let genome = Genome::new(vec![contig])?;
    /// let (mut first, mut second) = (IndexBuilder::new(&genome), IndexBuilder::new(&genome));
    /// first.push(0, 100, 250, true, RecordOffsets { start: 0, end: 90 })?;
    /// second.push(0, 500, 650, true, RecordOffsets { start: 0, end: 70 })?;
    /// // The blocks of the second part begin at byte 200 of the file.
    /// let index = IndexBuilder::merge(vec![(first, 0), (second, 200)])?;
    /// index.write_bai(&genome, std::fs::File::create(&path)?)?;
    /// let chunks = RegionIndex::read(&path)?.chunks(0, 0, 1000);
    /// assert_eq!(chunks, [(0, 90), (200 << 16, 200 << 16 | 70)]);
    /// # Ok(())
    /// # }
    /// ```
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

    /// Writes the index in this format, with entries for all contigs of the genome.
    ///
    /// # Errors
    /// The errors of writing to `out`.
    pub fn write(&self, format: IndexFormat, genome: &Genome, out: impl io::Write) -> io::Result<()> {
        match format {
            IndexFormat::Bai => self.write_bai(genome, out),
            IndexFormat::Csi => self.write_csi(genome, out),
        }
    }
}
