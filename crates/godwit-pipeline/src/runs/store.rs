//! Storage of the runs of all blocks, and the division of their records into partitions.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::{Array, BinaryArray};
use godwit_kernels::sort::Spill;
use godwit_model::{BlockId, PartitionPlan, RawRecord, SortKey};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::{Cursor, ENTRY_HEADER_BYTES, FRAME_BYTES, Frame, Run, RunBytes, RunTable};
use crate::memory_hints::prefetch;
use crate::scratch::SpillFile;

/// Maximum ratio between the size of a partition and the mean size. A larger partition is split.
const MAX_PARTITION_TO_MEAN: u64 = 2;

/// The runs of a job while blocks are added. Several threads may add blocks at the same time.
pub(crate) struct RunStore {
    plan: PartitionPlan,
    runs: Mutex<Vec<Run>>,
    resident_bytes: AtomicUsize,
    resident_budget_bytes: usize,
    spill: Arc<SpillFile>,
    /// True if every run is written to the spill file, including those that stay in memory, because a later process may
    /// need them.
    spill_all_runs: bool,
}

/// The runs of a job after the last block, in the order of the blocks.
pub struct FinishedRuns {
    plan: PartitionPlan,
    runs: Vec<Run>,
    spill: Arc<SpillFile>,
}

/// A contiguous region of the genome whose records one thread merges and writes: a partition of the plan, or a piece of
/// a large partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitPartition {
    /// Index of the partition in the plan.
    pub partition: usize,
    /// Smallest sort key of the region.
    pub from: SortKey,
    /// First sort key after the region.
    pub until: SortKey,
}

/// An entry of the sort order of a block. It contains a copy of the sort key, so that sorting does not read the
/// records.
#[derive(Clone, Copy)]
pub(super) struct SortItem {
    pub(super) key: SortKey,
    /// Index of the record in the block before sorting, 0-based.
    pub(super) order: u32,
    array: u32,
    row: u32,
}

impl RunStore {
    /// Creates an empty store. It holds up to about `resident_budget_bytes` of records in memory; further runs are
    /// written to `spill`.
    pub fn new(plan: PartitionPlan, resident_budget_bytes: usize, spill: Arc<SpillFile>, spill_all_runs: bool) -> Self {
        Self {
            plan,
            runs: Mutex::default(),
            resident_bytes: AtomicUsize::new(0),
            resident_budget_bytes,
            spill,
            spill_all_runs,
        }
    }

    /// Returns the division of the genome into partitions.
    pub fn plan(&self) -> &PartitionPlan {
        &self.plan
    }

    /// Restores a run that an earlier process wrote to the spill file. Returns false if the table does not match the
    /// partitions.
    pub fn restore(&self, block: BlockId, table: &RunTable) -> bool {
        let run = table.to_run(block, self.plan.partition_count());
        let restored = run.is_some();
        self.runs.lock().extend(run);
        restored
    }

    /// Returns the records of a restored block in the order in which the aligner returned them.
    ///
    /// # Errors
    /// The I/O error of the spill file.
    pub(crate) fn read_back(&self, block: BlockId) -> io::Result<BinaryArray> {
        let runs = self.runs.lock();
        let frames = runs.iter().find(|run| run.block == block).map_or(&[][..], |run| &run.frames);
        let mut records: Vec<(u32, Vec<u8>)> = Vec::new();
        let mut cursor = match frames {
            [] => None,
            _ => Cursor::in_spill(block, frames, &self.spill, SortKey(0), SortKey(u64::MAX))?,
        };
        while let Some(current) = &mut cursor {
            let entry = current.entry();
            records.push((entry.order, entry.record.bytes().to_vec()));
            if !current.advance()? {
                break;
            }
        }
        records.sort_unstable_by_key(|(order, _)| *order);
        Ok(BinaryArray::from_iter_values(records.iter().map(|(_, record)| record)))
    }

