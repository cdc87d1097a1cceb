//! Read-ahead by the pattern of the reads of an open file. A stream gets a growing window; a lookup by an index gets the
//! bytes that it needs, and the block of its bytes if a recent lookup was in the same block.

use std::collections::VecDeque;
use std::ops::Range;

/// Largest window of a stream, blocks of 256 KiB: 16 MiB, about what a path of 1 Gbit/s and 100 ms holds.
const MAX_WINDOW_BLOCKS: u64 = 64;
/// Smallest window of a stream, blocks.
const MIN_WINDOW_BLOCKS: u64 = 2;
/// Distance, bytes, by which a read of a stream may differ from the end of the previous one. The kernel sends the reads
/// of its own read-ahead concurrently, and so not in order.
const REORDERING_BYTES: u64 = 1 << 20;

/// Number of recent lookups whose blocks are known.
const MAX_RECENT_LOOKUPS: usize = 64;

/// The blocks that a read needs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReadPlan {
    /// The read continues a stream: these blocks are requested in advance; the range may be empty.
    Stream(Range<u64>),
    /// The read is a lookup in blocks that are read again and again.
    Blocks,
    /// The read is the first lookup in its blocks.
    Bytes,
}

/// The read-ahead of an open file.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    /// End of the furthest read of the current stream, bytes.
    stream_end: u64,
    window_blocks: u64,
    /// End of the blocks that were requested in advance.
    requested_end: u64,
    /// First blocks of the recent lookups.
    lookups: VecDeque<u64>,
}

impl ReadAhead {
    /// Records a read of bytes `[start, end)`, which are in `blocks`. `block_count` is the number of blocks of the file;
    /// `max_window_blocks` bounds the window, so that the streams of all files fit into the cache.
    pub(crate) fn record_read(
        &mut self,
        bytes: Range<u64>,
        blocks: Range<u64>,
        block_count: u64,
        max_window_blocks: u64,
    ) -> ReadPlan {
        let is_stream = bytes.start <= self.stream_end.saturating_add(REORDERING_BYTES)
            && bytes.end.saturating_add(REORDERING_BYTES) >= self.stream_end;
        if !is_stream {
            (self.stream_end, self.window_blocks, self.requested_end) = (bytes.end, 0, 0);
            return self.record_lookup(blocks.start);
        }
        self.stream_end = self.stream_end.max(bytes.end);
        let max_window_blocks = max_window_blocks.clamp(MIN_WINDOW_BLOCKS, MAX_WINDOW_BLOCKS);
        self.window_blocks = self.window_blocks.min(max_window_blocks);
        // In a long stream, a quarter of the window is requested at a time, so several requests are running.
        if self.requested_end >= (blocks.end + self.window_blocks * 3 / 4).min(block_count) {
            return ReadPlan::Stream(0..0);
        }
        self.window_blocks = (self.window_blocks * 2).clamp(MIN_WINDOW_BLOCKS, max_window_blocks);
        let start = self.requested_end.max(blocks.start);
        self.requested_end = (blocks.end + self.window_blocks).min(block_count);
        ReadPlan::Stream(start..self.requested_end.max(start))
    }

    /// Reports whether the last read continued a stream.
    pub(crate) fn is_streaming(&self) -> bool {
        self.window_blocks > 0
    }

    fn record_lookup(&mut self, block: u64) -> ReadPlan {
        if self.lookups.contains(&block) {
            return ReadPlan::Blocks;
        }
        if self.lookups.len() == MAX_RECENT_LOOKUPS {
            self.lookups.pop_front();
        }
        self.lookups.push_back(block);
        ReadPlan::Bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 1 << 18;

    fn read(ahead: &mut ReadAhead, start: u64, size: u64) -> ReadPlan {
        let end = start + size;
        ahead.record_read(start..end, start / BLOCK..end.div_ceil(BLOCK), 1000, MAX_WINDOW_BLOCKS)
    }

    #[test]
    fn a_stream_requests_each_block_once_and_ahead_of_its_reads() {
        let mut ahead = ReadAhead::default();
        let mut requested = 0;
        for at in 0..4000 {
            let start = at * (BLOCK / 4);
            let ReadPlan::Stream(range) = read(&mut ahead, start, BLOCK / 4) else { panic!("{at} is in the stream") };
            assert!(range.is_empty() || range.start == requested, "{at}: {range:?}");
            requested = requested.max(range.end);
            assert!(requested > start / BLOCK || requested == 1000);
        }
        assert_eq!((requested, ahead.window_blocks), (1000, MAX_WINDOW_BLOCKS));
    }

    #[test]
    fn lookups_request_bytes_and_then_blocks_and_a_stream_after_them_grows_again() {
        let mut ahead = ReadAhead::default();
        read(&mut ahead, 0, 4096);
        for at in [900, 100, 500, 300] {
            assert_eq!(read(&mut ahead, at * BLOCK, 65536), ReadPlan::Bytes);
        }
        assert_eq!(read(&mut ahead, 900 * BLOCK + 65536, 65536), ReadPlan::Blocks);
        assert_eq!(read(&mut ahead, 300 * BLOCK, 65536), ReadPlan::Blocks);
        assert_eq!(read(&mut ahead, 300 * BLOCK + 65536, 65536), ReadPlan::Stream(300..303));
    }

    #[test]
    fn a_window_shrinks_to_its_share_of_the_cache() {
        let mut ahead = ReadAhead::default();
        for at in 0..40 {
            read(&mut ahead, at * BLOCK, BLOCK);
        }
        let end = ahead.requested_end;
        for block in 40..end + 4 {
            let bytes = block * BLOCK..(block + 1) * BLOCK;
            let ReadPlan::Stream(range) = ahead.record_read(bytes, block..block + 1, 1000, 1) else {
                panic!("{block} is in the stream")
            };
            assert!(range.is_empty() || range.end <= block + 1 + MIN_WINDOW_BLOCKS, "{block}: {range:?}");
        }
        assert!(ahead.is_streaming() && ahead.requested_end > end);
    }
}
