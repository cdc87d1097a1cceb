//! An index that is read into memory to find the chunks with the records of a region.
//!
//! Flows in: `.bai`, `.csi` and `.tbi` files of any origin. Flows out: chunks (pairs of virtual offsets). This module
//! does not detect that an index belongs to another file. Readers of the file may notice it, for example if a chunk
//! points beyond the end of the file.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use godwit_io::bgzf::{BgzfBufRead as _, BgzfError, Reader, VirtualOffset, open_text};

use super::contig_index::first_bin;
use super::index_summary::IndexReadError;
use super::{BAI_DEPTH, MIN_SHIFT};

/// Maximum bytes of a decompressed index. The index of 300,000 contigs, or of a human genome at 1000x coverage, has a
/// tenth of this size.
const MAX_INDEX_BYTES: usize = 1 << 30;
/// Bytes of the tabix header. Its last field is the length in bytes of the contig names that follow it.
const TABIX_HEADER_BYTES: usize = 28;

/// A chunk of the file, given by the virtual offset of its first byte and the virtual offset after its last byte.
pub type Chunk = (VirtualOffset, VirtualOffset);

/// A binning index in memory.
#[derive(Clone, Debug)]
pub struct RegionIndex {
    path: PathBuf,
    min_shift: u32,
    depth: u32,
    /// True if each bin has an offset, as in CSI; false if the contig has a linear index instead.
    bins_have_offsets: bool,
    contigs: Vec<ContigBins>,
    contig_names: Option<Vec<String>>,
    unplaced_records: Option<u64>,
    /// The offsets of [`Self::record_offsets`], which are sorted by its first call.
    record_offsets: OnceLock<Vec<VirtualOffset>>,
}

#[derive(Clone, Debug, Default)]
struct ContigBins {
    /// Bins of the contig, sorted by number.
    bins: Vec<BinRange>,
    chunks: Vec<Chunk>,
    /// For each window of `1 << min_shift` bases, the virtual offset of the first record that overlaps the window.
    linear_index: Vec<VirtualOffset>,
    counts: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct BinRange {
    number: u32,
    first_offset: VirtualOffset,
    /// Index of the first chunk of the bin; the chunks of the bin are `chunks[start..end]` of its contig.
    start: u32,
    end: u32,
}

impl RegionIndex {
    /// Reads an index file; the format is detected from its content.
    ///
    /// # Errors
    /// [`IndexReadError`] if the index cannot be read or is damaged.
    pub fn read(path: &Path) -> Result<Self, IndexReadError> {
        Self::read_from(open_text(path, 1)?)
    }

    /// Reads an index from an open file from which nothing has been consumed.
    ///
    /// # Errors
    /// [`IndexReadError`] if the index cannot be read or is damaged.
    pub fn read_from(mut input: Reader) -> Result<Self, IndexReadError> {
        let path = input.path().to_owned();
        let mut bytes = Vec::new();
        match input.append_to(&mut bytes, MAX_INDEX_BYTES) {
            // An I/O error does not mean that the index is damaged.
            Err(error @ BgzfError::Io { .. }) => Err(error.into()),
            Err(_) => Err(IndexReadError::Damaged { path }),
            Ok(_) => Self::parse(&path, &bytes).ok_or(IndexReadError::Damaged { path }),
        }
    }

