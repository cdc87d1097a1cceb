//! The reads a program still has to answer.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::aligner::BlockHeader;

/// Blocks that were fed and not yet answered, oldest first: eight bytes for each template. The program bounds it by how far
/// it reads ahead.
#[derive(Default)]
pub(super) struct Expected {
    blocks: Mutex<VecDeque<ExpectedBlock>>,
}

struct ExpectedBlock {
    header: BlockHeader,
    /// A fingerprint of each template's name.
    names: Vec<u64>,
    reads: u64,
    closed: bool,
}

/// What is due next.
pub(super) enum Due {
    /// The template of that fingerprint.
    Template(u64),
    /// The end of the block.
    End {
        /// Reads of the block.
        reads: u64,
    },
    /// Nothing that was fed so far.
    Nothing,
}

/// A fingerprint of a name.
pub(super) fn fingerprint(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(name);
    hasher.finish()
}

impl Expected {
    fn lock(&self) -> MutexGuard<'_, VecDeque<ExpectedBlock>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn start_block(&self, header: BlockHeader) {
        self.lock().push_back(ExpectedBlock { header, names: Vec::new(), reads: 0, closed: false });
    }

    /// Must come before the program gets the reads.
    pub(super) fn add(&self, names: impl Iterator<Item = u64>, reads: u64) {
        if let Some(block) = self.lock().back_mut() {
            block.names.extend(names);
            block.reads += reads;
        }
    }

    pub(super) fn end_block(&self) {
        if let Some(block) = self.lock().back_mut() {
            block.closed = true;
        }
    }

    /// The oldest block.
    pub(super) fn block(&self) -> Option<BlockHeader> {
        self.lock().front().map(|block| block.header.clone())
    }

    /// What is due after `answered` templates of the oldest block.
    pub(super) fn after(&self, answered: usize) -> Due {
        match self.lock().front() {
            Some(block) if answered < block.names.len() => Due::Template(block.names[answered]),
            Some(block) if block.closed => Due::End { reads: block.reads },
            _ => Due::Nothing,
        }
    }

    /// Lets go of the oldest block.
    pub(super) fn forget_block(&self) {
        self.lock().pop_front();
    }
}
