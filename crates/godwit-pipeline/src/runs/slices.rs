//! The slices of blocks that a node holds, of those it aligned and of those it fetched.
//!
//! The partitions of the plan are dealt out in *shares*, each a stretch of the genome. A slice is what a block has in one
//! share: frames, one behind the other in the node's spill, with the table of where they lie. Slices are made in one
//! piece, so they are served with one read and fetched with one write, and they are the same bytes whoever made them.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use godwit_exchange::Share;
use godwit_kernels::sort::Spill;
use godwit_model::{BlockId, PartitionPlan};

use super::store::{FinishedRuns, FrameCutter, FrameSpill, SortedBlock};
use super::{Frame, Run, RunBytes, RunTable, SplitPartition};
use crate::scratch::SpillFile;

/// How the partitions of a plan are dealt out.
#[derive(Clone, Debug)]
pub struct Shares {
    plan: PartitionPlan,
    shares: usize,
}

impl Shares {
    /// `shares` stretches with about the same number of partitions each; fewer where there are not so many partitions.
    pub fn new(plan: PartitionPlan, shares: usize) -> Self {
        let shares = shares.clamp(1, plan.partitions());
        Self { plan, shares }
    }

    /// Number of shares.
    pub fn shares(&self) -> usize {
        self.shares
    }

    /// First partition of a share, and of the one behind it.
    fn partitions(&self, share: usize) -> (usize, usize) {
        let first = |share: usize| share * self.plan.partitions() / self.shares;
        (first(share), first(share + 1))
    }

    /// The share that a partition belongs to.
    pub fn share_of(&self, partition: usize) -> usize {
        (0..self.shares).rfind(|share| self.partitions(*share).0 <= partition).unwrap_or(0)
    }
}

/// What one block has in one share.
struct Slice {
    /// Offsets are within the spill.
    frames: Vec<Frame>,
    /// For each partition of the share and one past the last: index of its first frame.
    partition_frames: Vec<u32>,
    place: SlicePlace,
}

/// Where a slice lies and what it is made of.
#[derive(Clone, Copy, Debug)]
pub struct SlicePlace {
    /// First byte in the spill.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// BLAKE3 of them.
    pub checksum: blake3::Hash,
}

/// All slices of a node. Blocks and slices may be added from several threads at once.
pub struct SliceStore {
    shares: Shares,
    spill: Arc<SpillFile>,
    slices: Mutex<BTreeMap<(BlockId, usize), Arc<Slice>>>,
}

impl SliceStore {
    /// A store without slices.
    pub fn new(shares: Shares, spill: Arc<SpillFile>) -> Self {
        Self { shares, spill, slices: Mutex::default() }
    }

    /// The spill that slices lie in.
    pub fn spill(&self) -> &Arc<SpillFile> {
        &self.spill
    }

    /// Every share that a block has a slice in.
    pub fn all_shares(&self) -> impl Iterator<Item = Share> + use<> {
        (0..self.shares.shares as u16).map(Share)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(BlockId, usize), Arc<Slice>>> {
        self.slices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Packs the records of a block and keeps all its slices. Returns the table of its frames, whose offsets mean nothing.
    ///
    /// # Errors
    /// What the spill reports.
    pub fn add_block(&self, block: BlockId, records: SortedBlock) -> io::Result<RunTable> {
        let packed = Gathered::default();
        let mut cutter = FrameCutter::new(Some(FrameSpill::new(&packed)));
        let partition_frames = cutter.cut(&records, self.shares.plan.starts())?;
        let frames = cutter.into_frames();
        drop(records);
        let run = Run { block, frames, partition_frames, bytes: RunBytes::Spilled };
        let packed = packed.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        let start = self.spill.append(&packed)?;
        for share in 0..self.shares.shares {
            let slice = self.slice_of(&run, share, start, &packed);
            self.lock().insert((block, share), Arc::new(slice));
        }
        Ok(RunTable::of(&run))
    }

    fn slice_of(&self, run: &Run, share: usize, start: u64, packed: &[u8]) -> Slice {
        let (first, end) = self.shares.partitions(share);
        let partition_frames = &run.partition_frames[first..=end];
        let (first_frame, end_frame) = (partition_frames[0], partition_frames[end - first]);
        let own = &run.frames[first_frame as usize..end_frame as usize];
        let begin = own.first().map_or(0, |frame| frame.offset);
        let bytes: u64 = own.iter().map(|frame| u64::from(frame.stored_bytes)).sum();
        let checksum = blake3::hash(&packed[begin as usize..(begin + bytes) as usize]);
        Slice {
            frames: own.iter().map(|frame| Frame { offset: start + frame.offset, ..*frame }).collect(),
            partition_frames: partition_frames.iter().map(|frame| frame - first_frame).collect(),
            place: SlicePlace { offset: start + begin, bytes, checksum },
        }
    }

    /// Where a slice lies, and its table with offsets from its own start; `None` where it is not here.
    pub fn slice(&self, block: BlockId, share: usize) -> Option<(SlicePlace, RunTable)> {
        let slice = self.lock().get(&(block, share))?.clone();
        let relative = |frame: &Frame| Frame { offset: frame.offset - slice.place.offset, ..*frame };
        let frames = slice.frames.iter().map(relative).collect();
        let partition_frames = slice.partition_frames.clone();
        Some((slice.place, RunTable::of(&Run { block, frames, partition_frames, bytes: RunBytes::Spilled })))
    }

    /// Keeps a slice whose bytes are in the spill and were checked; false where the table is none of this share.
    pub fn add_slice(&self, block: BlockId, share: usize, place: SlicePlace, table: &RunTable) -> bool {
        let (first, end) = self.shares.partitions(share);
        let Some(run) = table.run(block, end - first) else { return false };
        let within = run.frames.iter().all(|frame| {
            frame.offset.checked_add(u64::from(frame.stored_bytes)).is_some_and(|last| last <= place.bytes)
        });
        if !within {
            return false;
        }
        let frames = run.frames.iter().map(|frame| Frame { offset: place.offset + frame.offset, ..*frame }).collect();
        let slice = Slice { frames, partition_frames: run.partition_frames, place };
        self.lock().insert((block, share), Arc::new(slice));
        true
    }

    /// What all blocks have in the partition of a part, as runs to be merged.
    pub fn runs(&self, split: &SplitPartition) -> FinishedRuns {
        let partition = split.partition;
        let share = self.shares.share_of(partition);
        let at = partition - self.shares.partitions(share).0;
        let partitions = self.shares.plan.partitions();
        let slices = self.lock();
        let of_share = slices.iter().filter(|((_, of), _)| *of == share);
        let run = |((block, _), slice): (&(BlockId, usize), &Arc<Slice>)| {
            let frames = &slice.frames[slice.partition_frames[at] as usize..slice.partition_frames[at + 1] as usize];
            let mut partition_frames = vec![0; partitions + 1];
            partition_frames[partition + 1..].fill(frames.len() as u32);
            Run { block: *block, frames: frames.to_vec(), partition_frames, bytes: RunBytes::Spilled }
        };
        let runs = of_share.map(run).collect();
        FinishedRuns::new(self.shares.plan.clone(), runs, self.spill.clone())
    }
}

/// Frames of a block on their way to the spill.
#[derive(Default)]
struct Gathered(Mutex<Vec<u8>>);

impl Spill for Gathered {
    fn append(&self, bytes: &[u8]) -> io::Result<u64> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = all.len() as u64;
        all.extend_from_slice(bytes);
        Ok(offset)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.get(offset as usize..offset as usize + bytes.len());
        bytes.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}
