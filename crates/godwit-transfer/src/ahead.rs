//! Which blocks each connection of a copy is asked for before it is known what there is to be copied. Both ends know it by themselves, from what is listed.

use crate::manifest::Entry;
use crate::session::Span;
use crate::tree::{BLOCK_BYTES, block_count, block_span};

/// Bytes of a file for each connection, at most: what is on its way while it is found out what there is.
const OF_A_FILE_BYTES: u64 = 4 << 20;
/// The same of the files of a directory, whose list takes its time.
const OF_A_DIRECTORY_BYTES: u64 = 2 << 20;
/// What a file counts at least.
const FILE_BYTES: u64 = 4096;

/// Blocks that each of some connections is asked for ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    streams: u32,
    bytes: u64,
}

impl Shares {
    /// Of one file: a part of it only, so that faster connections can take more of the rest.
    pub(crate) fn of_file(size_bytes: u64, streams: u32) -> Self {
        let blocks = block_count(size_bytes) / (4 * u64::from(streams.max(1)));
        Self { streams, bytes: (blocks * BLOCK_BYTES).clamp(BLOCK_BYTES, OF_A_FILE_BYTES) }
    }

    /// Of the files of a directory.
    pub(crate) fn of_directory(streams: u32) -> Self {
        Self { streams, bytes: OF_A_DIRECTORY_BYTES }
    }

    /// Of what is listed.
    pub(crate) fn of(entries: &[Entry], streams: u32) -> Self {
        match entries {
            [only] if only.is_file() => Self::of_file(only.size_bytes, streams),
            _ => Self::of_directory(streams),
        }
    }

    /// Entries that all connections together are asked for blocks of, at most.
    pub(crate) fn entries_at_most(&self) -> usize {
        (self.bytes * u64::from(self.streams) / FILE_BYTES) as usize
    }

    /// What a connection, 0-based, is asked for of these entries, in their order. A block is of the connection in whose share it begins.
    pub(crate) fn spans(&self, entries: &[Entry], stream: u32) -> Vec<Span> {
        let (mut at, mut spans) = (0, Vec::<Span>::new());
        let (first, last) = (u64::from(stream) * self.bytes, (u64::from(stream) + 1) * self.bytes);
        for (file, entry) in (0..).zip(entries).filter(|(_, entry)| entry.is_file()) {
            for block in 0..block_count(entry.size_bytes) {
                if at >= last {
                    return spans;
                }
                if at >= first {
                    match spans.last_mut() {
                        Some(span) if span.file == file => span.end = block + 1,
                        _ => spans.push(Span { file, start: block, end: block + 1 }),
                    }
                }
                let (start, end) = block_span(block, entry.size_bytes);
                at += (end - start).max(FILE_BYTES);
            }
        }
        spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(size_bytes: u64, directory: bool) -> Entry {
        let path = String::new();
        Entry { path, directory, size_bytes, mode: 0, modified_s: 0, modified_ns: 0, version: 0, link: None }
    }

    #[test]
    fn a_file_is_shared_in_stretches_and_most_of_it_is_left_for_later() {
        let entries = [entry(512 << 20, false)];
        let shares = Shares::of(&entries, 16);
        let blocks = OF_A_FILE_BYTES / BLOCK_BYTES;
        assert_eq!(shares.spans(&entries, 0), [Span { file: 0, start: 0, end: blocks }]);
        assert_eq!(shares.spans(&entries, 15), [Span { file: 0, start: 15 * blocks, end: 16 * blocks }]);
        let small = [entry(3 * BLOCK_BYTES - 5, false)];
        let shares = Shares::of(&small, 8);
        assert_eq!(shares.spans(&small, 2), [Span { file: 0, start: 2, end: 3 }]);
        assert_eq!(shares.spans(&small, 3), []);
        assert_eq!(
            Shares::of(&[entry(0, false)], 8).spans(&[entry(0, false)], 0),
            [Span { file: 0, start: 0, end: 1 }]
        );
    }

    #[test]
    fn files_of_a_directory_are_shared_in_their_order_each_block_once() {
        let mut entries = vec![entry(0, true)];
        entries.extend((0..400).map(|_| entry(100_000, false)));
        entries.insert(7, entry(5 << 20, false));
        let shares = Shares::of(&entries, 4);
        let spans: Vec<Vec<Span>> = (0..4).map(|stream| shares.spans(&entries, stream)).collect();
        let mut blocks: Vec<(u32, u64)> = Vec::new();
        for span in spans.iter().flatten() {
            blocks.extend((span.start..span.end).map(|block| (span.file, block)));
        }
        assert!(blocks.is_sorted() && blocks.windows(2).all(|pair| pair[0] != pair[1]));
        assert_eq!(blocks[0], (1, 0));
        let bytes: u64 = blocks
            .iter()
            .map(|(file, block)| {
                let (start, end) = block_span(*block, entries[*file as usize].size_bytes);
                end - start
            })
            .sum();
        assert!((8 << 20..9 << 20).contains(&bytes), "{bytes}");
        // Entries behind those that are shared change nothing.
        assert_eq!(shares.spans(&entries[..100], 1), spans[1]);
    }
}
