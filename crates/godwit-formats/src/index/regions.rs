//! An index as what it is for: where in the file the records of a region are.
//!
//! Flows in: `.bai`, `.csi` and `.tbi` files of any origin. Flows out: stretches of virtual offsets. Whether the index
//! belongs to the file can be seen here only in so far as it points behind its end.

use std::path::{Path, PathBuf};

use super::contig::first_bin;
use super::read::IndexReadError;
use super::{BAI_DEPTH, MIN_SHIFT};
use crate::bgzf::{BgzfError, Reader, Unpacked as _, VirtualOffset, open_text};

/// Most bytes of an index, unpacked. That of 300,000 contigs, or of a human genome at 1000x, is a tenth of it.
const MAX_INDEX_BYTES: usize = 1 << 30;
/// Offsets of tabix' head: how many bytes of names follow.
const TABIX_HEAD_BYTES: usize = 28;

/// A stretch of the file: virtual offsets of its first byte, and of the one behind its last.
pub type Chunk = (VirtualOffset, VirtualOffset);

/// An index in memory.
#[derive(Clone, Debug)]
pub struct RegionIndex {
    path: PathBuf,
    min_shift: u32,
    depth: u32,
    /// Whether bins have an offset of their own, as in CSI, and no windows.
    bins_have_offsets: bool,
    contigs: Vec<ContigRegions>,
    names: Option<Vec<String>>,
    without_contig: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct ContigRegions {
    /// By number.
    bins: Vec<Bin>,
    chunks: Vec<Chunk>,
    /// Per window of `1 << min_shift` bases, the first offset of a record that overlaps it.
    windows: Vec<VirtualOffset>,
    counts: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Bin {
    number: u32,
    first_offset: VirtualOffset,
    /// Its chunks: `chunks[start..end]`.
    start: u32,
    end: u32,
}

impl RegionIndex {
    /// Reads an index, told apart by content.
    ///
    /// # Errors
    /// [`IndexReadError`].
    pub fn read(path: &Path) -> Result<Self, IndexReadError> {
        Self::read_from(open_text(path, 1)?)
    }

    /// As [`RegionIndex::read`] for a file that is open and of which nothing was consumed.
    ///
    /// # Errors
    /// [`IndexReadError`].
    pub fn read_from(mut input: Reader) -> Result<Self, IndexReadError> {
        let path = input.path().to_owned();
        let mut bytes = Vec::new();
        match input.append_to(&mut bytes, MAX_INDEX_BYTES) {
            // What keeps it from being read is no damage.
            Err(error @ BgzfError::Io { .. }) => Err(error.into()),
            Err(_) => Err(IndexReadError::Damaged { path }),
            Ok(_) => Self::parse(&path, &bytes).ok_or(IndexReadError::Damaged { path }),
        }
    }

    fn parse(path: &Path, bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let mut index = Self {
            path: path.to_owned(),
            min_shift: MIN_SHIFT,
            depth: BAI_DEPTH,
            bins_have_offsets: false,
            contigs: Vec::new(),
            names: None,
            without_contig: None,
        };
        let contigs = match fields.take(4)? {
            b"BAI\x01" => fields.short()?,
            b"TBI\x01" => {
                let contigs = fields.short()?;
                let names_bytes = u32::from_le_bytes(*fields.0.get(TABIX_HEAD_BYTES - 4..)?.first_chunk()?) as usize;
                index.names = Some(names_in(fields.take(TABIX_HEAD_BYTES + names_bytes)?)?);
                contigs
            }
            b"CSI\x01" => {
                (index.min_shift, index.depth) = (fields.short()?, fields.short()?);
                // Deeper ones would not fit the 32 bits of a bin's number, nor wider ones a position (CSIv1).
                if index.depth > 9 || index.min_shift > 30 {
                    return None;
                }
                index.bins_have_offsets = true;
                let auxiliary = fields.short()? as usize;
                let auxiliary = fields.take(auxiliary)?;
                // That of a VCF has tabix' head there; that of BAM and BCF nothing.
                index.names = (auxiliary.len() >= TABIX_HEAD_BYTES).then(|| names_in(auxiliary)).flatten();
                fields.short()?
            }
            _ => return None,
        };
        for _ in 0..contigs {
            let contig = fields.contig(index.bins_have_offsets, first_bin(index.depth + 1) + 1)?;
            index.contigs.push(contig);
        }
        // Old ones end here.
        index.without_contig = fields.long();
        Some(index)
    }

    /// The index file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// For how many contigs it is.
    pub fn contigs(&self) -> usize {
        self.contigs.len()
    }

    /// Names of its contigs, where it has them: that of VCF does.
    pub fn names(&self) -> Option<&[String]> {
        self.names.as_deref()
    }

    /// Records of all contigs and of none, where the index counts them.
    pub fn records(&self) -> Option<u64> {
        let of_contigs = |contig: &ContigRegions| match contig.counts {
            Some((mapped, unmapped)) => mapped.checked_add(unmapped),
            None if contig.bins.is_empty() => Some(0),
            None => None,
        };
        let counted: Option<u64> =
            self.contigs.iter().map(of_contigs).try_fold(0u64, |sum, count| sum.checked_add(count?));
        // An index of VCF has no field of records without a contig, or has zero there.
        counted?.checked_add(self.without_contig.or(self.names.is_some().then_some(0))?)
    }

    /// Greatest offset in the compressed file that it points to.
    pub fn last_offset(&self) -> u64 {
        let ends = self.contigs.iter().flat_map(|contig| &contig.chunks).map(|(_, end)| end >> 16);
        ends.max().unwrap_or(0)
    }

    /// Where the last record ends that is on a contig; `None` where there is none. What has no contig lies behind it.
    pub fn end_of_contigs(&self) -> Option<VirtualOffset> {
        self.contigs.iter().flat_map(|contig| &contig.chunks).map(|chunk| chunk.1).max()
    }

    /// Where records that overlap `[start, end)` of a contig are, 0-based: stretches in ascending order, apart from each
    /// other, which hold all of them and others besides.
    pub fn chunks(&self, contig: usize, start: u32, end: u32) -> Vec<Chunk> {
        let Some(regions) = self.contigs.get(contig).filter(|_| start < end) else { return Vec::new() };
        let last = i64::from(end - 1).min((1 << (self.min_shift + 3 * self.depth)) - 1) as u64;
        let start = u64::from(start);
        if start > last {
            return Vec::new();
        }
        let (least, behind) = (self.least_offset(regions, start), self.offset_behind(regions, last));
        let mut found: Vec<Chunk> = Vec::new();
        for level in 0..=self.depth {
            let shift = self.min_shift + 3 * (self.depth - level);
            let first = first_bin(level);
            let (low, high) = (first + (start >> shift) as u32, first + (last >> shift) as u32);
            let from = regions.bins.partition_point(|bin| bin.number < low);
            for bin in regions.bins[from..].iter().take_while(|bin| bin.number <= high) {
                let chunks = &regions.chunks[bin.start as usize..bin.end as usize];
                let wanted = chunks.iter().filter(|chunk| chunk.1 > least && chunk.0 < behind);
                found.extend(wanted.map(|chunk| (chunk.0.max(least), chunk.1.min(behind))));
            }
        }
        merge_chunks(found)
    }

    /// No record that overlaps a base at or behind `start` lies before this.
    fn least_offset(&self, regions: &ContigRegions, start: u64) -> VirtualOffset {
        let window = (start >> self.min_shift) as usize;
        if !self.bins_have_offsets {
            return regions.windows.get(window).or(regions.windows.last()).copied().unwrap_or(0);
        }
        // As htslib 1.16 does: the bin of the window, else one to the left below the same parent, else the parent.
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

    /// No record that overlaps a base at or before `last` lies at this or behind: on each level, all records of the next bin to the
    /// right begin behind that base, and the file is sorted.
    fn offset_behind(&self, regions: &ContigRegions, last: u64) -> VirtualOffset {
        let of_level = |level: u32| {
            let shift = self.min_shift + 3 * (self.depth - level);
            let next = first_bin(level) + (last >> shift) as u32 + 1;
            let at = regions.bins.partition_point(|bin| bin.number < next);
            let bin = regions.bins.get(at).filter(|bin| bin.number < first_bin(level + 1))?;
            regions.chunks[bin.start as usize..bin.end as usize].iter().map(|chunk| chunk.0).min()
        };
        (0..=self.depth).filter_map(of_level).min().unwrap_or(VirtualOffset::MAX)
    }

    /// Offsets at which records begin, ascending: as many as cut the file from `first` to `bytes` into about `parts` of like
    /// size, without either end.
    pub fn cuts(&self, first: VirtualOffset, bytes: u64, parts: usize) -> Vec<VirtualOffset> {
        let mut starts: Vec<VirtualOffset> = self.contigs.iter().flat_map(ContigRegions::record_starts).collect();
        starts.retain(|start| *start > first);
        starts.sort_unstable();
        starts.dedup();
        let from = first >> 16;
        let wanted = |part: usize| from + (bytes.saturating_sub(from) as u128 * part as u128 / parts as u128) as u64;
        let mut cuts: Vec<VirtualOffset> = (1..parts)
            .filter_map(|part| starts.get(starts.partition_point(|start| start >> 16 < wanted(part))).copied())
            .collect();
        cuts.dedup();
        cuts
    }
}

impl ContigRegions {
    fn record_starts(&self) -> impl Iterator<Item = VirtualOffset> {
        let chunks = self.chunks.iter().map(|chunk| chunk.0);
        chunks.chain(self.windows.iter().copied()).filter(|start| *start > 0)
    }
}

/// Sorts stretches of one file, and joins those that overlap, touch or meet in one block, which is then unpacked once.
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

/// Names, each ended by NUL, behind tabix' numbers.
fn names_in(head: &[u8]) -> Option<Vec<String>> {
    let names = head.get(TABIX_HEAD_BYTES..)?;
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| String::from_utf8(name.to_vec()).ok()).collect()
}

/// Little-endian numbers at hand.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn short(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*number))
    }

    fn long(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    /// Vectors grow with what is there, not with what is claimed.
    fn contig(&mut self, bins_have_offsets: bool, metadata_bin: u32) -> Option<ContigRegions> {
        let mut contig = ContigRegions::default();
        for _ in 0..self.short()? {
            let number = self.short()?;
            let first_offset = if bins_have_offsets { self.long()? } else { 0 };
            let start = contig.chunks.len() as u32;
            for chunk in 0..self.short()? {
                let pair = (self.long()?, self.long()?);
                match (number == metadata_bin, chunk) {
                    (true, 1) => contig.counts = Some(pair),
                    (true, _) => {}
                    (false, _) => contig.chunks.push(pair),
                }
            }
            if number != metadata_bin {
                contig.bins.push(Bin { number, first_offset, start, end: contig.chunks.len() as u32 });
            }
        }
        contig.bins.sort_by_key(|bin| bin.number);
        if !bins_have_offsets {
            let windows = self.short()? as usize;
            let bytes = self.take(windows.checked_mul(8)?)?;
            contig.windows = bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        }
        Some(contig)
    }
}
