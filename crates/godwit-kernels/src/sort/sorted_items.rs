//! The items of a finished sorter: merged from sorted runs, as a whole or in ranges that several threads read.

use std::cmp::Ordering;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::sorted_run::{RunReader, SortedRun, SpilledRun};
use super::{LoserTree, Sortable, Spill};
use crate::threads::for_each_index;

/// Number of ranges for each thread, so that threads with quick ranges take more of them.
const RANGES_PER_THREAD: usize = 4;
/// Minimum number of items of a range, on average.
const MIN_ITEMS_PER_RANGE: usize = 256;
/// Minimum memory of a thread that writes a range. Smaller memory would mean many small pieces in the spill.
const MIN_BYTES_PER_WRITING_THREAD: usize = 8 << 20;
/// Number of items for each range from which the borders of ranges are chosen.
const SAMPLES_PER_RANGE: usize = 32;
/// Maximum number of items that a thread writes to the spill at once.
const MAX_CHUNK_ITEMS: usize = 1 << 16;
/// Number of items read between two checks for cancellation.
pub(super) const ITEMS_PER_CANCELLATION_CHECK: u32 = 1 << 16;

/// All items of a finished [`ExternalSorter`](super::ExternalSorter) in sorted order. The items can be read more than
/// once.
pub struct SortedItems<T> {
    /// All items if they fit the memory budget: sorted runs of `memory_run_items` items each.
    pub(super) memory: Vec<T>,
    pub(super) memory_run_items: usize,
    /// All items if they do not fit the memory budget.
    pub(super) runs: Vec<SpilledRun>,
    pub(super) budget_items: usize,
    /// Maximum number of threads that read ranges at the same time.
    pub(super) threads: usize,
    pub(super) spill: Arc<dyn Spill>,
}

/// Keys at the borders of ranges, in order. Range 0 precedes the first key; range i starts at key i - 1.
pub(crate) struct RangeBorders<K>(Vec<K>);

impl<K> RangeBorders<K> {
    /// Returns the borders of one range that contains all items.
    pub(crate) fn none() -> Self {
        Self(Vec::new())
    }

    /// Converts the keys. The order of the new keys must be that of the keys.
    pub(crate) fn map<L>(self, convert: impl Fn(K) -> L) -> RangeBorders<L> {
        RangeBorders(self.0.into_iter().map(convert).collect())
    }

    /// Returns the number of ranges.
    pub(crate) fn range_count(&self) -> usize {
        self.0.len() + 1
    }

    fn start(&self, range: usize) -> Option<&K> {
        self.0.get(range.checked_sub(1)?)
    }

