//! Aligners: blocks of reads in, blocks of aligned records and duplicate signatures out, in the same order.
//!
//! An aligner is split into three: a [`BlockWriter`] for the thread that feeds it, a [`BlockReader`] for the thread that
//! takes its answers, and a [`ChildHandle`] for whoever must wait for it or stop it. Feeding and taking must go on at the
//! same time: the child reads at most one block ahead and answers one block behind.

pub mod bwa;
mod choice;
mod encode;
mod ends;
pub mod foreign;
pub mod minimap2;
mod pipe_reader;
mod pipe_writer;
pub mod protocol;
mod session;
pub mod template;

use arrow_array::RecordBatch;
use godwit_model::{BlockId, DuplicateCounts, EndSignature, Genome, PairSignature};

pub use crate::ChildHandle;
pub use choice::AlignerChoice;
pub use encode::{BlockEncoder, StreamEncoder};
pub use ends::{BlockReader, BlockWriter};
pub use pipe_reader::{BlockPart, PipeReader};
pub use pipe_writer::PipeWriter;
pub use protocol::{BlockEnd, BlockHeader, Hello};
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

/// Whether records depend on where the reads are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// They do not: blocks may be aligned apart, anywhere, and give the records of one run.
    AcrossBlocks,
    /// They may: only one process that sees a lane from its first read to its last gives the records of one run.
    SingleStream,
}

impl Identity {
    /// As reports have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::AcrossBlocks => "across blocks",
            Self::SingleStream => "single stream only",
        }
    }
}

/// A running aligner that has told who it is.
pub trait Aligner {
    /// Versions and contigs.
    fn hello(&self) -> &Hello;

    /// What the aligner may keep from read to read.
    fn identity(&self) -> Identity {
        Identity::AcrossBlocks
    }

    /// The contigs the aligner reports positions on.
    fn genome(&self) -> &Genome {
        &self.hello().genome
    }

    /// The three ends of the running program.
    fn split(self) -> (BlockWriter, BlockReader, ChildHandle);
}
