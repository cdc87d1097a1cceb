//! An external merge sort of fixed-size items within a memory budget.

use std::cmp::Ordering;
use std::io;
use std::sync::Arc;

use bytemuck::Pod;

use super::{LoserTree, Spill};

/// Maximum number of sorted runs that are merged at once. More runs are merged in several passes, so that read buffers
/// fit the memory budget.
const MAX_FAN_IN: usize = 64;
/// Minimum number of items that a sorter keeps in memory, so that a sorter with a tiny budget still makes progress.
const MIN_ITEMS: usize = 1024;

/// Number of items read between two checks for cancellation.
const ITEMS_PER_CANCELLATION_CHECK: u32 = 1 << 16;

/// A fixed-size item with a total order.
///
/// # Examples
///
/// ```
/// use std::cmp::Ordering;
///
/// use godwit_kernels::sort::Sortable;
///
/// #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
/// #[repr(C)]
/// struct ReadStart { contig: u32, position: u32 }
///
/// impl Sortable for ReadStart {
///     fn order(&self, other: &Self) -> Ordering {
///         (self.contig, self.position).cmp(&(other.contig, other.position))
///     }
/// }
///
/// let start = |contig, position| ReadStart { contig, position };
/// assert_eq!(start(0, 5_000).order(&start(1, 999)), Ordering::Less);
/// ```
pub trait Sortable: Pod + Send + Sync {
    /// Compares two items. The order should be total, because items that compare equal are returned in unspecified
    /// order.
    fn order(&self, other: &Self) -> Ordering;
}

impl Sortable for u64 {
    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }
}

impl Sortable for u128 {
    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }
}

/// A sorted run in the spill: a list of extents whose items are in order.
#[derive(Clone, Debug, Default)]
struct SortedRun {
    extents: Vec<Extent>,
}

/// A contiguous range of items in the spill.
#[derive(Clone, Copy, Debug)]
struct Extent {
    offset: u64,
    items: usize,
}

impl SortedRun {
    fn append<T: Sortable>(&mut self, items: &[T], spill: &dyn Spill) -> io::Result<()> {
        if !items.is_empty() {
            let offset = spill.append(bytemuck::cast_slice(items))?;
            self.extents.push(Extent { offset, items: items.len() });
        }
        Ok(())
    }

    fn item_count(&self) -> usize {
        self.extents.iter().map(|extent| extent.items).sum()
    }
}

/// A sorter that accepts items in any order. If the items exceed the memory budget, the sorter writes them to the spill
/// as sorted runs.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_kernels::sort::ExternalSorter;
/// # use std::{io, sync::Arc};
/// # use godwit_kernels::sort::Spill;
///
/// # struct NoSpill;
/// # impl Spill for NoSpill {
/// #     fn append(&self, _: &[u8]) -> io::Result<u64> {
/// #         Err(io::ErrorKind::Unsupported.into())
/// #     }
/// #     fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
/// #         Err(io::ErrorKind::Unsupported.into())
/// #     }
/// # }
/// # let spill = Arc::new(NoSpill);
/// // A budget of 1 MiB; `spill` receives the items beyond it.
/// let mut sorter = ExternalSorter::new(1 << 20, spill);
/// sorter.extend(&[5_000_u64, 999])?;
/// sorter.extend(&[1_291])?;
/// let sorted = sorter.finish()?;
/// let mut items = sorted.iter()?;
/// assert_eq!([items.next()?, items.next()?, items.next()?], [Some(999), Some(1_291), Some(5_000)]);
/// assert_eq!(items.next()?, None);
/// # Ok(())
/// # }
/// ```
pub struct ExternalSorter<T> {
    buffer: Vec<T>,
    budget_items: usize,
    runs: Vec<SortedRun>,
    spill: Arc<dyn Spill>,
}

