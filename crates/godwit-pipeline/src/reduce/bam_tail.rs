//! Reading a BAM while it is written: which parts are readable, and which threads may write.

use std::path::Path;

use godwit_formats::binning_index::IndexBuilder;
use godwit_formats::sam::Header;
use godwit_model::{Genome, SortKey};

use crate::atomic_files::AtomicFileSet;
use crate::error::PipelineError;
use crate::partitioned_file::PartExtent;

/// A BAM of which only the header is written.
pub(crate) struct UnfinishedBam<'b> {
    /// Its header.
    pub(crate) header: &'b Header,
    /// Its contigs.
    pub(crate) genome: &'b Genome,
    /// Its path until it has its name.
    pub(crate) temporary_path: &'b Path,
    /// Its final path.
    pub(crate) final_path: &'b Path,
    /// Smallest key of each partition, ascending.
    pub(crate) partition_starts: Vec<SortKey>,
    /// Fingerprint of its records: BAMs with equal fingerprints have equal records.
    pub(crate) records_fingerprint: String,
}

/// A reader of a BAM that is still written, on the same threads as the writers. Several threads call it.
pub(crate) trait BamTail: Sync {
    /// Starts, before the first partition is written.
    ///
    /// # Errors
    /// [`PipelineError`]; then nothing is written.
    fn start(&self, bam: &UnfinishedBam) -> Result<(), PipelineError>;

    /// Waits until a thread is free to write one more partition.
    fn acquire_write_slot(&self);

    /// Releases the thread of [`BamTail::acquire_write_slot`].
    fn release_write_slot(&self);

    /// Adds the index of a partition, with offsets relative to its start, before the partition can become readable.
    fn add_partition_index(&self, partition: usize, index: &IndexBuilder);

    /// Sets the extents of the parts that are in the file without a gap from its start: the header, then partitions.
    fn set_readable_parts(&self, parts: &[PartExtent]);

    /// Finishes, after everything is written and before the files get their names.
    ///
    /// # Errors
    /// [`PipelineError`]; then no file gets its name.
    fn finish(&self, staged: &AtomicFileSet) -> Result<(), PipelineError>;
}

/// The right of a thread to write a partition.
pub(super) struct WriteSlot<'f>(Option<&'f dyn BamTail>);

impl<'f> WriteSlot<'f> {
    /// Waits for a free thread; returns at once without a BAM tail.
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
