//! Read-ahead by the pattern of the reads of an open file. A stream gets a growing window; a lookup by an index gets the
//! blocks that it needs.

use std::ops::Range;

/// Largest window of a stream, blocks of 256 KiB: 16 MiB, about what a path of 1 Gbit/s and 100 ms holds.
const MAX_WINDOW_BLOCKS: u64 = 64;
/// Smallest window of a stream, blocks.
const MIN_WINDOW_BLOCKS: u64 = 2;
/// Distance, bytes, by which a read of a stream may differ from the end of the previous one. The kernel sends the reads
/// of its own read-ahead concurrently, and so not in order.
const REORDERING_BYTES: u64 = 1 << 20;

/// The read-ahead of an open file.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    /// End of the furthest read of the current stream, bytes.
    stream_end: u64,
    window_blocks: u64,
    /// End of the blocks that were requested in advance.
    requested_end: u64,
}

impl ReadAhead {
    /// Records a read of bytes `[start, end)`, which are in `blocks`. Returns the blocks to be requested in advance; the
    /// range may be empty. `block_count` is the number of blocks of the file.
    pub(crate) fn record_read(&mut self, bytes: Range<u64>, blocks: Range<u64>, block_count: u64) -> Range<u64> {
        let is_stream = bytes.start <= self.stream_end.saturating_add(REORDERING_BYTES)
            && bytes.end.saturating_add(REORDERING_BYTES) >= self.stream_end;
        if !is_stream {
            *self = Self { stream_end: bytes.end, window_blocks: 0, requested_end: 0 };
            return 0..0;
        }
        self.stream_end = self.stream_end.max(bytes.end);
        if self.requested_end >= (blocks.end + self.window_blocks / 2).min(block_count) {
            return 0..0;
        }
        self.window_blocks = (self.window_blocks * 2).clamp(MIN_WINDOW_BLOCKS, MAX_WINDOW_BLOCKS);
        let start = self.requested_end.max(blocks.start);
        self.requested_end = (blocks.end + self.window_blocks).min(block_count);
        start..self.requested_end.max(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 1 << 18;

    fn read(ahead: &mut ReadAhead, start: u64, size: u64) -> Range<u64> {
        let end = start + size;
        ahead.record_read(start..end, start / BLOCK..end.div_ceil(BLOCK), 1000)
    }

    #[test]
    fn a_stream_requests_each_block_once_and_ahead_of_its_reads() {
        let mut ahead = ReadAhead::default();
        let mut requested = 0;
        for at in 0..4000 {
            let start = at * (BLOCK / 4);
            let range = read(&mut ahead, start, BLOCK / 4);
            assert!(range.is_empty() || range.start == requested, "{at}: {range:?}");
            requested = requested.max(range.end);
            assert!(requested > start / BLOCK || requested == 1000);
        }
        assert_eq!((requested, ahead.window_blocks), (1000, MAX_WINDOW_BLOCKS));
    }

    #[test]
    fn lookups_request_nothing_in_advance_and_a_stream_after_them_grows_again() {
        let mut ahead = ReadAhead::default();
        read(&mut ahead, 0, 4096);
        for at in [900, 100, 500, 300] {
            assert!(read(&mut ahead, at * BLOCK, 65536).is_empty());
        }
        assert_eq!(read(&mut ahead, 300 * BLOCK + 65536, 65536), 300..303);
    }
}