impl<T: Sortable> ExternalSorter<T> {
    /// Creates a sorter that keeps at most `budget_bytes` of items in memory, but at least 1,024 items.
    pub fn new(budget_bytes: usize, spill: Arc<dyn Spill>) -> Self {
        let budget_items = (budget_bytes / size_of::<T>()).max(MIN_ITEMS);
        Self { buffer: Vec::new(), budget_items, runs: Vec::new(), spill }
    }

    /// Adds items to be sorted.
    ///
    /// # Errors
    /// The I/O error of the spill.
    pub fn extend(&mut self, mut items: &[T]) -> io::Result<()> {
        while !items.is_empty() {
            let room = (self.budget_items - self.buffer.len()).min(items.len());
            self.reserve(room);
            self.buffer.extend_from_slice(&items[..room]);
            items = &items[room..];
            if self.buffer.len() == self.budget_items {
                self.spill_buffer()?;
            }
        }
        Ok(())
    }

    /// Reserves space for `room` more items: doubles the buffer as a `Vec` would, but not beyond the budget.
    fn reserve(&mut self, room: usize) {
        let needed = self.buffer.len() + room;
        if needed > self.buffer.capacity() {
            let target = (self.buffer.capacity() * 2).clamp(needed, self.budget_items.max(needed));
            self.buffer.reserve_exact(target - self.buffer.len());
        }
    }

    fn spill_buffer(&mut self) -> io::Result<()> {
        self.buffer.sort_unstable_by(T::order);
        let mut run = SortedRun::default();
        run.append(&self.buffer, &*self.spill)?;
        self.runs.push(run);
        self.buffer.clear();
        Ok(())
    }

    /// Ends the input and returns all items in sorted order.
    ///
    /// # Errors
    /// The I/O error of the spill.
    pub fn finish(mut self) -> io::Result<SortedItems<T>> {
        if self.runs.is_empty() {
            self.buffer.sort_unstable_by(T::order);
        } else {
            if !self.buffer.is_empty() {
                self.spill_buffer()?;
            }
            self.buffer = Vec::new();
        }
        let mut sorted =
            SortedItems { memory: self.buffer, runs: self.runs, budget_items: self.budget_items, spill: self.spill };
        while sorted.runs.len() > MAX_FAN_IN {
            sorted.merge_first_runs()?;
        }
        Ok(sorted)
    }
}

/// All items of a finished [`ExternalSorter`] in sorted order. The items can be read more than once.
pub struct SortedItems<T> {
    memory: Vec<T>,
    runs: Vec<SortedRun>,
    budget_items: usize,
    spill: Arc<dyn Spill>,
}

impl<T: Sortable> SortedItems<T> {
    /// Returns the number of items.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_kernels::sort::ExternalSorter;
    /// # use std::{io, sync::Arc};
    /// # use godwit_kernels::sort::Spill;
    ///
    /// # struct NoSpill;
    /// # impl Spill for NoSpill {
    /// #     fn append(&self, _: &[u8]) -> io::Result<u64> {
    /// #         Err(io::ErrorKind::Unsupported.into())
    /// #     }
    /// #     fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
    /// #         Err(io::ErrorKind::Unsupported.into())
    /// #     }
    /// # }
    /// # let spill = Arc::new(NoSpill);
    /// let mut sorter = ExternalSorter::new(1 << 20, spill);
    /// sorter.extend(&[5_000_u64, 999, 1_291])?;
    /// assert_eq!(sorter.finish()?.item_count(), 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn item_count(&self) -> usize {
        self.memory.len() + self.runs.iter().map(SortedRun::item_count).sum::<usize>()
    }

    /// Returns a reader of all items in sorted order.
    ///
    /// # Errors
    /// The I/O error of the spill.
    pub fn iter(&self) -> io::Result<SortedItemsIter<'_, T>> {
        let spill = &*self.spill;
        let source = match self.runs.is_empty() {
            true => ItemSource::Memory(self.memory.iter()),
            false => ItemSource::merge(&self.runs, self.budget_items, spill)?,
        };
        Ok(SortedItemsIter { source, spill, items_until_check: ITEMS_PER_CANCELLATION_CHECK })
    }

    /// Merges the first [`MAX_FAN_IN`] runs into one run, which is appended to the list of runs.
    fn merge_first_runs(&mut self) -> io::Result<()> {
        let group: Vec<SortedRun> = self.runs.drain(..MAX_FAN_IN).collect();
        let mut run = SortedRun::default();
        let mut chunk: Vec<T> = Vec::with_capacity(self.budget_items.min(1 << 16));
        let spill = &*self.spill;
        let source = ItemSource::merge(&group, self.budget_items, spill)?;
        let mut merged = SortedItemsIter { source, spill, items_until_check: ITEMS_PER_CANCELLATION_CHECK };
        while let Some(item) = merged.next()? {
            chunk.push(item);
            if chunk.len() == chunk.capacity() {
                run.append(&chunk, &*self.spill)?;
                chunk.clear();
            }
        }
        run.append(&chunk, &*self.spill)?;
        self.runs.push(run);
        Ok(())
    }
}