    /// Stores the records of a block as a run. Returns its frame table if all runs are written to the spill file.
    ///
    /// # Errors
    /// The I/O error of the spill file.
    pub fn add_block(&self, block: BlockId, records: SortedBlock) -> io::Result<Option<RunTable>> {
        let bytes = records.resident_bytes();
        let resident = self.resident_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.resident_budget_bytes;
        if !resident {
            self.resident_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        let mut writer = FrameCutter::new((!resident || self.spill_all_runs).then(|| FrameWriter::new(&*self.spill)));
        let partition_frames = writer.cut_frames(&records, self.plan.starts())?;
        let frames = writer.into_frames();
        let bytes = if resident { RunBytes::Memory(records) } else { RunBytes::Spilled };
        let run = Run { block, frames, partition_frames, bytes };
        let table = self.spill_all_runs.then(|| RunTable::from_run(&run));
        self.runs.lock().push(run);
        Ok(table)
    }

    /// Ends the input and sorts the runs by the numbers of their blocks.
    pub fn finish(self) -> FinishedRuns {
        let mut runs = self.runs.into_inner();
        runs.sort_by_key(|run| run.block);
        FinishedRuns { plan: self.plan, runs, spill: self.spill }
    }
}

impl FinishedRuns {
    pub(super) fn new(plan: PartitionPlan, runs: Vec<Run>, spill: Arc<SpillFile>) -> Self {
        Self { plan, runs, spill }
    }

    /// Returns the partitions to write in genome order. Partitions of the plan that are too large are split.
    pub fn partitions(&self) -> Vec<SplitPartition> {
        let starts = self.plan.starts();
        let bytes: Vec<u64> = (0..starts.len()).map(|partition| self.partition_bytes(partition)).collect();
        let mapped = starts.len() - 1;
        let mean = bytes[..mapped].iter().sum::<u64>() / (mapped as u64).max(1);
        let mut splits = Vec::new();
        for (partition, from) in starts.iter().copied().enumerate() {
            let until = starts.get(partition + 1).copied().unwrap_or(SortKey(u64::MAX));
            let overgrown = partition < mapped && bytes[partition] > MAX_PARTITION_TO_MEAN * mean;
            let pieces = if overgrown { bytes[partition].div_ceil(mean.max(1)) } else { 1 };
            let mut cuts = vec![from];
            cuts.extend(self.split_keys(partition, pieces as usize));
            cuts.push(until);
            cuts.dedup();
            splits.extend(cuts.windows(2).map(|cut| SplitPartition { partition, from: cut[0], until: cut[1] }));
        }
        splits
    }

    /// Returns the memory that merging a partition needs, bytes: for every spilled run, one frame in compressed and
    /// decompressed form.
    pub(crate) fn merge_bytes(&self, split: &SplitPartition) -> usize {
        let spilled = self.runs.iter().filter(|run| matches!(run.bytes, RunBytes::Spilled));
        spilled.filter(|run| !Self::frames_of(run, split.partition).is_empty()).count() * 2 * FRAME_BYTES
    }

    fn frames_of(run: &Run, partition: usize) -> &[Frame] {
        &run.frames[run.partition_frames[partition] as usize..run.partition_frames[partition + 1] as usize]
    }

    fn partition_bytes(&self, partition: usize) -> u64 {
        let frames = self.runs.iter().flat_map(|run| Self::frames_of(run, partition));
        frames.map(|frame| u64::from(frame.plain_bytes)).sum()
    }

    /// Returns sort keys that divide a partition into about equal pieces. Each is the key of the first record of a
    /// frame.
    fn split_keys(&self, partition: usize, pieces: usize) -> Vec<SortKey> {
        if pieces < 2 {
            return Vec::new();
        }
        let mut keys: Vec<SortKey> =
            self.runs.iter().flat_map(|run| Self::frames_of(run, partition)).map(|frame| frame.first_key).collect();
        keys.sort_unstable();
        (1..pieces).filter_map(|cut| keys.get(keys.len() * cut / pieces)).map(|key| key.forward_strand()).collect()
    }