    fn end(&self, range: usize) -> Option<&K> {
        self.0.get(range)
    }
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
    /// let mut sorter = ExternalSorter::new(1 << 20, 1, spill);
    /// sorter.extend(&[5_000_u64, 999, 1_291])?;
    /// assert_eq!(sorter.finish()?.item_count(), 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn item_count(&self) -> usize {
        self.sorted_runs().into_iter().map(SortedRun::item_count).sum()
    }

    fn sorted_runs(&self) -> Vec<SortedRun<'_, T>> {
        match self.runs.is_empty() {
            true => self.memory.chunks(self.memory_run_items).map(SortedRun::Memory).collect(),
            false => self.runs.iter().map(|run| SortedRun::Spilled(run, &*self.spill)).collect(),
        }
    }

    /// Returns a reader of all items in sorted order.
    ///
    /// # Errors
    /// The I/O error of the spill.
    pub fn iter(&self) -> io::Result<SortedItemsIter<'_, T>> {
        let runs = self.sorted_runs().into_iter().map(|run| (run, 0..run.item_count())).collect();
        self.merge(runs, self.budget_items)
    }

    /// Returns items that divide all items into ranges of about equal size, several for each thread.
    ///
    /// # Errors
    /// The I/O error of the spill.
    pub(crate) fn range_borders(&self) -> io::Result<RangeBorders<T>> {
        let ranges = match self.threads {
            1 => 1,
            threads => (threads * RANGES_PER_THREAD).min(self.item_count() / MIN_ITEMS_PER_RANGE),
        };
        let step = (self.item_count() / (ranges.max(1) * SAMPLES_PER_RANGE)).max(1);
        let mut samples = Vec::new();
        if ranges > 1 {
            for run in self.sorted_runs() {
                for index in (step / 2..run.item_count()).step_by(step) {
                    samples.push(run.item(index)?);
                }
            }
        }
        samples.sort_unstable_by(T::order);
        let borders = (1..ranges).filter_map(|border| samples.get(border * samples.len() / ranges).copied());
        Ok(RangeBorders(borders.collect()))
    }

    /// Returns a reader of the items of one range. A range ends before the first item for which `is_before` returns false
    /// with the key of its end; `is_before` must agree with the order of the items. As many ranges as the sorter has
    /// threads may be read at the same time.
    ///
    /// # Errors
    /// The I/O error of the spill.
    pub(crate) fn range<K>(
        &self,
        borders: &RangeBorders<K>,
        range: usize,
        is_before: impl Fn(&T, &K) -> bool,
    ) -> io::Result<SortedItemsIter<'_, T>> {
        let index_of = |run: SortedRun<'_, T>, key: &K| run.partition_point(|item| is_before(item, key));
        let mut runs = Vec::new();
        for run in self.sorted_runs() {
            let start = borders.start(range).map_or(Ok(0), |key| index_of(run, key))?;
            let end = borders.end(range).map_or(Ok(run.item_count()), |key| index_of(run, key))?;
            runs.push((run, start..end));
        }
        self.merge(runs, self.budget_items / self.threads)
    }

    fn merge<'s>(
        &'s self,
        runs: Vec<(SortedRun<'s, T>, Range<usize>)>,
        budget_items: usize,
    ) -> io::Result<SortedItemsIter<'s, T>> {
        let buffer_items = (budget_items / runs.len().max(1)).max(1);
        let mut readers: Vec<_> = runs.into_iter().map(|(run, range)| run.read(range, buffer_items)).collect();
        let source = match readers.len() {
            1 => ItemSource::Single(readers.remove(0)),
            _ => ItemSource::merge(readers)?,
        };
        Ok(SortedItemsIter { source, spill: &*self.spill, items_until_check: ITEMS_PER_CANCELLATION_CHECK })
    }

    /// Writes all items to the spill as one run. With little memory, fewer threads read ranges.
    pub(super) fn write_run(&mut self) -> io::Result<SpilledRun> {
        let mut run = SpilledRun::default();
        if let [SortedRun::Memory(items)] = self.sorted_runs()[..] {
            run.append(items, &*self.spill)?;
            return Ok(run);
        }
        let most = self.budget_items * size_of::<T>() / MIN_BYTES_PER_WRITING_THREAD;
        self.threads = self.threads.min(most.max(1));
        let borders = self.range_borders()?;
        let parts =
            for_each_index(self.threads, borders.range_count(), || (), |(), range| self.write_range(&borders, range))?;
        parts.iter().for_each(|part| run.extend(part));
        Ok(run)
    }

    fn write_range(&self, borders: &RangeBorders<T>, range: usize) -> io::Result<SpilledRun> {
        let mut items = self.range(borders, range, |item, border| item.order(border).is_lt())?;
        // The buffers of all threads together take an eighth of the budget.
        let chunk_items = (self.budget_items / (8 * self.threads)).clamp(1, MAX_CHUNK_ITEMS);
        let mut chunk: Vec<T> = Vec::with_capacity(chunk_items);
        let mut run = SpilledRun::default();
        while let Some(item) = items.next()? {
            chunk.push(item);
            if chunk.len() == chunk_items {
                run.append(&chunk, &*self.spill)?;
                chunk.clear();
            }
        }
        run.append(&chunk, &*self.spill)?;
        Ok(run)
    }
}

/// A reader of items of a [`SortedItems`] in sorted order.
pub struct SortedItemsIter<'s, T> {
    source: ItemSource<'s, T>,
    spill: &'s dyn Spill,
    /// Number of items until the next call of [`Spill::is_cancelled`].
    items_until_check: u32,
}

enum ItemSource<'s, T> {
    /// The items are those of one run.
    Single(RunReader<'s, T>),
    /// The items are merged from several runs.
    Merge {
        /// Readers of the runs, one per run.
        readers: Vec<RunReader<'s, T>>,
        /// Tournament between the next items of the runs.
        tree: LoserTree<MergeKey<T>>,
    },
}

impl<'s, T: Sortable> ItemSource<'s, T> {
    fn merge(mut readers: Vec<RunReader<'s, T>>) -> io::Result<Self> {
        let mut keys = Vec::with_capacity(readers.len());
        for reader in &mut readers {
            keys.push(reader.next()?.map(MergeKey));
        }
        Ok(Self::Merge { readers, tree: LoserTree::new(keys) })
    }

    fn next(&mut self) -> io::Result<Option<T>> {
        match self {
            Self::Single(reader) => reader.next(),
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
