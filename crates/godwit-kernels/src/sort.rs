//! Ordering more than fits in memory: a loser tree to merge sorted sources, and an external sorter of fixed-size items.

mod external;
mod loser_tree;

pub use external::{ExternalSorter, Sortable, Sorted, SortedIter};
pub use loser_tree::LoserTree;

use std::io;

/// Scratch space that grows at its end and is read anywhere. One file serves any number of sorters, so the number of
/// open files does not grow with the input.
pub trait Spill: Send + Sync {
    /// Appends bytes and returns their offset.
    ///
    /// # Errors
    /// Whatever the device reports; a full disk is [`io::ErrorKind::StorageFull`].
    fn append(&self, bytes: &[u8]) -> io::Result<u64>;

    /// Fills `bytes` from an offset that [`Spill::append`] returned, or from within what it wrote.
    ///
    /// # Errors
    /// Whatever the device reports; fewer bytes than asked for is [`io::ErrorKind::UnexpectedEof`].
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// Whether nobody waits for the outcome any more; whoever sorts looks now and then and gives up.
    fn is_abandoned(&self) -> bool {
        false
    }
}

#[cfg(test)]
pub(crate) mod tests {
    pub(crate) use super::external::tests::MemorySpill;
}
