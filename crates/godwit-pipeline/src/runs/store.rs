//! Taking blocks in and handing partitions out.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{Array, BinaryArray};
use godwit_kernels::sort::Spill;
use godwit_model::{BlockId, PartitionPlan, RawRecord, SortKey};
use serde::{Deserialize, Serialize};

use super::{Cursor, ENTRY_HEADER, FRAME_BYTES, Frame, Run, RunBytes, RunTable};
use crate::memory_hints::prefetch;
use crate::scratch::SpillFile;

/// A partition grows past this many times the mean before it is split.
const SPLIT_ABOVE_MEAN: u64 = 2;

/// All runs of a job. Blocks may be added from several threads at once.
pub struct RunStore {
    plan: PartitionPlan,
    runs: Mutex<Vec<Run>>,
    resident_bytes: AtomicUsize,
    resident_budget: usize,
    spill: Arc<SpillFile>,
    /// Every run goes to the spill, also where it stays in memory: a later process may need it.
    keep: bool,
}

/// All runs of a finished job, in the order of their blocks.
pub struct FinishedRuns {
    plan: PartitionPlan,
    runs: Vec<Run>,
    spill: Arc<SpillFile>,
}

/// A stretch of the genome that is merged and written by one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitPartition {
    /// Index in the plan.
    pub partition: usize,
    /// Smallest key.
    pub(crate) from: SortKey,
    /// First key beyond.
    pub(crate) until: SortKey,
}

/// One record of a block waiting to be sorted. Keys come first, so that comparing looks at one place.
#[derive(Clone, Copy)]
pub(super) struct Item {
    pub(super) key: SortKey,
    /// 0-based index in the block.
    pub(super) order: u32,
    chunk: u32,
    row: u32,
}

impl RunStore {
    /// An empty store that cuts the genome by `plan` and keeps about `resident_budget` bytes of records in memory.
    pub fn new(plan: PartitionPlan, resident_budget: usize, spill: Arc<SpillFile>, keep: bool) -> Self {
        Self { plan, runs: Mutex::default(), resident_bytes: AtomicUsize::new(0), resident_budget, spill, keep }
    }

    /// How the genome is cut.
    pub fn plan(&self) -> &PartitionPlan {
        &self.plan
    }

    /// Takes the run of a block that an earlier process left in the spill; false where the table is none of this plan.
    pub fn restore(&self, block: BlockId, table: &RunTable) -> bool {
        let run = table.run(block, self.plan.partitions());
        let restored = run.is_some();
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).extend(run);
        restored
    }

    /// The records of a restored block, in the aligner's order again.
    ///
    /// # Errors
    /// What the spill reports.
    pub fn read_back(&self, block: BlockId) -> io::Result<BinaryArray> {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Keeps the records of a block as a run. Returns where they are in the spill, if all runs go there.
    ///
    /// # Errors
    /// What the spill reports.
    pub fn add_block(&self, block: BlockId, records: SortedBlock) -> io::Result<Option<RunTable>> {
        let bytes = records.resident_bytes();
        let resident = self.resident_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.resident_budget;
        if !resident {
            self.resident_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        let mut writer = FrameCutter::new((!resident || self.keep).then(|| FrameSpill::new(&*self.spill)));
        let partition_frames = writer.cut(&records, self.plan.starts())?;
        let frames = writer.into_frames();
        let bytes = if resident { RunBytes::Memory(records) } else { RunBytes::Spilled };
        let run = Run { block, frames, partition_frames, bytes };
        let table = self.keep.then(|| RunTable::of(&run));
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).push(run);
        Ok(table)
    }

    /// Ends the input.
    pub fn finish(self) -> FinishedRuns {
        let mut runs = self.runs.into_inner().unwrap_or_else(PoisonError::into_inner);
        runs.sort_by_key(|run| run.block);
        FinishedRuns { plan: self.plan, runs, spill: self.spill }
    }
}

impl FinishedRuns {
    pub(super) fn new(plan: PartitionPlan, runs: Vec<Run>, spill: Arc<SpillFile>) -> Self {
        Self { plan, runs, spill }
    }

    /// The partitions to write, in genome order: those of the plan, the overgrown ones in pieces.
    pub fn partitions(&self) -> Vec<SplitPartition> {
        let starts = self.plan.starts();
        let bytes: Vec<u64> = (0..starts.len()).map(|partition| self.partition_bytes(partition)).collect();
        let mapped = starts.len() - 1;
        let mean = bytes[..mapped].iter().sum::<u64>() / (mapped as u64).max(1);
        let mut splits = Vec::new();
        for (partition, from) in starts.iter().copied().enumerate() {
            let until = starts.get(partition + 1).copied().unwrap_or(SortKey(u64::MAX));
            let overgrown = partition < mapped && bytes[partition] > SPLIT_ABOVE_MEAN * mean;
            let pieces = if overgrown { bytes[partition].div_ceil(mean.max(1)) } else { 1 };
            let mut cuts = vec![from];
            cuts.extend(self.cuts_within(partition, pieces as usize));
            cuts.push(until);
            cuts.dedup();
            splits.extend(cuts.windows(2).map(|cut| SplitPartition { partition, from: cut[0], until: cut[1] }));
        }
        splits
    }

