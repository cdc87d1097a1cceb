//! Reading of a BAM while it is still being written: which partitions are readable, and how many threads may write.

use std::path::Path;

use godwit_files::AtomicSet;
use godwit_formats::binning_index::IndexBuilder;
use godwit_formats::sam::Header;
use godwit_model::{Genome, SortKey};

use crate::error::PipelineError;
use crate::partitioned_file::PartExtent;

/// A BAM that is being written. Only its header is in the file so far.
pub struct UnfinishedBam<'b> {
    /// The header of the BAM.
    pub header: &'b Header,
    /// The contigs of the header.
    pub genome: &'b Genome,
    /// Temporary path of the file until it is published.
    pub temporary_path: &'b Path,
    /// Path of the file after it is published.
    pub final_path: &'b Path,
    /// Smallest sort key of each partition, ascending.
    pub partition_starts: Vec<SortKey>,
    /// Fingerprint of the records. Two BAMs with equal fingerprints have equal records.
    pub records_fingerprint: String,
}

/// A reader of a BAM that is still being written, for example a variant caller. It shares the threads of the job with
/// the writers. Several threads call these methods.
pub trait BamTail: Sync {
    /// Starts the reader, before the first partition is written.
    ///
    /// # Errors
    /// A [`PipelineError`]; no partition is written then.
    fn start(&self, bam: &UnfinishedBam) -> Result<(), PipelineError>;

    /// Waits until a thread of the job is free to write another partition.
    fn acquire_write_slot(&self);

    /// Releases the thread that [`BamTail::acquire_write_slot`] reserved.
    fn release_write_slot(&self);

    /// Adds the index of a partition, with offsets relative to the start of the partition. Called before the partition
    /// becomes readable.
    fn add_partition_index(&self, partition: usize, index: &IndexBuilder);

    /// Sets the locations of all parts that are contiguous from the start of the file, and are therefore readable: the
    /// header, then partitions.
    fn set_readable_parts(&self, parts: &[PartExtent]);

    /// Finishes the reader, after the whole file is written and before the output files are published.
    ///
    /// # Errors
    /// A [`PipelineError`]; no output file is published then.
    fn finish(&self, staged: &AtomicSet) -> Result<(), PipelineError>;
}

/// The permission for a thread to write a partition; dropping it releases the thread.
pub(super) struct WriteSlot<'f>(Option<&'f dyn BamTail>);

impl<'f> WriteSlot<'f> {
    /// Waits for a free thread. Returns immediately if there is no BAM tail.
    pub(super) fn acquire(bam_tail: Option<&'f dyn BamTail>) -> Self {
        bam_tail.inspect(|follower| follower.acquire_write_slot());
        Self(bam_tail)
    }
}

impl Drop for WriteSlot<'_> {
    fn drop(&mut self) {
        self.0.inspect(|follower| follower.release_write_slot());
    }
}
