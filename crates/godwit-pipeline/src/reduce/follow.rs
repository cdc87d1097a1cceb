//! Following a BAM while it is written: what of it can be read already, and whose turn it is to work.

use std::path::Path;

use godwit_formats::index::IndexBuilder;
use godwit_formats::sam::Header;
use godwit_model::{Genome, SortKey};

use crate::error::PipelineError;
use crate::partitioned_file::PartExtent;
use crate::staging::Staged;

/// A BAM of which nothing but the header is written.
pub(crate) struct BegunBam<'b> {
    /// Its header.
    pub(crate) header: &'b Header,
    /// Its contigs.
    pub(crate) genome: &'b Genome,
    /// Where it lies until it has its name.
    pub(crate) aside: &'b Path,
    /// The name it will have.
    pub(crate) path: &'b Path,
    /// Smallest key of each partition, ascending.
    pub(crate) starts: Vec<SortKey>,
    /// What decides its records: equal ones have equal records.
    pub(crate) identity: String,
}

/// Someone who works on a BAM while it is written, on the same threads as those who write it. Told and asked by several
/// threads.
pub(crate) trait Follower: Sync {
    /// Writing begins.
    ///
    /// # Errors
    /// [`PipelineError`]; nothing is written then.
    fn begin(&self, bam: &BegunBam) -> Result<(), PipelineError>;

    /// Waits until a thread is free to write one more partition.
    fn take_turn(&self);

    /// Says that a thread is free again.
    fn end_turn(&self);

    /// Takes the index of a partition, offsets relative to its start, before that can be among those that are in the file.
    fn made(&self, partition: usize, index: &IndexBuilder);

    /// Says where the parts lie that are in the file from its start on without a gap: the header, then partitions.
    fn landed(&self, parts: &[PartExtent]);

    /// Says that everything is written, and only lacks its name.
    ///
    /// # Errors
    /// [`PipelineError`]; nothing gets its name then.
    fn written(&self, staged: &Staged) -> Result<(), PipelineError>;
}

/// A thread's turn to write.
pub(super) struct Turn<'f>(Option<&'f dyn Follower>);

impl<'f> Turn<'f> {
    /// Waits for it; nobody waits where nobody follows.
    pub(super) fn take(follower: Option<&'f dyn Follower>) -> Self {
        follower.inspect(|follower| follower.take_turn());
        Self(follower)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.inspect(|follower| follower.end_turn());
    }
}