    /// Bytes that merging a partition takes: a frame of every spilled run that has records there, packed and plain.
    pub fn merge_bytes(&self, split: &SplitPartition) -> usize {
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

    /// Keys that cut a partition into about equal pieces, taken from the first keys of its frames.
    fn cuts_within(&self, partition: usize, pieces: usize) -> Vec<SortKey> {
        if pieces < 2 {
            return Vec::new();
        }
        let mut keys: Vec<SortKey> =
            self.runs.iter().flat_map(|run| Self::frames_of(run, partition)).map(|frame| frame.first_key).collect();
        keys.sort_unstable();
        (1..pieces).filter_map(|cut| keys.get(keys.len() * cut / pieces)).map(|key| key.forward_of_position()).collect()
    }

    /// Cursors over the records of a partition, one per run, in the order of their blocks.
    ///
    /// # Errors
    /// What the spill reports.
    pub fn cursors(&self, split: &SplitPartition) -> io::Result<Vec<Cursor<'_>>> {
        let mut cursors = Vec::new();
        for run in &self.runs {
            let frames = Self::frames_of(run, split.partition);
            // The frame before the first one that starts within the piece may reach into it.
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

/// The records of a block in coordinate order.
pub struct SortedBlock {
    chunks: Vec<BinaryArray>,
    items: Vec<Item>,
}

impl SortedBlock {
    /// Sorts packed records that come in the aligner's order, in any number of chunks; ties keep that order.
    ///
    /// `keys`: the sort key of every record, in the same order.
    ///
    /// # Panics
    /// When there are more or fewer keys than records, which would lose some.
    pub fn new(chunks: Vec<BinaryArray>, keys: &[SortKey]) -> Self {
        assert_eq!(chunks.iter().map(Array::len).sum::<usize>(), keys.len(), "every record has one key");
        let places =
            chunks.iter().enumerate().flat_map(|(chunk, records)| (0..records.len()).map(move |row| (chunk, row)));
        let mut items: Vec<Item> = places
            .zip(keys)
            .enumerate()
            .map(|(order, ((chunk, row), key))| Item {
                key: *key,
                order: order as u32,
                chunk: chunk as u32,
                row: row as u32,
            })
            .collect();
        items.sort_unstable_by_key(|item| (item.key, item.order));
        Self { chunks, items }
    }

    /// A plan that cuts the genome so that each of `partitions` gets about the same number of these records.
    pub fn plan(&self, partitions: u32) -> PartitionPlan {
        let keys: Vec<SortKey> = self.items.iter().map(|item| item.key).collect();
        PartitionPlan::from_sample(&keys, partitions)
    }

    /// Number of records.
    pub fn records(&self) -> usize {
        self.items.len()
    }

    /// Reference bases that one of the records reaches over, at most.
    pub fn longest_bases(&self) -> u32 {
        let records = self.chunks.iter().flat_map(|chunk| chunk.iter().flatten()).map(RawRecord::trusted);
        let bases = records.map(|record| record.end_position(record.flag()).saturating_sub(record.position()));
        bases.max().map_or(0, |most| most.max(0) as u32)
    }

    /// Bytes the records and their order take in memory.
    fn resident_bytes(&self) -> usize {
        let data: usize = self.chunks.iter().map(|chunk| chunk.value_data().len() + 4 * chunk.len()).sum();
        data + size_of::<Item>() * self.items.len()
    }

    /// The records from a frame on whose keys are in `[from, until)`.
    pub(super) fn items_within(&self, first_item: usize, from: SortKey, until: SortKey) -> &[Item] {
        let items = &self.items[first_item..];
        let start = items.partition_point(|item| item.key < from);
        let end = items.partition_point(|item| item.key < until);
        &items[start..end.max(start)]
    }

    /// Asks the processor for the record of an item, which will be read soon.
    #[inline]
    pub(super) fn prefetch(&self, item: &Item) {
        prefetch(self.record(item).bytes());
    }

    /// The record of an item.
    #[inline]
    pub(super) fn record(&self, item: &Item) -> RawRecord<'_> {
        RawRecord::trusted(self.chunks[item.chunk as usize].value(item.row as usize))
    }
}

/// Cuts the records of a run into frames, and packs these into the spill where the run does not stay in memory.
pub(super) struct FrameCutter<'s> {
    frames: Vec<Frame>,
    /// First record of the frame being filled.
    first_item: usize,
    /// Its bytes so far.
    plain_bytes: usize,
    spill: Option<FrameSpill<'s>>,
}

pub(super) struct FrameSpill<'s> {
    file: &'s dyn Spill,
    plain: Vec<u8>,
    packed: Vec<u8>,
}

impl<'s> FrameCutter<'s> {
    pub(super) fn new(spill: Option<FrameSpill<'s>>) -> Self {
        Self { frames: Vec::new(), first_item: 0, plain_bytes: 0, spill }
    }

    pub(super) fn into_frames(self) -> Vec<Frame> {
        self.frames
    }

    /// Cuts all records and returns the first frame of each partition, and one past the last frame.
    pub(super) fn cut(&mut self, block: &SortedBlock, starts: &[SortKey]) -> io::Result<Vec<u32>> {
        let mut partition_frames = vec![0];
        for (index, item) in block.items.iter().enumerate() {
            while starts.get(partition_frames.len()).is_some_and(|start| *start <= item.key) {
                self.close_frame(block, index)?;
                partition_frames.push(self.frames.len() as u32);
            }
            self.plain_bytes += ENTRY_HEADER + block.record(item).bytes().len();
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

impl<'s> FrameSpill<'s> {
    pub(super) fn new(file: &'s dyn Spill) -> Self {
        Self { file, plain: Vec::new(), packed: Vec::new() }
    }

    /// Packs the records of a frame into the spill; returns where, and how many bytes.
    fn write(&mut self, block: &SortedBlock, items: &[Item]) -> io::Result<(u64, u32)> {
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
