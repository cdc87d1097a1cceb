//! The reads of a SAM or BAM file, or of another ([`RecordSource`]), as they came from the sequencer.
//!
//! Flows in: a file whose reads are not aligned, or aligned but still in the order of their names. Flows out: templates, one
//! read or a pair with read 1 first, as `samtools fastq` 1.16 would print them: secondary and supplementary records left
//! out, reads that were reversed turned back, qualities that are missing taken as 1. FLAG 0x1 of the first record says
//! whether the file is paired; mates have to be neighbours, in either order. Where samtools drops a read, prints it
//! elsewhere or prints what is no FASTQ, this refuses and names the record.
//!
//! A file of several read groups is several lanes; [`Take::Group`] reads one of them and passes over the others. Mapping
//! and every tag that is not asked for are left behind.

mod error;
mod read;
mod reader;

#[cfg(test)]
mod tests;

pub use error::{ReadProblem, UnalignedError};
pub use read::Read;
pub use reader::{Reader, RecordSource, Selection, Take};