    fn parse(path: &Path, bytes: &[u8]) -> Option<Self> {
        let mut fields = IndexFieldCursor(bytes);
        let mut index = Self {
            path: path.to_owned(),
            min_shift: MIN_SHIFT,
            depth: BAI_DEPTH,
            bins_have_offsets: false,
            contigs: Vec::new(),
            contig_names: None,
            unplaced_records: None,
            record_offsets: OnceLock::new(),
        };
        let contigs = match fields.take_bytes(4)? {
            b"BAI\x01" => fields.take_u32()?,
            b"TBI\x01" => {
                let contigs = fields.take_u32()?;
                let names_bytes = u32::from_le_bytes(*fields.0.get(TABIX_HEADER_BYTES - 4..)?.first_chunk()?) as usize;
                index.contig_names = Some(parse_tabix_names(fields.take_bytes(TABIX_HEADER_BYTES + names_bytes)?)?);
                contigs
            }
            b"CSI\x01" => {
                (index.min_shift, index.depth) = (fields.take_u32()?, fields.take_u32()?);
                // More levels would exceed the 32 bits of a bin number, and wider bins the range of positions (CSIv1).
                if index.depth > 9 || index.min_shift > 30 {
                    return None;
                }
                index.bins_have_offsets = true;
                let auxiliary = fields.take_u32()? as usize;
                let auxiliary = fields.take_bytes(auxiliary)?;
                // The auxiliary data of the index of a VCF is a tabix header; for BAM and BCF it is empty.
                index.contig_names =
                    (auxiliary.len() >= TABIX_HEADER_BYTES).then(|| parse_tabix_names(auxiliary)).flatten();
                fields.take_u32()?
            }
            _ => return None,
        };
        for _ in 0..contigs {
            let contig = fields.take_contig(index.bins_have_offsets, first_bin(index.depth + 1) + 1)?;
            index.contigs.push(contig);
        }
        // The last field is missing in indexes of old programs.
        index.unplaced_records = fields.take_u64();
        Some(index)
    }

    /// Returns the path of the index file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of contigs of the index.
    pub fn contig_count(&self) -> usize {
        self.contigs.len()
    }

    /// Returns the contig names if the index contains them, as the index of a VCF does.
    pub fn contig_names(&self) -> Option<&[String]> {
        self.contig_names.as_deref()
    }

    /// Returns the number of all records, including those without a contig, or `None` if the index does not contain the
    /// counts.
    pub fn record_count(&self) -> Option<u64> {
        let of_contigs = |contig: &ContigBins| match contig.counts {
            Some((mapped, unmapped)) => mapped.checked_add(unmapped),
            None if contig.bins.is_empty() => Some(0),
            None => None,
        };
        let counted: Option<u64> =
            self.contigs.iter().map(of_contigs).try_fold(0u64, |sum, count| sum.checked_add(count?));
        // In the index of a VCF, the number of records without a contig is missing or zero.
        counted?.checked_add(self.unplaced_records.or(self.contig_names.is_some().then_some(0))?)
    }

    /// Returns the greatest offset in the compressed file to which the index refers.
    pub fn last_compressed_offset(&self) -> u64 {
        let ends = self.contigs.iter().flat_map(|contig| &contig.chunks).map(|(_, end)| end >> 16);
        ends.max().unwrap_or(0)
    }

    /// Returns the virtual offset of the end of the last record that has a contig, or `None` if there are no such
    /// records. Records without a contig follow at this offset.
    pub fn end_of_placed_records(&self) -> Option<VirtualOffset> {
        self.contigs.iter().flat_map(|contig| &contig.chunks).map(|chunk| chunk.1).max()
    }

    /// Returns chunks that contain all records that overlap the interval `[start, end)` of a contig, 0-based. The
    /// chunks are ascending and disjoint, and may contain other records as well.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::fs::File;
    ///
    /// use godwit_io::bgzf::RecordOffsets;
    /// use godwit_formats::binning_index::{IndexBuilder, IndexFormat, RegionIndex};
    /// use godwit_model::{Contig, Genome};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("a.bam.bai");
    /// # let contig = Contig { name: "chr1".to_owned(), length: 1_000_000, alternate: false };
    /// # let genome = Genome::new(vec![contig])?;
    /// let mut builder = IndexBuilder::new(&genome);
    /// builder.push(0, 100, 250, true, RecordOffsets { start: 0, end: 300 })?;
    /// builder.push(0, 500_000, 500_150, true, RecordOffsets { start: 90 << 16, end: 90 << 16 | 300 })?;
    /// builder.write(IndexFormat::Bai, &genome, File::create(&path)?)?;
    ///
    /// let index = RegionIndex::read(&path)?;
    /// assert_eq!(index.chunks(0, 499_000, 501_000), [(90 << 16, 90 << 16 | 300)]);
    /// assert!(index.chunks(0, 700_000, 800_000).is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn chunks(&self, contig: usize, start: u32, end: u32) -> Vec<Chunk> {
        let Some(regions) = self.contigs.get(contig).filter(|_| start < end) else { return Vec::new() };
        let last = i64::from(end - 1).min((1 << (self.min_shift + 3 * self.depth)) - 1) as u64;
        let start = u64::from(start);
        if start > last {
            return Vec::new();
        }
        let (lower_bound, upper_bound) =
            (self.lower_offset_bound(regions, start), self.upper_offset_bound(regions, last));
        let mut found: Vec<Chunk> = Vec::new();
        for level in 0..=self.depth {
            let shift = self.min_shift + 3 * (self.depth - level);
            let first = first_bin(level);
            let (low, high) = (first + (start >> shift) as u32, first + (last >> shift) as u32);
            let from = regions.bins.partition_point(|bin| bin.number < low);
            for bin in regions.bins[from..].iter().take_while(|bin| bin.number <= high) {
                let chunks = &regions.chunks[bin.start as usize..bin.end as usize];
                let overlapping = chunks.iter().filter(|chunk| chunk.1 > lower_bound && chunk.0 < upper_bound);
                found.extend(overlapping.map(|chunk| (chunk.0.max(lower_bound), chunk.1.min(upper_bound))));
            }
        }
        merge_chunks(found)
    }

