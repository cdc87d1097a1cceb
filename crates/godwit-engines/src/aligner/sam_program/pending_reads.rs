//! The reads without a response from the program.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::aligner::BlockHeader;

/// Blocks without a complete response, oldest first: eight bytes for each template. The program's read-ahead bounds it.
#[derive(Default)]
pub(super) struct PendingReads {
    blocks: Mutex<VecDeque<PendingBlock>>,
}

struct PendingBlock {
    header: BlockHeader,
    /// Fingerprint of each template's name.
    name_fingerprints: Vec<u64>,
    reads: u64,
    is_complete: bool,
}

/// The next expected output.
pub(super) enum PendingItem {
    /// The template with this fingerprint.
    Template(u64),
    /// The end of the block.
    BlockEnd {
        /// Number of reads of the block.
        reads: u64,
    },
    /// Nothing: no more reads were written so far.
    Nothing,
}

/// Returns the fingerprint of a name.
pub(super) fn name_fingerprint(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(name);
    hasher.finish()
}

impl PendingReads {
    fn lock(&self) -> MutexGuard<'_, VecDeque<PendingBlock>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn start_block(&self, header: BlockHeader) {
        self.lock().push_back(PendingBlock { header, name_fingerprints: Vec::new(), reads: 0, is_complete: false });
    }

    /// Adds reads; the caller must call it before the program receives them.
    pub(super) fn add_reads(&self, names: impl Iterator<Item = u64>, reads: u64) {
        if let Some(block) = self.lock().back_mut() {
            block.name_fingerprints.extend(names);
            block.reads += reads;
        }
    }

    pub(super) fn end_block(&self) {
        if let Some(block) = self.lock().back_mut() {
            block.is_complete = true;
        }
    }

    /// Returns the header of the oldest block.
    pub(super) fn oldest_header(&self) -> Option<BlockHeader> {
        self.lock().front().map(|block| block.header.clone())
    }

    /// Returns the expected output after `answered` templates of the oldest block.
    pub(super) fn item_after(&self, answered: usize) -> PendingItem {
        match self.lock().front() {
            Some(block) if answered < block.name_fingerprints.len() => {
                PendingItem::Template(block.name_fingerprints[answered])
            }
            Some(block) if block.is_complete => PendingItem::BlockEnd { reads: block.reads },
            _ => PendingItem::Nothing,
        }
    }

    /// Removes the oldest block.
    pub(super) fn remove_oldest_block(&self) {
        self.lock().pop_front();
    }
}