/// A reader of the items of a [`SortedItems`] in sorted order.
pub struct SortedItemsIter<'s, T> {
    source: ItemSource<'s, T>,
    spill: &'s dyn Spill,
    /// Number of items until the next call of [`Spill::is_cancelled`].
    items_until_check: u32,
}

enum ItemSource<'s, T> {
    /// All items are in memory.
    Memory(std::slice::Iter<'s, T>),
    /// The items are merged from sorted runs in the spill.
    Merge {
        /// Readers of the runs, one per run.
        readers: Vec<RunReader<'s, T>>,
        /// Tournament between the next items of the runs.
        tree: LoserTree<MergeKey<T>>,
    },
}

impl<'s, T: Sortable> ItemSource<'s, T> {
    fn merge(runs: &'s [SortedRun], budget_items: usize, spill: &'s dyn Spill) -> io::Result<Self> {
        let buffer_items = (budget_items / runs.len().max(1)).max(1);
        let mut readers: Vec<_> = runs.iter().map(|run| RunReader::new(run, buffer_items, spill)).collect();
        let mut keys = Vec::with_capacity(readers.len());
        for reader in &mut readers {
            keys.push(reader.next()?.map(MergeKey));
        }
        Ok(Self::Merge { readers, tree: LoserTree::new(keys) })
    }

    fn next(&mut self) -> io::Result<Option<T>> {
        match self {
            Self::Memory(items) => Ok(items.next().copied()),
            Self::Merge { readers, tree } => {
                let Some(source) = tree.winner() else { return Ok(None) };
                let next = readers[source].next()?.map(MergeKey);
                Ok(tree.advance(next).map(|ordered| ordered.0))
            }
        }
    }
}

impl<T: Sortable> SortedItemsIter<'_, T> {
    /// Returns the next item, or `None` after the last item.
    ///
    /// # Errors
    /// The I/O error of the spill; [`io::ErrorKind::Interrupted`] after cancellation.
    #[expect(clippy::should_implement_trait, reason = "reading may fail, so this is no `Iterator`")]
    pub fn next(&mut self) -> io::Result<Option<T>> {
        self.items_until_check -= 1;
        if self.items_until_check == 0 {
            self.items_until_check = ITEMS_PER_CANCELLATION_CHECK;
            if self.spill.is_cancelled() {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted"));
            }
        }
        self.source.next()
    }
}

/// A wrapper of an item that implements [`Ord`] by [`Sortable::order`].
struct MergeKey<T>(T);

impl<T: Sortable> Ord for MergeKey<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.order(&other.0)
    }
}

impl<T: Sortable> PartialOrd for MergeKey<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Sortable> PartialEq for MergeKey<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T: Sortable> Eq for MergeKey<T> {}

/// A buffered reader of the items of one run.
struct RunReader<'s, T> {
    extents: std::slice::Iter<'s, Extent>,
    current: Extent,
    buffer: Vec<T>,
    next: usize,
    buffer_items: usize,
    spill: &'s dyn Spill,
}