    /// Returns a virtual offset that precedes all records that overlap a base at or after `start`.
    fn lower_offset_bound(&self, regions: &ContigBins, start: u64) -> VirtualOffset {
        let window = (start >> self.min_shift) as usize;
        if !self.bins_have_offsets {
            return regions.linear_index.get(window).or(regions.linear_index.last()).copied().unwrap_or(0);
        }
        // As in htslib 1.16, use the bin of the window; if it is absent, the next present bin to the left with the same
        // parent; otherwise the parent bin.
        let mut number = first_bin(self.depth) + window as u32;
        loop {
            if let Ok(at) = regions.bins.binary_search_by_key(&number, |bin| bin.number) {
                return regions.bins[at].first_offset;
            }
            if number == 0 {
                return 0;
            }
            let parent = (number - 1) >> 3;
            number = if number > (parent << 3) + 1 { number - 1 } else { parent };
        }
    }

    /// Returns a virtual offset after all records that overlap a base at or before `last`. On each level, all records
    /// of the next bin to the right begin after that base, and the file is sorted.
    fn upper_offset_bound(&self, regions: &ContigBins, last: u64) -> VirtualOffset {
        let of_level = |level: u32| {
            let shift = self.min_shift + 3 * (self.depth - level);
            let next = first_bin(level) + (last >> shift) as u32 + 1;
            let at = regions.bins.partition_point(|bin| bin.number < next);
            let bin = regions.bins.get(at).filter(|bin| bin.number < first_bin(level + 1))?;
            regions.chunks[bin.start as usize..bin.end as usize].iter().map(|chunk| chunk.0).min()
        };
        (0..=self.depth).filter_map(of_level).min().unwrap_or(VirtualOffset::MAX)
    }

    /// Returns the virtual offsets of all records that the index knows, in ascending order.
    pub fn record_offsets(&self) -> &[VirtualOffset] {
        self.record_offsets.get_or_init(|| {
            let mut starts: Vec<VirtualOffset> = self.contigs.iter().flat_map(ContigBins::record_offsets).collect();
            starts.sort_unstable();
            starts.dedup();
            starts
        })
    }

