//! Sorting of data that are larger than memory: a loser tree that merges sorted sources, and an external sorter of
//! fixed-size items.

mod external;
mod loser_tree;
mod sorted_items;
mod sorted_run;

pub use external::{ExternalSorter, Sortable};
pub use loser_tree::LoserTree;
pub use sorted_items::{SortedItems, SortedItemsIter};

pub(crate) use sorted_items::RangeBorders;

use std::io;

/// Append-only scratch storage with random reads. Any number of sorters share one file, so the number of open files
/// does not grow with the input.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::io::{self, Read};
/// use std::sync::Mutex;
///
/// use godwit_kernels::sort::Spill;
///
/// struct MemorySpill(Mutex<Vec<u8>>);
///
/// impl Spill for MemorySpill {
///     fn append(&self, bytes: &[u8]) -> io::Result<u64> {
///         let mut space = self.0.lock().unwrap();
///         space.extend_from_slice(bytes);
///         Ok((space.len() - bytes.len()) as u64)
///     }
///
///     fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
///         (&self.0.lock().unwrap()[offset as usize..]).read_exact(bytes)
///     }
/// }
///
/// let (spill, mut bytes) = (MemorySpill(Mutex::default()), [0; 2]);
/// spill.read_at(spill.append(b"ACGT")? + 1, &mut bytes)?;
/// assert_eq!(bytes, *b"CG");
/// # Ok(())
/// # }
/// ```
pub trait Spill: Send + Sync {
    /// Appends bytes to the storage and returns their offset.
    ///
    /// # Errors
    /// The I/O error of the storage device; [`io::ErrorKind::StorageFull`] if the disk is full.
    fn append(&self, bytes: &[u8]) -> io::Result<u64>;

    /// Fills `bytes` from an offset that [`Spill::append`] returned, or from a later offset within the same appended
    /// bytes.
    ///
    /// # Errors
    /// The I/O error of the storage device; [`io::ErrorKind::UnexpectedEof`] if fewer bytes are stored at this offset.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// Returns whether the sorted result is no longer needed. Sorters call this method periodically and stop if it
    /// returns true.
    fn is_cancelled(&self) -> bool {
        false
    }
}

#[cfg(test)]
pub(crate) mod tests {
    pub(crate) use super::external::tests::MemorySpill;
}
