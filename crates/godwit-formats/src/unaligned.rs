//! The reads of a SAM or BAM file, or of another [`RecordSource`], as the sequencer reported them.
//!
//! Flows in: a file whose reads are not aligned, or aligned but still in the order of their names. Flows out: templates,
//! one read or a pair with read 1 first, as `samtools fastq` 1.16 would print them: without secondary and supplementary
//! records, with reversed reads turned back, with missing qualities taken as 1. FLAG 0x1 of the first record decides
//! whether the file is paired; mates have to be neighbours, in either order. Where samtools drops a read, prints it
//! elsewhere or prints invalid FASTQ, this module returns an error with the record.
//!
//! A file of several read groups is several lanes; [`ReadGroupFilter::OneOf`] reads one of them and skips the others.
//! Mapping and every tag that was not requested are dropped.

mod error;
mod read;
mod reader;

#[cfg(test)]
mod tests;

pub use error::{ReadProblem, UnalignedError};
pub use read::Read;
pub use reader::{ReadGroupFilter, Reader, RecordSource, Selection};
