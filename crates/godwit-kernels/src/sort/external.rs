//! An external merge sort of fixed-size items within a memory budget, on several threads.

use std::cmp::Ordering;
use std::io;
use std::sync::Arc;

use bytemuck::Pod;

use super::sorted_run::SpilledRun;
use super::{SortedItems, Spill};

/// Maximum number of sorted runs that are merged at once. More runs are merged in several passes, so that read buffers
/// fit the memory budget.
const MAX_FAN_IN: usize = 64;
/// Minimum number of items that a sorter keeps in memory, so that a sorter with a tiny budget still makes progress.
const MIN_ITEMS: usize = 1024;
/// Minimum number of items that a thread sorts.
const MIN_ITEMS_PER_THREAD: usize = 512;

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
/// // A budget of 1 MiB; `spill` receives the items beyond it. Two threads sort.
/// let mut sorter = ExternalSorter::new(1 << 20, 2, spill);
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
    threads: usize,
    runs: Vec<SpilledRun>,
    spill: Arc<dyn Spill>,
}

impl<T: Sortable> ExternalSorter<T> {
    /// Creates a sorter that keeps at most `budget_bytes` of items in memory, but at least 1,024 items. `threads` is
    /// the number of threads that sort, at least one; the sorted items do not depend on it.
    pub fn new(budget_bytes: usize, threads: usize, spill: Arc<dyn Spill>) -> Self {
        // While the items are written to the spill, buffers take up to an eighth of their size.
        let budget_items = (budget_bytes / 9 * 8 / size_of::<T>()).max(MIN_ITEMS);
        Self { buffer: Vec::new(), budget_items, threads: threads.max(1), runs: Vec::new(), spill }
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
        let mut sorted = self.sorted_buffer();
        self.runs.push(sorted.write_run()?);
        self.buffer = std::mem::take(&mut sorted.memory);
        self.buffer.clear();
        Ok(())
    }

    /// Sorts the items in memory and takes them out of the buffer. Each thread sorts a run.
    fn sorted_buffer(&mut self) -> SortedItems<T> {
        let mut memory = std::mem::take(&mut self.buffer);
        let memory_runs = self.threads.min(memory.len() / MIN_ITEMS_PER_THREAD).max(1);
        let memory_run_items = memory.len().div_ceil(memory_runs).max(1);
        std::thread::scope(|scope| {
            let mut runs = memory.chunks_mut(memory_run_items);
            let first = runs.next();
            runs.for_each(|run| drop(scope.spawn(move || run.sort_unstable_by(T::order))));
            first.into_iter().for_each(|run| run.sort_unstable_by(T::order));
        });
        SortedItems { memory, memory_run_items, ..self.sorted_runs(Vec::new()) }
    }

    fn sorted_runs(&self, runs: Vec<SpilledRun>) -> SortedItems<T> {
        SortedItems {
            memory: Vec::new(),
            memory_run_items: 1,
            runs,
            budget_items: self.budget_items,
            threads: self.threads,
            spill: self.spill.clone(),
        }
    }

    /// Ends the input and returns all items in sorted order.
    ///
    /// # Errors
    /// The I/O error of the spill.
    pub fn finish(mut self) -> io::Result<SortedItems<T>> {
        if self.runs.is_empty() {
            return Ok(self.sorted_buffer());
        }
        if !self.buffer.is_empty() {
            self.spill_buffer()?;
        }
        self.buffer = Vec::new();
        while self.runs.len() > MAX_FAN_IN {
            // The smallest number of runs whose merge leaves no more than MAX_FAN_IN, but at most MAX_FAN_IN.
            let merged_runs = (self.runs.len() - MAX_FAN_IN + 1).min(MAX_FAN_IN);
            let group = self.runs.drain(..merged_runs).collect();
            let run = self.sorted_runs(group).write_run()?;
            self.runs.push(run);
        }
        let runs = std::mem::take(&mut self.runs);
        Ok(self.sorted_runs(runs))
    }
}

#[cfg(test)]
pub(crate) mod tests {

    use parking_lot::Mutex;
    use proptest::prelude::*;

    use super::super::SortedItemsIter;
    use super::super::sorted_items::ITEMS_PER_CANCELLATION_CHECK;
    use super::*;

    /// A spill in memory.
    #[derive(Default)]
    pub(crate) struct MemorySpill(Mutex<Vec<u8>>);

    impl Spill for MemorySpill {
        fn append(&self, bytes: &[u8]) -> io::Result<u64> {
            let mut space = self.0.lock();
            space.extend_from_slice(bytes);
            Ok((space.len() - bytes.len()) as u64)
        }

        fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
            let start = offset as usize;
            bytes.copy_from_slice(&self.0.lock()[start..start + bytes.len()]);
            Ok(())
        }
    }

    /// Sorts the items and reads them as a whole and by ranges.
    fn sort_with_budget(items: &[u64], budget_bytes: usize, threads: usize) -> Vec<u64> {
        let mut sorter = ExternalSorter::new(budget_bytes, threads, Arc::new(MemorySpill::default()));
        items.chunks(700).for_each(|chunk| sorter.extend(chunk).unwrap());
        let sorted = sorter.finish().unwrap();
        assert_eq!(sorted.item_count(), items.len());
        let read_all = |mut iter: SortedItemsIter<u64>| std::iter::from_fn(move || iter.next().unwrap()).collect();
        let all: Vec<u64> = read_all(sorted.iter().unwrap());
        // Items that differ only in their last two bits must be in the same range.
        let borders = sorted.range_borders().unwrap();
        let range = |index| read_all(sorted.range(&borders, index, |item, border| item >> 2 < border >> 2).unwrap());
        let ranges: Vec<Vec<u64>> = (0..borders.range_count()).map(range).collect();
        assert_eq!(ranges.concat(), all);
        let mut ends = ranges.iter().filter_map(|range| range.first().zip(range.last()));
        let mut previous = ends.next().map(|(_, last)| last);
        for (first, last) in ends {
            assert!(previous.is_some_and(|previous| previous >> 2 < first >> 2));
            previous = Some(last);
        }
        all
    }

    proptest! {
        #[test]
        fn any_budget_and_number_of_threads_sorts(
            items in prop::collection::vec(prop_oneof![any::<u64>(), 0..500_u64], 0..5000),
            budget_bytes in 0..60_000_usize,
            threads in 1..9_usize,
        ) {
            let mut expected = items.clone();
            expected.sort_unstable();
            prop_assert_eq!(sort_with_budget(&items, budget_bytes, threads), expected);
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
        let mut sorter = ExternalSorter::new(1 << 24, 1, Arc::new(CancelledSpill));
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
        assert_eq!(sort_with_budget(&items, 0, 1), expected);
        assert_eq!(sort_with_budget(&items, 0, 3), expected);
    }
}
