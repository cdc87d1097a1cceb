//! The index of one contig: its bins with their chunks, and its linear index.

use std::collections::BTreeMap;

use godwit_io::bgzf::RecordOffsets;
use serde::{Deserialize, Serialize};

use super::{MIN_SHIFT, merge_chunks};

/// The value of a window of the linear index that has no records.
const UNSET_OFFSET: u64 = u64::MAX;
/// Minimum bytes of the compressed file between the first and last block of a bin. The chunks of a smaller bin move to
/// its parent bin (htslib 1.16 `HTS_MIN_MARKER_DIST`).
const MIN_BIN_BYTES: u64 = 0x10000;

/// A chunk of the file, given by the virtual offsets of its start and end.
pub(super) type Chunk = (u64, u64);

/// Returns the number of the first bin of a level. Level 0 is the single bin that covers the whole contig.
pub(super) fn first_bin(level: u32) -> u32 {
    ((1 << (3 * level)) - 1) / 7
}

/// Returns the number of the smallest bin that contains the interval `[start, end)`, 0-based (CSIv1, `reg2bin`).
pub(super) fn smallest_bin(start: i64, end: i64, depth: u32) -> u32 {
    let last = end - 1;
    for level in (1..=depth).rev() {
        let shift = MIN_SHIFT + 3 * (depth - level);
        if start >> shift == last >> shift {
            return first_bin(level) + (start >> shift) as u32;
        }
    }
    0
}

