//! Code that two alignment programs share: `godwit-bwa`, which links the library of bwa, and `godwit-bwa-mem3`, which
//! links that of its successor bwa-mem3.
//!
//! Both programs accept the same options and reads, and choose between equally good alignments by the ordinal of the
//! read in its lane. This crate implements their command line, options, threads and streams. Each program implements
//! [`MemLibrary`] for the library that it links; this crate itself links neither.

mod align_command;
mod bwa_structs;
mod error;
mod options;
mod program;
mod read_columns;
mod sequences;

use std::ffi::{CStr, CString, c_int};
use std::io::Write;
use std::path::Path;

use arrow_array::RecordBatch;
use godwit_engines::aligner::{BlockHeader, StreamEncoder};
use godwit_model::{Genome, GenomeError};

pub use bwa_structs::{BwaMemOptions, BwaSequence, InsertSizeDistribution, mem_flags};
pub use error::Error;
pub use options::AlignmentOptions;
pub use program::run_program;
pub use read_columns::{Read, ReadBatches, ReadColumns};
pub use sequences::{SamTexts, Sequences};

/// An alignment library with a loaded index.
pub trait MemLibrary: Send + Sync + Sized + 'static {
    /// Name of the program, which starts its messages on stderr.
    const PROGRAM: &'static str;
    /// Name of the library, such as `bwa-mem3`.
    const ENGINE: &'static str;
    /// Version of the library.
    const VERSION: &'static str;
    /// Function that builds an index; `None` if the library cannot build one.
    const BUILD_INDEX: Option<BuildIndex>;
    /// The reads of a block in the form that the library needs.
    type Reads: BlockReads;
    /// The aligned records of a block as the library returns them.
    type Answer: BlockRecords;

    /// Prepares the process. Called before any other function of the library; limits its messages to warnings and
    /// errors.
    ///
    /// # Errors
    /// The message for the user if the processor cannot run the library.
    fn prepare_process() -> Result<(), String>;

    /// Rejects options for which this library would return other records than bwa.
    ///
    /// # Errors
    /// The message for the user that names the rejected option.
    fn check_options(options: &AlignmentOptions) -> Result<(), String>;

    /// Loads an index. If an error occurs inside the library, the library may print a message and exit the process.
    ///
    /// # Errors
    /// [`Error::LoadIndex`] if the index is missing or damaged; [`Error::Usage`] if the path is invalid.
    fn load(options: &LoadOptions<'_>) -> Result<Self, Error>;

    /// Returns the names and lengths of the contigs of the index. Bytes of a name that are not UTF-8 become replacement
    /// characters.
    ///
    /// # Errors
    /// [`GenomeError`] if two contigs have the same name.
    fn genome(&self) -> Result<Genome, GenomeError>;

    /// Aligns a block of reads, which corresponds to one batch of `bwa mem`. Only one call runs at a time.
    ///
    /// # Errors
    /// [`Error::AlignBlock`] if the library fails; [`Error::InvalidRecord`] if it returns an invalid record.
    fn align(&self, options: &AlignmentOptions, block: ReadBlock<Self::Reads>) -> Result<Self::Answer, Error>;
}

/// A function that builds the index of the FASTA file `fasta` and writes it to files whose paths start with `prefix`.
/// It returns the library's status if that is not 0. If an error occurs inside the library, the library may exit the
/// process.
pub type BuildIndex = fn(fasta: &CStr, prefix: &CStr) -> Result<(), c_int>;

/// Options for loading an index.
pub struct LoadOptions<'a> {
    /// Path prefix of the index files.
    pub reference: &'a Path,
    /// True to memory-map the large index files instead of reading them, if the library supports that.
    pub share_index: bool,
    /// `-j`: treat alternate contigs as primary ones.
    pub ignore_alternates: bool,
    /// Number of threads for loading the index, at least 1.
    pub threads: usize,
}

impl LoadOptions<'_> {
    /// Returns the path prefix of the index files as a C string.
    ///
    /// # Errors
    /// [`Error::Usage`] if the path contains a NUL.
    pub fn c_prefix(&self) -> Result<CString, Error> {
        path_to_c_string(self.reference)
    }
}

/// A block of reads to align.
pub struct ReadBlock<R> {
    /// Header of the block, from the metadata of the received stream.
    pub header: BlockHeader,
    /// ID of the read group, at most 255 bytes; empty if there is no read group.
    pub read_group: CString,
    /// Number of reads in the lane that precede this block.
    pub first_ordinal: i64,
    /// The reads of the block.
    pub reads: R,
}

/// A collector of the reads of a block.
pub trait BlockReads: Default + Send + 'static {
    /// Adds the reads of an Arrow record batch with the schema `schema::pipe_reads`.
    ///
    /// # Errors
    /// [`Error::InvalidRead`] if the library cannot process a read.
    fn push(&mut self, batch: &RecordBatch, keep_comments: bool) -> Result<(), Error>;

    /// Returns the number of reads added so far.
    fn read_count(&self) -> usize;
}

/// The aligned records of a block, in the order of its reads.
pub trait BlockRecords: Send + 'static {
    /// Writes the records to `streams` and returns the number of reads.
    ///
    /// # Errors
    /// [`Error::Output`] if writing fails; [`Error::InvalidRecord`] if the library returned an invalid record.
    fn write<W: Write>(self, header: &BlockHeader, streams: &mut StreamEncoder<'_, W>) -> Result<u64, Error>;
}

/// Returns a path as a C string.
///
/// # Errors
/// [`Error::Usage`] if the path contains a NUL.
fn path_to_c_string(path: &Path) -> Result<CString, Error> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::Usage { message: format!("{} is not a path", path.display()) })
}
