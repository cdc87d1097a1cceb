//! Sorted runs of items, in memory or in the spill, and readers of their items.

use std::io;
use std::ops::Range;

use super::{Sortable, Spill};

/// A sorted run in the spill: a list of extents whose items are in order.
#[derive(Debug, Default)]
pub(super) struct SpilledRun {
    extents: Vec<Extent>,
}

/// A contiguous range of items in the spill.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// Offset of the first item in the spill, bytes.
    offset: u64,
    /// Number of items of the run that precede this extent.
    items_before: usize,
    items: usize,
}

impl SpilledRun {
    /// Writes the next items of the run to the spill.
    pub(super) fn append<T: Sortable>(&mut self, items: &[T], spill: &dyn Spill) -> io::Result<()> {
        if !items.is_empty() {
            let offset = spill.append(bytemuck::cast_slice(items))?;
            self.extents.push(Extent { offset, items_before: self.item_count(), items: items.len() });
        }
        Ok(())
    }

    /// Appends a run whose items follow those of this run.
    pub(super) fn extend(&mut self, next: &Self) {
        let before = self.item_count();
        let moved = |extent: &Extent| Extent { items_before: before + extent.items_before, ..*extent };
        self.extents.extend(next.extents.iter().map(moved));
    }

    fn item_count(&self) -> usize {
        self.extents.last().map_or(0, |extent| extent.items_before + extent.items)
    }

    /// Returns the offset of an item in the spill, bytes, and the number of items from it to the end of its extent.
    fn locate<T>(&self, index: usize) -> (u64, usize) {
        let after = self.extents.partition_point(|extent| extent.items_before <= index);
        let extent = self.extents[after - 1];
        let skipped = index - extent.items_before;
        (extent.offset + (skipped * size_of::<T>()) as u64, extent.items - skipped)
    }
}

/// A sorted run.
#[derive(Clone, Copy)]
pub(super) enum SortedRun<'s, T> {
    Memory(&'s [T]),
    Spilled(&'s SpilledRun, &'s dyn Spill),
}

impl<'s, T: Sortable> SortedRun<'s, T> {
    pub(super) fn item_count(self) -> usize {
        match self {
            Self::Memory(items) => items.len(),
            Self::Spilled(run, _) => run.item_count(),
        }
    }

    /// Returns the item with an index, which must be below the number of items.
    pub(super) fn item(self, index: usize) -> io::Result<T> {
        match self {
            Self::Memory(items) => Ok(items[index]),
            Self::Spilled(run, spill) => {
                let mut item = T::zeroed();
                spill.read_at(run.locate::<T>(index).0, bytemuck::bytes_of_mut(&mut item))?;
                Ok(item)
            }
        }
    }

    /// Returns the number of items for which `is_before` returns true; they must be the first items.
    pub(super) fn partition_point(self, is_before: impl Fn(&T) -> bool) -> io::Result<usize> {
        let (mut low, mut high) = (0, self.item_count());
        while low < high {
            let middle = low.midpoint(high);
            if is_before(&self.item(middle)?) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Returns a reader of the items with these indices. It reads at most `buffer_items` at once from the spill.
    pub(super) fn read(self, range: Range<usize>, buffer_items: usize) -> RunReader<'s, T> {
        match self {
            Self::Memory(items) => RunReader::Memory(items[range].iter()),
            Self::Spilled(run, spill) => {
                RunReader::Spilled(SpillReader { run, rest: range, buffer: Vec::new(), next: 0, buffer_items, spill })
            }
        }
    }
}

/// A reader of the items of one run.
pub(super) enum RunReader<'s, T> {
    Memory(std::slice::Iter<'s, T>),
    Spilled(SpillReader<'s, T>),
}

/// A buffered reader of the items of a run in the spill.
pub(super) struct SpillReader<'s, T> {
    run: &'s SpilledRun,
    /// Indices of the items that have not been read from the spill.
    rest: Range<usize>,
    buffer: Vec<T>,
    next: usize,
    buffer_items: usize,
    spill: &'s dyn Spill,
}

impl<T: Sortable> RunReader<'_, T> {
    pub(super) fn next(&mut self) -> io::Result<Option<T>> {
        match self {
            Self::Memory(items) => Ok(items.next().copied()),
            Self::Spilled(reader) => reader.next(),
        }
    }
}

impl<T: Sortable> SpillReader<'_, T> {
    fn next(&mut self) -> io::Result<Option<T>> {
        if self.next == self.buffer.len() && !self.refill()? {
            return Ok(None);
        }
        let item = self.buffer[self.next];
        self.next += 1;
        Ok(Some(item))
    }

    fn refill(&mut self) -> io::Result<bool> {
        if self.rest.is_empty() {
            return Ok(false);
        }
        let (offset, extent_items) = self.run.locate::<T>(self.rest.start);
        let items = self.buffer_items.min(extent_items).min(self.rest.len());
        self.buffer.resize(items, T::zeroed());
        self.spill.read_at(offset, bytemuck::cast_slice_mut(&mut self.buffer))?;
        self.rest.start += items;
        self.next = 0;
        Ok(true)
    }
}
