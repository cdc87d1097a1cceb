//! The index of one contig: bins of chunks, and the linear index.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::MIN_SHIFT;
use crate::bgzf::RecordPlace;

/// A window of the linear index without records.
const UNSET: u64 = u64::MAX;
/// A bin whose chunks lie closer together than this, in the compressed file, joins its parent (htslib 1.16
/// `HTS_MIN_MARKER_DIST`).
const MIN_BIN_BYTES: u64 = 0x10000;

/// A stretch of the file: virtual offsets of its start and end.
pub(super) type Chunk = (u64, u64);

/// First bin of a level; level 0 is the one bin that spans everything.
pub(super) fn first_bin(level: u32) -> u32 {
    ((1 << (3 * level)) - 1) / 7
}

/// The smallest bin that holds `[start, end)`, 0-based (CSIv1, `reg2bin`).
pub(super) fn bin_of(start: i64, end: i64, depth: u32) -> u32 {
    let last = end - 1;
    for level in (1..=depth).rev() {
        let shift = MIN_SHIFT + 3 * (depth - level);
        if start >> shift == last >> shift {
            return first_bin(level) + (start >> shift) as u32;
        }
    }
    0
}

fn level_of(bin: u32) -> u32 {
    (0..).take_while(|level| first_bin(level + 1) <= bin).count() as u32
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ContigIndex {
    bins: BTreeMap<u32, Vec<Chunk>>,
    /// Per window of 16,384 bases the smallest offset of a record that overlaps it.
    windows: Vec<u64>,
    start: u64,
    /// The chunk in hand: its bin and start.
    bin: u32,
    chunk_start: u64,
    /// Where the last record ends.
    end: u64,
    mapped: u64,
    unmapped: u64,
}

/// What is written of a contig.
pub(super) struct FinishedContig {
    pub(super) bins: BTreeMap<u32, Vec<Chunk>>,
    /// Windows without records have the offset of the next one that has.
    pub(super) windows: Vec<u64>,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) mapped: u64,
    pub(super) unmapped: u64,
}

impl ContigIndex {
    /// The index of a contig whose first record starts here.
    pub(super) fn new(start: u64) -> Self {
        Self {
            bins: BTreeMap::new(),
            windows: Vec::new(),
            start,
            bin: u32::MAX,
            chunk_start: start,
            end: start,
            mapped: 0,
            unmapped: 0,
        }
    }

    pub(super) fn push(&mut self, bin: u32, start: i64, end: i64, mapped: bool, place: RecordPlace) {
        if bin != self.bin {
            self.close_chunk(place.before);
            self.bin = bin;
            self.chunk_start = place.before;
        }
        let (first, last) = ((start >> MIN_SHIFT) as usize, ((end - 1) >> MIN_SHIFT) as usize);
        if last >= self.windows.len() {
            self.windows.resize(last + 1, UNSET);
        }
        for window in &mut self.windows[first..=last] {
            *window = (*window).min(place.before);
        }
        self.end = place.after;
        if mapped {
            self.mapped += 1;
        } else {
            self.unmapped += 1;
        }
    }

    /// Files the chunk in hand under its bin.
    fn close_chunk(&mut self, end: u64) {
        if self.bin != u32::MAX {
            self.bins.entry(self.bin).or_default().push((self.chunk_start, end));
            self.bin = u32::MAX;
        }
    }

    /// Moves all offsets by that many bytes of the compressed file.
    pub(super) fn shift(&mut self, compressed_bytes: u64) {
        self.close_chunk(self.end);
        let shift = compressed_bytes << 16;
        for (start, end) in self.bins.values_mut().flatten() {
            *start += shift;
            *end += shift;
        }
        self.windows.iter_mut().filter(|window| **window != UNSET).for_each(|window| *window += shift);
        self.start += shift;
        self.chunk_start += shift;
        self.end += shift;
    }

    /// Adds what follows in the file.
    pub(super) fn append(&mut self, next: Self) {
        self.close_chunk(self.end);
        for (bin, chunks) in next.bins {
            self.bins.entry(bin).or_default().extend(chunks);
        }
        if next.windows.len() > self.windows.len() {
            self.windows.resize(next.windows.len(), UNSET);
        }
        for (window, other) in self.windows.iter_mut().zip(next.windows) {
            *window = (*window).min(other);
        }
        (self.bin, self.chunk_start, self.end) = (next.bin, next.chunk_start, next.end);
        self.mapped += next.mapped;
        self.unmapped += next.unmapped;
    }

    /// Fills and shrinks as htslib 1.16 does at the end (`update_loff`, `compress_binning`).
    pub(super) fn finish(&self, depth: u32) -> FinishedContig {
        let mut whole = self.clone();
        whole.close_chunk(self.end);
        let mut next = UNSET;
        for window in whole.windows.iter_mut().rev() {
            if *window == UNSET {
                *window = next;
            }
            next = *window;
        }
        FinishedContig {
            bins: compress(whole.bins, depth),
            windows: whole.windows,
            start: self.start,
            end: self.end,
            mapped: self.mapped,
            unmapped: self.unmapped,
        }
    }
}

/// Moves the chunks of small bins into their parents where those exist, and joins chunks that share a block.
fn compress(mut bins: BTreeMap<u32, Vec<Chunk>>, depth: u32) -> BTreeMap<u32, Vec<Chunk>> {
    for level in (1..=depth).rev() {
        let of_level: Vec<u32> = bins.range(first_bin(level)..).map(|(bin, _)| *bin).collect();
        for bin in of_level {
            let Some(chunks) = bins.get_mut(&bin) else { continue };
            chunks.sort_unstable();
            let span = chunks[chunks.len() - 1].1 >> 16;
            if span.saturating_sub(chunks[0].0 >> 16) >= MIN_BIN_BYTES {
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
    for chunks in bins.values_mut() {
        chunks.sort_unstable();
        chunks.dedup_by(|next, chunk| {
            let joined = chunk.1 >> 16 >= next.0 >> 16;
            if joined {
                chunk.1 = chunk.1.max(next.1);
            }
            joined
        });
    }
    bins
}

impl FinishedContig {
    /// `loff` of a bin: the offset of its first window, 0 where there is none.
    pub(super) fn first_offset(&self, bin: u32, depth: u32) -> u64 {
        let level = level_of(bin);
        let window = ((bin - first_bin(level)) as usize) << (3 * (depth - level));
        self.windows.get(window).copied().unwrap_or(0)
    }
}