fn bin_level(bin: u32) -> u32 {
    (0..).take_while(|level| first_bin(level + 1) <= bin).count() as u32
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ContigIndex {
    bins: BTreeMap<u32, Vec<Chunk>>,
    /// For each window of 16,384 bases, the smallest virtual offset of a record that overlaps the window.
    #[serde(rename = "windows")]
    linear_index: Vec<u64>,
    #[serde(rename = "start")]
    start_offset: u64,
    /// Number of the bin to which the unfinished chunk belongs.
    #[serde(rename = "bin")]
    open_bin: u32,
    chunk_start: u64,
    /// Virtual offset of the end of the last record.
    #[serde(rename = "end")]
    end_offset: u64,
    #[serde(rename = "mapped")]
    mapped_records: u64,
    #[serde(rename = "unmapped")]
    unmapped_records: u64,
}

/// The index of a contig in the form in which it is written to a file.
pub(super) struct CompactContigIndex {
    pub(super) bins: BTreeMap<u32, Vec<Chunk>>,
    /// Linear index, in which a window without records has the offset of the next window with records.
    pub(super) linear_index: Vec<u64>,
    pub(super) start_offset: u64,
    pub(super) end_offset: u64,
    pub(super) mapped_records: u64,
    pub(super) unmapped_records: u64,
}

impl ContigIndex {
    /// Creates the index of a contig whose first record starts at `start_offset`.
    pub(super) fn new(start_offset: u64) -> Self {
        Self {
            bins: BTreeMap::new(),
            linear_index: Vec::new(),
            start_offset,
            open_bin: u32::MAX,
            chunk_start: start_offset,
            end_offset: start_offset,
            mapped_records: 0,
            unmapped_records: 0,
        }
    }

    pub(super) fn push(&mut self, bin: u32, start: i64, end: i64, mapped: bool, offsets: RecordOffsets) {
        if bin != self.open_bin {
            self.close_chunk(offsets.start);
            self.open_bin = bin;
            self.chunk_start = offsets.start;
        }
        let (first, last) = ((start >> MIN_SHIFT) as usize, ((end - 1) >> MIN_SHIFT) as usize);
        if last >= self.linear_index.len() {
            self.linear_index.resize(last + 1, UNSET_OFFSET);
        }
        for window in &mut self.linear_index[first..=last] {
            *window = (*window).min(offsets.start);
        }
        self.end_offset = offsets.end;
        if mapped {
            self.mapped_records += 1;
        } else {
            self.unmapped_records += 1;
        }
    }

    /// Ends the unfinished chunk at `end` and adds it to its bin.
    fn close_chunk(&mut self, end: u64) {
        if self.open_bin != u32::MAX {
            self.bins.entry(self.open_bin).or_default().push((self.chunk_start, end));
            self.open_bin = u32::MAX;
        }
    }

    /// Adds `compressed_bytes` to the position in the compressed file of all virtual offsets.
    pub(super) fn shift_offsets(&mut self, compressed_bytes: u64) {
        self.close_chunk(self.end_offset);
        let shift = compressed_bytes << 16;
        for (start, end) in self.bins.values_mut().flatten() {
            *start += shift;
            *end += shift;
        }
        self.linear_index.iter_mut().filter(|window| **window != UNSET_OFFSET).for_each(|window| *window += shift);
        self.start_offset += shift;
        self.chunk_start += shift;
        self.end_offset += shift;
    }

    /// Appends the index of the same contig for the next part of the file.
    pub(super) fn append(&mut self, next: Self) {
        self.close_chunk(self.end_offset);
        for (bin, chunks) in next.bins {
            self.bins.entry(bin).or_default().extend(chunks);
        }
        if next.linear_index.len() > self.linear_index.len() {
            self.linear_index.resize(next.linear_index.len(), UNSET_OFFSET);
        }
        for (window, other) in self.linear_index.iter_mut().zip(next.linear_index) {
            *window = (*window).min(other);
        }
        (self.open_bin, self.chunk_start, self.end_offset) = (next.open_bin, next.chunk_start, next.end_offset);
        self.mapped_records += next.mapped_records;
        self.unmapped_records += next.unmapped_records;
    }

    /// Returns the index with filled windows and merged bins, as htslib 1.16 finishes it (`update_loff`,
    /// `compress_binning`).
    pub(super) fn to_compact(&self, depth: u32) -> CompactContigIndex {
        let mut whole = self.clone();
        whole.close_chunk(self.end_offset);
        let mut next = UNSET_OFFSET;
        for window in whole.linear_index.iter_mut().rev() {
            if *window == UNSET_OFFSET {
                *window = next;
            }
            next = *window;
        }
        CompactContigIndex {
            bins: compact_bins(whole.bins, depth),
            linear_index: whole.linear_index,
            start_offset: self.start_offset,
            end_offset: self.end_offset,
            mapped_records: self.mapped_records,
            unmapped_records: self.unmapped_records,
        }
    }
}

/// Moves the chunks of small bins into their parent bins, if these exist, and joins chunks that share a block.
fn compact_bins(mut bins: BTreeMap<u32, Vec<Chunk>>, depth: u32) -> BTreeMap<u32, Vec<Chunk>> {
    for level in (1..=depth).rev() {
        let of_level: Vec<u32> = bins.range(first_bin(level)..).map(|(bin, _)| *bin).collect();
        for bin in of_level {
            let Some(chunks) = bins.get_mut(&bin) else { continue };
            chunks.sort_unstable();
            let end_block_offset = chunks[chunks.len() - 1].1 >> 16;
            if end_block_offset.saturating_sub(chunks[0].0 >> 16) >= MIN_BIN_BYTES {
                continue;
            }
            let chunks = std::mem::take(chunks);
            match bins.get_mut(&((bin - 1) >> 3)) {
                Some(parent) => {
                    parent.extend(chunks);
                    bins.remove(&bin);
                }
                None => {
                    bins.insert(bin, chunks);
                }
            }
        }
    }
    bins.into_iter().map(|(bin, chunks)| (bin, merge_chunks(chunks))).collect()
}

impl CompactContigIndex {
    /// Returns the `loff` field of a bin: the virtual offset in the linear index for the first window of the bin, or 0
    /// if the linear index ends before.
    pub(super) fn first_offset(&self, bin: u32, depth: u32) -> u64 {
        let level = bin_level(bin);
        let window = ((bin - first_bin(level)) as usize) << (3 * (depth - level));
        self.linear_index.get(window).copied().unwrap_or(0)
    }
}
