//! Aligners: each receives blocks of reads and returns blocks of aligned records and duplicate signatures, in the same
//! order.
//!
//! A running aligner has three handles: a [`BlockWriter`] for the thread that sends reads, a [`BlockReader`] for the
//! thread that receives aligned blocks, and a [`ChildHandle`] that waits for the aligner or kills it. The two threads
//! must run in parallel: the aligner reads at most one block ahead and returns each block one block later.

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

/// An aligned block: the records and duplicate signatures of one block of reads.
#[derive(Debug)]
pub struct AlignedBlock {
    /// Id of the block.
    pub id: BlockId,
    /// Number of reads in the input block.
    pub reads: u64,
    /// Number of SAM records in the aligned block, over all batches.
    pub records: u64,
    /// Record batches with the schema `schema::pipe_alignments`, in the order in which the aligner wrote the records; about
    /// 4 MiB per batch.
    pub batches: Vec<RecordBatch>,
    /// Duplicate signatures of read pairs whose mates are both mapped; unsorted.
    pub pairs: Vec<PairSignature>,
    /// Duplicate signatures of reads without a mapped mate; unsorted.
    pub ends: Vec<EndSignature>,
    /// Numbers of records in the block, by the categories of the duplicate metrics.
    pub counts: DuplicateCounts,
}

/// Dependence of a read's records on the borders between blocks of reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockDependence {
    /// Records do not depend on block borders: blocks may be aligned by separate processes on any host and yield the
    /// same records as one process.
    Independent,
    /// Records may depend on block borders: one process must read all reads of a lane, from the first to the last.
    Dependent,
}

impl BlockDependence {
    /// Returns the label that reports print for this value.
    pub fn report_label(self) -> &'static str {
        match self {
            Self::Independent => "across blocks",
            Self::Dependent => "single stream only",
        }
    }
}

/// A running aligner that has already sent its [`AlignerInfo`] to godwit.
pub trait Aligner {
    /// Returns the versions of the aligner and the contigs of its index.
    fn info(&self) -> &AlignerInfo;

    /// Returns whether the records of a read may depend on earlier reads and so on block borders.
    fn block_dependence(&self) -> BlockDependence {
        BlockDependence::Independent
    }

    /// Returns the contigs of the aligner's index, to which the positions in its records refer.
    fn genome(&self) -> &Genome {
        &self.info().genome
    }

    /// Splits the aligner into the writer of reads, the reader of aligned blocks and the process handle.
    fn split(self) -> (BlockWriter, BlockReader, ChildHandle);
}
