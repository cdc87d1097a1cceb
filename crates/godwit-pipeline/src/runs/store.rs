//! Taking blocks in and handing partitions out.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{Array, BinaryArray};
use godwit_kernels::sort::Spill;
use godwit_model::{BlockId, PartitionPlan, RawRecord, SortKey};

use super::{Cursor, ENTRY_HEADER, FRAME_BYTES, Frame, Run, RunBytes};
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
}

/// All runs of a finished job, in the order of their blocks.
pub struct FinishedRuns {
    plan: PartitionPlan,
    runs: Vec<Run>,
    spill: Arc<SpillFile>,
}

/// A stretch of the genome that is merged and written by one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitPartition {
    /// Index in the plan.
    partition: usize,
    /// Smallest key.
    from: SortKey,
    /// First key beyond.
    until: SortKey,
}

/// One record of a block waiting to be sorted. Keys come first, so that comparing looks at one place.
#[derive(Clone, Copy)]
struct Item {
    key: SortKey,
    order: u32,
    chunk: u32,
    row: u32,
}

impl RunStore {
    /// An empty store that cuts the genome by `plan` and keeps about `resident_budget` bytes of records in memory.
    pub fn new(plan: PartitionPlan, resident_budget: usize, spill: Arc<SpillFile>) -> Self {
        Self { plan, runs: Mutex::default(), resident_bytes: AtomicUsize::new(0), resident_budget, spill }
    }

    /// Keeps the records of a block as a run.
    ///
    /// # Errors
    /// What the spill reports.
    pub fn add_block(&self, block: BlockId, records: SortedBlock) -> io::Result<()> {
        let bytes = records.plain_bytes();
        let resident = self.resident_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.resident_budget;
        if !resident {
            self.resident_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        let mut writer = RunWriter {
            frames: Vec::new(),
            frame: Vec::with_capacity(if resident { bytes } else { 2 * FRAME_BYTES }),
            frame_start: 0,
            frame_key: SortKey::FIRST,
            spill: if resident { None } else { Some(&*self.spill) },
            packed: Vec::new(),
        };
        let partition_frames = writer.write(&records, self.plan.starts())?;
        let RunWriter { frames, frame, .. } = writer;
        let bytes = if resident { RunBytes::Memory(frame) } else { RunBytes::Spilled };
        let run = Run { block, frames, partition_frames, bytes };
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).push(run);
        Ok(())
    }

    /// Ends the input.
    pub fn finish(self) -> FinishedRuns {
        let mut runs = self.runs.into_inner().unwrap_or_else(PoisonError::into_inner);
        runs.sort_by_key(|run| run.block);
        FinishedRuns { plan: self.plan, runs, spill: self.spill }
    }
}

impl FinishedRuns {
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

    /// Bytes that merging one partition takes: a frame of every spilled run, packed and plain.
    pub fn merge_bytes(&self) -> usize {
        let spilled = self.runs.iter().filter(|run| matches!(run.bytes, RunBytes::Spilled)).count();
        spilled * 2 * FRAME_BYTES
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
            let cursor = Cursor::open(
                run.block,
                &frames[first.min(beyond)..beyond],
                &run.bytes,
                &self.spill,
                split.from,
                split.until,
            )?;
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
    pub fn new(chunks: Vec<BinaryArray>) -> Self {
        let mut items = Vec::with_capacity(chunks.iter().map(Array::len).sum());
        for (chunk, records) in chunks.iter().enumerate() {
            for row in 0..records.len() {
                let key = RawRecord::trusted(records.value(row)).sort_key();
                items.push(Item { key, order: items.len() as u32, chunk: chunk as u32, row: row as u32 });
            }
        }
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

    /// Bytes the records take in frames.
    fn plain_bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.value_data().len() + ENTRY_HEADER * chunk.len()).sum()
    }
}

/// Lays the records of a run out in frames.
struct RunWriter<'s> {
    frames: Vec<Frame>,
    /// The frame being filled; all frames so far where the run stays in memory.
    frame: Vec<u8>,
    frame_start: usize,
    frame_key: SortKey,
    spill: Option<&'s SpillFile>,
    packed: Vec<u8>,
}

impl RunWriter<'_> {
    /// Writes all records and returns the first frame of each partition, and one past the last frame.
    fn write(&mut self, block: &SortedBlock, starts: &[SortKey]) -> io::Result<Vec<u32>> {
        let mut partition_frames = vec![0];
        for item in &block.items {
            while starts.get(partition_frames.len()).is_some_and(|start| *start <= item.key) {
                self.close_frame()?;
                partition_frames.push(self.frames.len() as u32);
            }
            if self.frame.len() == self.frame_start {
                self.frame_key = item.key;
            }
            let record = block.chunks[item.chunk as usize].value(item.row as usize);
            self.frame.extend_from_slice(&(record.len() as u32).to_le_bytes());
            self.frame.extend_from_slice(&item.order.to_le_bytes());
            self.frame.extend_from_slice(record);
            if self.frame.len() - self.frame_start >= FRAME_BYTES {
                self.close_frame()?;
            }
        }
        self.close_frame()?;
        partition_frames.resize(starts.len() + 1, self.frames.len() as u32);
        Ok(partition_frames)
    }

    fn close_frame(&mut self) -> io::Result<()> {
        let plain = &self.frame[self.frame_start..];
        if plain.is_empty() {
            return Ok(());
        }
        let plain_bytes = plain.len() as u32;
        let (offset, stored_bytes) = match self.spill {
            None => (self.frame_start as u64, plain_bytes),
            Some(spill) => {
                self.packed.resize(lz4_flex::block::get_maximum_output_size(plain.len()), 0);
                let packed_bytes = lz4_flex::block::compress_into(plain, &mut self.packed).map_err(io::Error::other)?;
                (spill.append(&self.packed[..packed_bytes])?, packed_bytes as u32)
            }
        };
        self.frames.push(Frame { first_key: self.frame_key, offset, stored_bytes, plain_bytes });
        if self.spill.is_some() {
            self.frame.clear();
        }
        self.frame_start = self.frame.len();
        Ok(())
    }
}
