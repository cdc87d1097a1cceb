//! Determines which blocks each connection of a copy prefetches. Client and server compute the same blocks from the
//! list of entries.

use crate::file_listing::Entry;
use godwit_transfer_session::BlockRange;
use godwit_transfer_session::blake3_tree::{BLOCK_BYTES, block_byte_range, block_count};

/// Largest number of bytes of a file that each connection prefetches: about what is in flight while the list of entries
/// is requested.
const MAX_FILE_PREFETCH_BYTES: u64 = 4 << 20;
/// Number of bytes of the files of a directory that each connection prefetches. Listing a directory takes longer than a
/// file.
const DIRECTORY_PREFETCH_BYTES: u64 = 2 << 20;
/// In the division among the connections, a block counts as at least this many bytes.
const MIN_FILE_COST_BYTES: u64 = 4096;

/// Number of bytes that each connection prefetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PrefetchPlan {
    streams: u32,
    bytes_per_stream: u64,
}

impl PrefetchPlan {
    /// Returns the plan for a single file. Only part of the file is prefetched, so that fast connections can request
    /// more of it later.
    pub(crate) fn for_file(size_bytes: u64, streams: u32) -> Self {
        let blocks = block_count(size_bytes) / (4 * u64::from(streams.max(1)));
        Self { streams, bytes_per_stream: (blocks * BLOCK_BYTES).clamp(BLOCK_BYTES, MAX_FILE_PREFETCH_BYTES) }
    }

    /// Returns the plan for the files of a directory.
    pub(crate) fn for_directory(streams: u32) -> Self {
        Self { streams, bytes_per_stream: DIRECTORY_PREFETCH_BYTES }
    }

    /// Returns the plan for a list of entries: a single file or a directory.
    pub(crate) fn for_entries(entries: &[Entry], streams: u32) -> Self {
        match entries {
            [only] if only.is_file() => Self::for_file(only.size_bytes, streams),
            _ => Self::for_directory(streams),
        }
    }

    /// Returns the largest number of entries of which blocks are prefetched.
    pub(crate) fn max_entries(&self) -> usize {
        (self.bytes_per_stream * u64::from(self.streams) / MIN_FILE_COST_BYTES) as usize
    }

    /// Returns the blocks of these entries, in order, that the connection `stream` (0-based) prefetches. Each
    /// connection has an equal share of the bytes; a block belongs to the share in which it starts.
    pub(crate) fn stream_ranges(&self, entries: &[Entry], stream: u32) -> Vec<BlockRange> {
        let (mut at, mut spans) = (0, Vec::<BlockRange>::new());
        let (first, last) =
            (u64::from(stream) * self.bytes_per_stream, (u64::from(stream) + 1) * self.bytes_per_stream);
        for (file, entry) in (0..).zip(entries).filter(|(_, entry)| entry.is_file()) {
            for block in 0..block_count(entry.size_bytes) {
                if at >= last {
                    return spans;
                }
                if at >= first {
                    match spans.last_mut() {
                        Some(span) if span.file == file => span.end = block + 1,
                        _ => spans.push(BlockRange { file, start: block, end: block + 1 }),
                    }
                }
                let (start, end) = block_byte_range(block, entry.size_bytes);
                at += (end - start).max(MIN_FILE_COST_BYTES);
            }
        }
        spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(size_bytes: u64, is_directory: bool) -> Entry {
        let path = String::new();
        Entry { path, is_directory, size_bytes, mode: 0, modified_s: 0, modified_ns: 0, version: 0, link_target: None }
    }

    #[test]
    fn a_prefetched_file_is_divided_into_ranges_and_most_of_it_is_left_for_requests() {
        let entries = [entry(512 << 20, false)];
        let shares = PrefetchPlan::for_entries(&entries, 16);
        let blocks = MAX_FILE_PREFETCH_BYTES / BLOCK_BYTES;
        assert_eq!(shares.stream_ranges(&entries, 0), [BlockRange { file: 0, start: 0, end: blocks }]);
        assert_eq!(shares.stream_ranges(&entries, 15), [BlockRange { file: 0, start: 15 * blocks, end: 16 * blocks }]);
        let small = [entry(3 * BLOCK_BYTES - 5, false)];
        let shares = PrefetchPlan::for_entries(&small, 8);
        assert_eq!(shares.stream_ranges(&small, 2), [BlockRange { file: 0, start: 2, end: 3 }]);
        assert_eq!(shares.stream_ranges(&small, 3), []);
        assert_eq!(
            PrefetchPlan::for_entries(&[entry(0, false)], 8).stream_ranges(&[entry(0, false)], 0),
            [BlockRange { file: 0, start: 0, end: 1 }]
        );
    }

    #[test]
    fn files_of_a_directory_are_shared_in_their_order_each_block_once() {
        let mut entries = vec![entry(0, true)];
        entries.extend((0..400).map(|_| entry(100_000, false)));
        entries.insert(7, entry(5 << 20, false));
        let shares = PrefetchPlan::for_entries(&entries, 4);
        let spans: Vec<Vec<BlockRange>> = (0..4).map(|stream| shares.stream_ranges(&entries, stream)).collect();
        let mut blocks: Vec<(u32, u64)> = Vec::new();
        for span in spans.iter().flatten() {
            blocks.extend((span.start..span.end).map(|block| (span.file, block)));
        }
        assert!(blocks.is_sorted() && blocks.windows(2).all(|pair| pair[0] != pair[1]));
        assert_eq!(blocks[0], (1, 0));
        let bytes: u64 = blocks
            .iter()
            .map(|(file, block)| {
                let (start, end) = block_byte_range(*block, entries[*file as usize].size_bytes);
                end - start
            })
            .sum();
        assert!((8 << 20..9 << 20).contains(&bytes), "{bytes}");
        // The result does not depend on entries after the prefetched entries.
        assert_eq!(shares.stream_ranges(&entries[..100], 1), spans[1]);
    }
}
