//! Aligners: blocks of reads in, blocks of aligned records and duplicate signatures out, in the same order.
//!
//! An aligner is split into three: a [`BlockWriter`] for the thread that feeds it, a [`BlockReader`] for the thread that
//! takes its answers, and a [`ChildHandle`] for whoever must wait for it or stop it. Feeding and taking must go on at the
//! same time: the child reads at most one block ahead and answers one block behind.

pub mod bwa;
pub mod protocol;
mod receive;
mod send;
mod session;

use arrow_array::RecordBatch;
use godwit_model::{BlockId, DuplicateCounts, EndSignature, Genome, PairSignature};

pub use crate::ChildHandle;
pub use protocol::{BlockEnd, BlockHeader, Hello};
pub use receive::{BlockPart, BlockReader};
pub use send::BlockWriter;
pub use session::Session;

/// One aligned block.
#[derive(Debug)]
pub struct AlignedBlock {
    /// The block.
    pub id: BlockId,
    /// Reads that went in.
    pub reads: u64,
    /// Records that came out, over all batches.
    pub records: u64,
    /// Batches of `schema::alignments`, in the aligner's order; about 4 MiB each.
    pub batches: Vec<RecordBatch>,
    /// Mates that were neighbours, joined; unsorted.
    pub pairs: Vec<PairSignature>,
    /// Reads without a mapped mate; unsorted.
    pub ends: Vec<EndSignature>,
    /// The block's records as the duplicate metrics count them.
    pub counts: DuplicateCounts,
}

/// A running aligner that has told who it is.
pub trait Aligner {
    /// Versions and contigs.
    fn hello(&self) -> &Hello;

    /// The contigs the aligner reports positions on.
    fn genome(&self) -> &Genome {
        &self.hello().genome
    }

    /// The three ends of the running program.
    fn split(self) -> (BlockWriter, BlockReader, ChildHandle);
}
