//! The reads that were sent to an external aligner and whose records it has not yet returned.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};

use parking_lot::Mutex;

use crate::aligner::BlockHeader;

/// Blocks of reads for which the aligner has not yet returned all records, oldest first. Memory: eight bytes per
/// template, for as many templates as the aligner reads ahead.
#[derive(Default)]
pub(super) struct PendingReads {
    blocks: Mutex<VecDeque<PendingBlock>>,
}

struct PendingBlock {
    header: BlockHeader,
    /// Fingerprints of the read names, one per template.
    name_fingerprints: Vec<u64>,
    reads: u64,
    is_complete: bool,
}

/// The output that the aligner is expected to write next.
pub(super) enum PendingItem {
    /// The records of the template whose name has this fingerprint.
    Template(u64),
    /// The end of the block: the records of all its templates were received.
    BlockEnd {
        /// Number of reads in the block.
        reads: u64,
    },
    /// Nothing, because no more reads were sent to the aligner so far.
    Nothing,
}

/// Returns the fingerprint of a read name.
pub(super) fn name_fingerprint(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(name);
    hasher.finish()
}

impl PendingReads {
    pub(super) fn start_block(&self, header: BlockHeader) {
        self.blocks.lock().push_back(PendingBlock {
            header,
            name_fingerprints: Vec::new(),
            reads: 0,
            is_complete: false,
        });
    }

    /// Adds reads to the newest block. Call this before sending the reads to the aligner.
    pub(super) fn add_reads(&self, names: impl Iterator<Item = u64>, reads: u64) {
        if let Some(block) = self.blocks.lock().back_mut() {
            block.name_fingerprints.extend(names);
            block.reads += reads;
        }
    }

    pub(super) fn end_block(&self) {
        if let Some(block) = self.blocks.lock().back_mut() {
            block.is_complete = true;
        }
    }

    /// Returns the header of the oldest pending block.
    pub(super) fn oldest_header(&self) -> Option<BlockHeader> {
        self.blocks.lock().front().map(|block| block.header.clone())
    }

    /// Returns the output that is expected after the records of the first `answered` templates of the oldest block.
    pub(super) fn item_after(&self, answered: usize) -> PendingItem {
        match self.blocks.lock().front() {
            Some(block) if answered < block.name_fingerprints.len() => {
                PendingItem::Template(block.name_fingerprints[answered])
            }
            Some(block) if block.is_complete => PendingItem::BlockEnd { reads: block.reads },
            _ => PendingItem::Nothing,
        }
    }

    /// Removes the oldest pending block.
    pub(super) fn remove_oldest_block(&self) {
        self.blocks.lock().pop_front();
    }
}
