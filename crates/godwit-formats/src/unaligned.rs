//! A reader of the reads of a SAM or BAM file, or of another [`RecordSource`], in the form in which the sequencer
//! reported them.
//!
//! Flows in: a file whose reads are not aligned, or are aligned but in the order of their names. Flows out: templates,
//! each of which is one read or a pair with read 1 first. The reads are those that `samtools fastq` 1.16 prints:
//! secondary and supplementary records are left out, reads on the reverse strand are reverse-complemented, and missing
//! qualities become 33 (`B`). FLAG 0x1 of the first record decides whether the file is paired. The records of two mates
//! must be adjacent, in either order. Reads without bases, which samtools drops, are kept, so that mates stay in step.
//! If samtools would drop another read, print it to another output, or print invalid FASTQ, this module returns an error
//! that names the record.
//!
//! A file with several read groups is treated as several lanes: [`ReadGroupFilter::OneOf`] selects the reads of one
//! read group. The alignment and all tags that were not requested are dropped.

mod error;
mod read;
mod reader;

#[cfg(test)]
mod tests;

pub use error::{ReadProblem, UnalignedError};
pub use read::Read;
pub(crate) use read::trim_read_number;
pub use reader::{ReadGroupFilter, Reader, RecordSource, Selection};
