//! The slices of blocks that a worker of a cluster run stores: slices of blocks that the worker aligned, and slices
//! that it downloaded from other workers.
//!
//! The partitions of the plan are divided into *shards*, each of which is a contiguous region of the genome. A slice
//! contains the records of one block in one shard. It consists of consecutive frames in the spill file of the worker
//! and a table of their locations. A slice is contiguous, so that it is sent with one read and stored with one write.
//! Its bytes are the same on every worker.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use godwit_exchange::ShardId;
use godwit_kernels::sort::Spill;
use godwit_model::{BlockId, PartitionPlan};
use parking_lot::Mutex;

use super::store::{FinishedRuns, FrameCutter, FrameWriter, SortedBlock};
use super::{Frame, Run, RunBytes, RunTable, SplitPartition};
use crate::scratch::SpillFile;

/// The assignment of partitions to shards.
#[derive(Clone, Debug)]
pub struct ShardPlan {
    plan: PartitionPlan,
    count: usize,
}

impl ShardPlan {
    /// Divides the partitions of a plan into at most `shares` shards with about equal numbers of partitions. Each shard
    /// has at least one partition.
    pub fn new(plan: PartitionPlan, shares: usize) -> Self {
        let count = shares.clamp(1, plan.partition_count());
        Self { plan, count }
    }

    /// Returns the number of shards.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the index of the first partition of a shard, and of the partition after its last one.
    fn partition_range(&self, share: usize) -> (usize, usize) {
        let first = |share: usize| share * self.plan.partition_count() / self.count;
        (first(share), first(share + 1))
    }

    /// Returns the number of the shard to which a partition belongs.
    pub fn shard_of(&self, partition: usize) -> usize {
        (0..self.count).rfind(|share| self.partition_range(*share).0 <= partition).unwrap_or(0)
    }
}

/// The records of one block in one shard.
struct Slice {
    /// Frames of the slice, with offsets in the spill file.
    frames: Vec<Frame>,
    /// Index of the first frame of each partition of the shard, and the number of frames as the last element.
    partition_frames: Vec<u32>,
    location: SliceLocation,
}

/// The location and checksum of a slice in the spill file.
#[derive(Clone, Copy, Debug)]
pub struct SliceLocation {
    /// Offset in the spill file, bytes.
    pub offset: u64,
    /// Size of the slice, bytes.
    pub bytes: u64,
    /// BLAKE3 of the bytes of the slice.
    pub checksum: blake3::Hash,
}

/// All slices that a worker stores. Several threads may add blocks and slices at the same time.
pub struct SliceStore {
    shard_plan: ShardPlan,
    spill: Arc<SpillFile>,
    slices: Mutex<BTreeMap<(BlockId, usize), Arc<Slice>>>,
}

impl SliceStore {
    /// Creates a store without slices.
    pub fn new(shard_plan: ShardPlan, spill: Arc<SpillFile>) -> Self {
        Self { shard_plan, spill, slices: Mutex::default() }
    }

    /// Returns the spill file in which the slices are stored.
    pub fn spill(&self) -> &Arc<SpillFile> {
        &self.spill
    }

    /// Returns the numbers of all shards. Every block has a slice in each of them.
    pub fn all_shards(&self) -> impl Iterator<Item = ShardId> + use<> {
        (0..self.shard_plan.count as u16).map(ShardId)
    }

    /// Compresses the records of a block and stores all of its slices. Returns the frame table of the block. The
    /// offsets in this table are not valid for the spill file.
    ///
    /// # Errors
    /// The I/O error of the spill file.
    pub fn add_block(&self, block: BlockId, records: SortedBlock) -> io::Result<RunTable> {
        let packed = BufferSpill::default();
        let mut cutter = FrameCutter::new(Some(FrameWriter::new(&packed)));
        let partition_frames = cutter.cut_frames(&records, self.shard_plan.plan.starts())?;
        let frames = cutter.into_frames();
        drop(records);
        let run = Run { block, frames, partition_frames, bytes: RunBytes::Spilled };
        let packed = packed.0.into_inner();
        let start = self.spill.append(&packed)?;
        for share in 0..self.shard_plan.count {
            let slice = self.cut_slice(&run, share, start, &packed);
            self.slices.lock().insert((block, share), Arc::new(slice));
        }
        Ok(RunTable::from_run(&run))
    }