impl<'s, T: Sortable> RunReader<'s, T> {
    fn new(run: &'s SortedRun, buffer_items: usize, spill: &'s dyn Spill) -> Self {
        let current = Extent { offset: 0, items: 0 };
        Self { extents: run.extents.iter(), current, buffer: Vec::new(), next: 0, buffer_items, spill }
    }

    fn next(&mut self) -> io::Result<Option<T>> {
        if self.next == self.buffer.len() && !self.refill()? {
            return Ok(None);
        }
        let item = self.buffer[self.next];
        self.next += 1;
        Ok(Some(item))
    }

    fn refill(&mut self) -> io::Result<bool> {
        while self.current.items == 0 {
            match self.extents.next() {
                Some(extent) => self.current = *extent,
                None => return Ok(false),
            }
        }
        let items = self.buffer_items.min(self.current.items);
        self.buffer.resize(items, T::zeroed());
        self.spill.read_at(self.current.offset, bytemuck::cast_slice_mut(&mut self.buffer))?;
        self.current.offset += (items * size_of::<T>()) as u64;
        self.current.items -= items;
        self.next = 0;
        Ok(true)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Mutex;

    use proptest::prelude::*;

    use super::*;

    /// A spill in memory.
    #[derive(Default)]
    pub(crate) struct MemorySpill(Mutex<Vec<u8>>);

    impl Spill for MemorySpill {
        fn append(&self, bytes: &[u8]) -> io::Result<u64> {
            let mut space = self.0.lock().unwrap();
            space.extend_from_slice(bytes);
            Ok((space.len() - bytes.len()) as u64)
        }

        fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
            let start = offset as usize;
            bytes.copy_from_slice(&self.0.lock().unwrap()[start..start + bytes.len()]);
            Ok(())
        }
    }

    fn sort_with_budget(items: &[u64], budget_bytes: usize) -> Vec<u64> {
        let mut sorter = ExternalSorter::new(budget_bytes, Arc::new(MemorySpill::default()));
        items.chunks(700).for_each(|chunk| sorter.extend(chunk).unwrap());
        let sorted = sorter.finish().unwrap();
        assert_eq!(sorted.item_count(), items.len());
        let mut iter = sorted.iter().unwrap();
        std::iter::from_fn(|| iter.next().unwrap()).collect()
    }

    proptest! {
        #[test]
        fn spilled_and_unspilled_items_come_out_in_order(items in prop::collection::vec(any::<u64>(), 0..5000)) {
            let mut expected = items.clone();
            expected.sort_unstable();
            prop_assert_eq!(sort_with_budget(&items, 0), expected.clone());
            prop_assert_eq!(sort_with_budget(&items, 1 << 20), expected);
        }
    }

    #[test]
    fn a_cancelled_sort_stops_while_it_is_read() {
        struct CancelledSpill;
        impl Spill for CancelledSpill {
            fn append(&self, _: &[u8]) -> io::Result<u64> {
                Ok(0)
            }
            fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
                Ok(())
            }
            fn is_cancelled(&self) -> bool {
                true
            }
        }
        let mut sorter = ExternalSorter::new(1 << 24, Arc::new(CancelledSpill));
        sorter.extend(&(0..u64::from(ITEMS_PER_CANCELLATION_CHECK)).collect::<Vec<_>>()).unwrap();
        let sorted = sorter.finish().unwrap();
        let mut iter = sorted.iter().unwrap();
        let failure = std::iter::repeat_with(|| iter.next()).find_map(Result::err);
        assert_eq!(failure.map(|error| error.kind()), Some(io::ErrorKind::Interrupted));
    }

    #[test]
    fn more_runs_than_the_fan_in_are_merged_in_passes() {
        let items: Vec<u64> =
            (0..(MAX_FAN_IN * MIN_ITEMS * 2 + 5) as u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        let mut expected = items.clone();
        expected.sort_unstable();
        assert_eq!(sort_with_budget(&items, 0), expected);
    }
}