    /// Returns virtual offsets, in ascending order, at which the file can be divided into about `parts` parts of
    /// similar size. A record begins at each of these offsets. `first` is the offset of the first record and `bytes` is
    /// the length of the file; the start and the end of the file are not among the results.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::fs::File;
    ///
    /// use godwit_io::bgzf::RecordOffsets;
    /// use godwit_formats::binning_index::{IndexBuilder, IndexFormat, RegionIndex};
    /// use godwit_model::{Contig, Genome};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("a.bam.bai");
    /// # let contig = Contig { name: "chr1".to_owned(), length: 1_000_000, alternate: false };
    /// # let genome = Genome::new(vec![contig])?;
    /// let mut builder = IndexBuilder::new(&genome);
    /// for (position, block) in [(0, 0), (100_000, 1000), (200_000, 2000), (300_000, 3000)] {
    ///     let offsets = RecordOffsets { start: block << 16, end: (block + 1000) << 16 };
    ///     builder.push(0, position, position + 150, true, offsets)?;
    /// }
    /// builder.write(IndexFormat::Bai, &genome, File::create(&path)?)?;
    ///
    /// let index = RegionIndex::read(&path)?;
    /// assert_eq!(index.split_offsets(0, 4000, 2), [2000 << 16]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn split_offsets(&self, first: VirtualOffset, bytes: u64, parts: usize) -> Vec<VirtualOffset> {
        let starts = self.record_offsets();
        let starts = &starts[starts.partition_point(|start| *start <= first)..];
        let from = first >> 16;
        let target_offset =
            |part: usize| from + (bytes.saturating_sub(from) as u128 * part as u128 / parts as u128) as u64;
        let mut cuts: Vec<VirtualOffset> = (1..parts)
            .filter_map(|part| starts.get(starts.partition_point(|start| start >> 16 < target_offset(part))).copied())
            .collect();
        cuts.dedup();
        cuts
    }
}

impl ContigBins {
    fn record_offsets(&self) -> impl Iterator<Item = VirtualOffset> {
        let chunks = self.chunks.iter().map(|chunk| chunk.0);
        chunks.chain(self.linear_index.iter().copied()).filter(|start| *start > 0)
    }
}

/// Sorts the chunks of a file, and joins chunks that overlap, touch or share a block, so that the block is decompressed
/// once.
///
/// # Examples
///
/// ```
/// use godwit_formats::binning_index::merge_chunks;
///
/// // The second chunk begins in the block in which the first one ends.
/// let chunks = vec![(40 << 16, 41 << 16), (0, 7 << 16), (7 << 16 | 5, 9 << 16)];
/// assert_eq!(merge_chunks(chunks), [(0, 9 << 16), (40 << 16, 41 << 16)]);
/// ```
pub fn merge_chunks(mut chunks: Vec<Chunk>) -> Vec<Chunk> {
    chunks.sort_unstable();
    chunks.dedup_by(|next, chunk| {
        let joined = chunk.1 >> 16 >= next.0 >> 16;
        if joined {
            chunk.1 = chunk.1.max(next.1);
        }
        joined
    });
    chunks
}

/// Parses the contig names after the tabix header, each of which ends with a NUL byte.
fn parse_tabix_names(head: &[u8]) -> Option<Vec<String>> {
    let names = head.get(TABIX_HEADER_BYTES..)?;
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| String::from_utf8(name.to_vec()).ok()).collect()
}

/// A cursor over the fields of an index in memory, which are little-endian numbers.
struct IndexFieldCursor<'a>(&'a [u8]);

impl<'a> IndexFieldCursor<'a> {
    fn take_bytes(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn take_u32(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*number))
    }

    fn take_u64(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    /// Parses the index of one contig. Memory grows with the data that is present, not with the counts that the data
    /// claims.
    fn take_contig(&mut self, bins_have_offsets: bool, metadata_bin: u32) -> Option<ContigBins> {
        let mut contig = ContigBins::default();
        for _ in 0..self.take_u32()? {
            let number = self.take_u32()?;
            let first_offset = if bins_have_offsets { self.take_u64()? } else { 0 };
            let start = contig.chunks.len() as u32;
            for chunk in 0..self.take_u32()? {
                let pair = (self.take_u64()?, self.take_u64()?);
                match (number == metadata_bin, chunk) {
                    (true, 1) => contig.counts = Some(pair),
                    (true, _) => {}
                    (false, _) => contig.chunks.push(pair),
                }
            }
            if number != metadata_bin {
                contig.bins.push(BinRange { number, first_offset, start, end: contig.chunks.len() as u32 });
            }
        }
        contig.bins.sort_by_key(|bin| bin.number);
        if !bins_have_offsets {
            let windows = self.take_u32()? as usize;
            let bytes = self.take_bytes(windows.checked_mul(8)?)?;
            contig.linear_index = bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        }
        Some(contig)
    }
}