    /// Returns a cursor over the records of a partition for each run that has such records, in the order of the blocks.
    ///
    /// # Errors
    /// The I/O error of the spill file.
    pub(crate) fn cursors(&self, split: &SplitPartition) -> io::Result<Vec<Cursor<'_>>> {
        let mut cursors = Vec::new();
        for run in &self.runs {
            let frames = Self::frames_of(run, split.partition);
            // The frame before the first one that starts in the piece may also contain records of the piece.
            let first = frames.partition_point(|frame| frame.first_key < split.from).saturating_sub(1);
            let beyond = frames.partition_point(|frame| frame.first_key < split.until);
            let frames = &frames[first.min(beyond)..beyond];
            let cursor = match (&run.bytes, frames.first()) {
                (_, None) => None,
                (RunBytes::Memory(records), Some(frame)) => {
                    let items = records.items_within(frame.first_item as usize, split.from, split.until);
                    Cursor::in_memory(run.block, records, items)
                }
                (RunBytes::Spilled, Some(_)) => {
                    Cursor::in_spill(run.block, frames, &self.spill, split.from, split.until)?
                }
            };
            cursors.extend(cursor);
        }
        Ok(cursors)
    }
}

/// The records of a block with their coordinate order.
pub struct SortedBlock {
    arrays: Vec<BinaryArray>,
    items: Vec<SortItem>,
}

impl SortedBlock {
    /// Sorts packed records, which may be in several arrays, by their keys. Records with equal keys stay in the order
    /// of the aligner.
    ///
    /// `keys`: the sort key of every record, in the order of the records.
    ///
    /// # Panics
    /// If the numbers of keys and records differ, because records would be lost.
    pub fn new(arrays: Vec<BinaryArray>, keys: &[SortKey]) -> Self {
        assert_eq!(arrays.iter().map(Array::len).sum::<usize>(), keys.len(), "every record has one key");
        let places =
            arrays.iter().enumerate().flat_map(|(chunk, records)| (0..records.len()).map(move |row| (chunk, row)));
        let mut items: Vec<SortItem> = places
            .zip(keys)
            .enumerate()
            .map(|(order, ((chunk, row), key))| SortItem {
                key: *key,
                order: order as u32,
                array: chunk as u32,
                row: row as u32,
            })
            .collect();
        items.sort_unstable_by_key(|item| (item.key, item.order));
        Self { arrays, items }
    }

    /// Returns a plan that divides the genome into partitions with about equal numbers of these records.
    pub fn plan(&self, partitions: u32) -> PartitionPlan {
        let keys: Vec<SortKey> = self.items.iter().map(|item| item.key).collect();
        PartitionPlan::from_sample(&keys, partitions)
    }

    /// Returns the number of records in the block.
    pub fn records(&self) -> usize {
        self.items.len()
    }

    /// Returns the maximum number of reference bases that a record covers.
    pub(crate) fn longest_bases(&self) -> u32 {
        let records = self.arrays.iter().flat_map(|chunk| chunk.iter().flatten()).map(RawRecord::from_trusted_bytes);
        let bases = records.map(|record| record.end_position(record.flag()).saturating_sub(record.position()));
        bases.max().map_or(0, |most| most.max(0) as u32)
    }

    /// Returns the memory of the records and of their sort order, bytes.
    fn resident_bytes(&self) -> usize {
        let data: usize = self.arrays.iter().map(|chunk| chunk.value_data().len() + 4 * chunk.len()).sum();
        data + size_of::<SortItem>() * self.items.len()
    }

    /// Returns the items from index `first_item` on whose keys are in `[from, until)`.
    pub(super) fn items_within(&self, first_item: usize, from: SortKey, until: SortKey) -> &[SortItem] {
        let items = &self.items[first_item..];
        let start = items.partition_point(|item| item.key < from);
        let end = items.partition_point(|item| item.key < until);
        &items[start..end.max(start)]
    }

