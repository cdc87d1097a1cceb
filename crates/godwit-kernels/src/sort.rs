//! Sorting of data larger than memory: a loser tree to merge sorted sources, and an external sorter of fixed-size items.

mod external;
mod loser_tree;

pub use external::{ExternalSorter, Sortable, SortedItems, SortedItemsIter};
pub use loser_tree::LoserTree;

use std::io;

/// Append-only scratch space with random reads. One file serves any number of sorters, so the number of open files does not
/// grow with the input.
pub trait Spill: Send + Sync {
    /// Appends bytes and returns their offset.
    ///
    /// # Errors
    /// The I/O error of the device; a full disk is [`io::ErrorKind::StorageFull`].
    fn append(&self, bytes: &[u8]) -> io::Result<u64>;

    /// Fills `bytes` from an offset that [`Spill::append`] returned, or from within the bytes that it wrote.
    ///
    /// # Errors
    /// The I/O error of the device; fewer bytes than requested are [`io::ErrorKind::UnexpectedEof`].
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// Reports whether the result is no longer needed; sorters call this periodically and then stop.
    fn is_cancelled(&self) -> bool {
        false
    }
}

#[cfg(test)]
pub(crate) mod tests {
    pub(crate) use super::external::tests::MemorySpill;
}