    fn cut_slice(&self, run: &Run, share: usize, start: u64, packed: &[u8]) -> Slice {
        let (first, end) = self.shard_plan.partition_range(share);
        let partition_frames = &run.partition_frames[first..=end];
        let (first_frame, end_frame) = (partition_frames[0], partition_frames[end - first]);
        let own = &run.frames[first_frame as usize..end_frame as usize];
        let begin = own.first().map_or(0, |frame| frame.offset);
        let bytes: u64 = own.iter().map(|frame| u64::from(frame.stored_bytes)).sum();
        let checksum = blake3::hash(&packed[begin as usize..(begin + bytes) as usize]);
        Slice {
            frames: own.iter().map(|frame| Frame { offset: start + frame.offset, ..*frame }).collect(),
            partition_frames: partition_frames.iter().map(|frame| frame - first_frame).collect(),
            location: SliceLocation { offset: start + begin, bytes, checksum },
        }
    }

    /// Returns the location of a slice and its frame table, with offsets relative to the start of the slice. Returns
    /// `None` if this worker does not store the slice.
    pub fn slice(&self, block: BlockId, share: usize) -> Option<(SliceLocation, RunTable)> {
        let slice = self.slices.lock().get(&(block, share))?.clone();
        let relative = |frame: &Frame| Frame { offset: frame.offset - slice.location.offset, ..*frame };
        let frames = slice.frames.iter().map(relative).collect();
        let partition_frames = slice.partition_frames.clone();
        Some((slice.location, RunTable::from_run(&Run { block, frames, partition_frames, bytes: RunBytes::Spilled })))
    }

    /// Adds a slice whose bytes are already in the spill file and are verified. Returns false if the table does not
    /// match the shard.
    pub fn add_slice(&self, block: BlockId, share: usize, location: SliceLocation, table: &RunTable) -> bool {
        let (first, end) = self.shard_plan.partition_range(share);
        let Some(run) = table.to_run(block, end - first) else { return false };
        let within = run.frames.iter().all(|frame| {
            frame.offset.checked_add(u64::from(frame.stored_bytes)).is_some_and(|last| last <= location.bytes)
        });
        if !within {
            return false;
        }
        let frames =
            run.frames.iter().map(|frame| Frame { offset: location.offset + frame.offset, ..*frame }).collect();
        let slice = Slice { frames, partition_frames: run.partition_frames, location };
        self.slices.lock().insert((block, share), Arc::new(slice));
        true
    }

    /// Returns the runs of all blocks, for the merge of a partition.
    pub fn runs(&self, split: &SplitPartition) -> FinishedRuns {
        let partition = split.partition;
        let share = self.shard_plan.shard_of(partition);
        let at = partition - self.shard_plan.partition_range(share).0;
        let partitions = self.shard_plan.plan.partition_count();
        let slices = self.slices.lock();
        let of_share = slices.iter().filter(|((_, of), _)| *of == share);
        let run = |((block, _), slice): (&(BlockId, usize), &Arc<Slice>)| {
            let frames = &slice.frames[slice.partition_frames[at] as usize..slice.partition_frames[at + 1] as usize];
            let mut partition_frames = vec![0; partitions + 1];
            partition_frames[partition + 1..].fill(frames.len() as u32);
            Run { block: *block, frames: frames.to_vec(), partition_frames, bytes: RunBytes::Spilled }
        };
        let runs = of_share.map(run).collect();
        FinishedRuns::new(self.shard_plan.plan.clone(), runs, self.spill.clone())
    }
}

/// A buffer in memory for the frames of a block, which are then written to the spill file together.
#[derive(Default)]
struct BufferSpill(Mutex<Vec<u8>>);

impl Spill for BufferSpill {
    fn append(&self, bytes: &[u8]) -> io::Result<u64> {
        let mut all = self.0.lock();
        let offset = all.len() as u64;
        all.extend_from_slice(bytes);
        Ok(offset)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let all = self.0.lock();
        let found = all.get(offset as usize..offset as usize + bytes.len());
        bytes.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}