    /// Prefetches the record of an item into the processor cache.
    #[inline]
    pub(super) fn prefetch(&self, item: &SortItem) {
        prefetch(self.record(item).bytes());
    }

    /// Returns the record to which an item of the sort order refers.
    #[inline]
    pub(super) fn record(&self, item: &SortItem) -> RawRecord<'_> {
        RawRecord::from_trusted_bytes(self.arrays[item.array as usize].value(item.row as usize))
    }
}

/// A cutter that divides the records of a run into frames. It also compresses the frames into the spill file, if there
/// is one.
pub(super) struct FrameCutter<'s> {
    frames: Vec<Frame>,
    /// Index of the first record of the current frame.
    first_item: usize,
    /// Uncompressed size of the current frame so far, bytes.
    plain_bytes: usize,
    spill: Option<FrameWriter<'s>>,
}

pub(super) struct FrameWriter<'s> {
    file: &'s dyn Spill,
    plain: Vec<u8>,
    packed: Vec<u8>,
}

impl<'s> FrameCutter<'s> {
    pub(super) fn new(spill: Option<FrameWriter<'s>>) -> Self {
        Self { frames: Vec::new(), first_item: 0, plain_bytes: 0, spill }
    }

    pub(super) fn into_frames(self) -> Vec<Frame> {
        self.frames
    }

    /// Divides all records into frames. Returns the index of the first frame of each partition, and the number of
    /// frames as the last element.
    pub(super) fn cut_frames(&mut self, block: &SortedBlock, starts: &[SortKey]) -> io::Result<Vec<u32>> {
        let mut partition_frames = vec![0];
        for (index, item) in block.items.iter().enumerate() {
            while starts.get(partition_frames.len()).is_some_and(|start| *start <= item.key) {
                self.close_frame(block, index)?;
                partition_frames.push(self.frames.len() as u32);
            }
            self.plain_bytes += ENTRY_HEADER_BYTES + block.record(item).bytes().len();
            if self.plain_bytes >= FRAME_BYTES {
                self.close_frame(block, index + 1)?;
            }
        }
        self.close_frame(block, block.items.len())?;
        partition_frames.resize(starts.len() + 1, self.frames.len() as u32);
        Ok(partition_frames)
    }

    fn close_frame(&mut self, block: &SortedBlock, end: usize) -> io::Result<()> {
        let Some(first) = block.items[self.first_item..end].first() else { return Ok(()) };
        let (offset, stored_bytes) = match &mut self.spill {
            None => (0, 0),
            Some(spill) => spill.write(block, &block.items[self.first_item..end])?,
        };
        self.frames.push(Frame {
            first_key: first.key,
            first_item: self.first_item as u32,
            offset,
            stored_bytes,
            plain_bytes: self.plain_bytes as u32,
        });
        self.first_item = end;
        self.plain_bytes = 0;
        Ok(())
    }
}

impl<'s> FrameWriter<'s> {
    pub(super) fn new(file: &'s dyn Spill) -> Self {
        Self { file, plain: Vec::new(), packed: Vec::new() }
    }

    /// Compresses the records of a frame into the spill file. Returns the offset and the compressed size, bytes.
    fn write(&mut self, block: &SortedBlock, items: &[SortItem]) -> io::Result<(u64, u32)> {
        self.plain.clear();
        for item in items {
            let record = block.record(item).bytes();
            self.plain.extend_from_slice(&(record.len() as u32).to_le_bytes());
            self.plain.extend_from_slice(&item.order.to_le_bytes());
            self.plain.extend_from_slice(record);
        }
        self.packed.resize(lz4_flex::block::get_maximum_output_size(self.plain.len()), 0);
        let bytes = lz4_flex::block::compress_into(&self.plain, &mut self.packed).map_err(io::Error::other)?;
        Ok((self.file.append(&self.packed[..bytes])?, bytes as u32))
    }
}
