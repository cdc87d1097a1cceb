//! Aligners. Input: blocks of reads. Output: blocks of aligned records and duplicate signatures, in the same order.
//!
//! An aligner has three handles: a [`BlockWriter`] for the thread that sends reads, a [`BlockReader`] for the thread that
//! receives the aligned blocks, and a [`ChildHandle`] to wait for it or stop it. Sending and receiving must run in parallel:
//! the child reads at most one block ahead and responds one block behind.

mod block_encoder;
mod block_io;
pub mod bwa;
mod choice;
pub mod minimap2;
mod pipe_reader;
mod pipe_session;
mod pipe_writer;
pub mod sam_program;
pub mod stream_metadata;
pub mod template;

use arrow_array::RecordBatch;
use godwit_model::{BlockId, DuplicateCounts, EndSignature, Genome, PairSignature};

pub use crate::ChildHandle;
pub use block_encoder::{BlockEncoder, StreamEncoder};
pub use block_io::{BlockReader, BlockWriter};
pub use choice::AlignerChoice;
pub use pipe_reader::{BlockPart, PipeReader};
pub use pipe_session::PipeSession;
pub use pipe_writer::PipeWriter;
pub use stream_metadata::{AlignerInfo, BlockEnd, BlockHeader};

/// An aligned block.
#[derive(Debug)]
pub struct AlignedBlock {
    /// Id of the block.
    pub id: BlockId,
    /// Number of reads in the input.
    pub reads: u64,
    /// Number of records in the output, over all batches.
    pub records: u64,
    /// Batches of `schema::alignments`, in the aligner's order; about 4 MiB each.
    pub batches: Vec<RecordBatch>,
    /// Pairs of mates that were neighbours; unsorted.
    pub pairs: Vec<PairSignature>,
    /// Reads without a mapped mate; unsorted.
    pub ends: Vec<EndSignature>,
    /// The block's records as the duplicate metrics count them.
    pub counts: DuplicateCounts,
}

/// Dependence of records on the block borders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockDependence {
    /// Records do not depend on borders: blocks may be aligned separately, anywhere, with the records of one process.
    Independent,
    /// Records may depend on borders: one process must read a lane from its first read to its last.
    Dependent,
}

impl BlockDependence {
    /// Returns the text in reports.
    pub fn report_label(self) -> &'static str {
        match self {
            Self::Independent => "across blocks",
            Self::Dependent => "single stream only",
        }
    }
}

/// A running aligner whose [`AlignerInfo`] was received.
pub trait Aligner {
    /// Returns versions and contigs.
    fn info(&self) -> &AlignerInfo;

    /// Returns whether the aligner may carry state from read to read.
    fn block_dependence(&self) -> BlockDependence {
        BlockDependence::Independent
    }

    /// Returns the contigs on which the aligner reports positions.
    fn genome(&self) -> &Genome {
        &self.info().genome
    }

    /// Splits the aligner into writer, reader and process handle.
    fn split(self) -> (BlockWriter, BlockReader, ChildHandle);
}
