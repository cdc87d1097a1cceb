//! Shared parts of the programs that link a library of BWA-MEM: the original (`godwit-bwa`) and its successor
//! (`godwit-bwa-mem3`).
//!
//! All accept the same options and the same reads and break ties by the same ordinal. So command line, options, threads and
//! streams are here, and a program adds the [`MemLibrary`] that it links. This crate links no library.

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

/// A linked library, which is also its loaded index.
pub trait MemLibrary: Send + Sync + Sized + 'static {
    /// Name of the program, for its messages.
    const PROGRAM: &'static str;
    /// Name of the engine.
    const ENGINE: &'static str;
    /// Version of the engine.
    const VERSION: &'static str;
    /// Writes the index files of a reference at a prefix; `None` if the library cannot.
    const BUILD_INDEX: Option<BuildIndex>;
    /// The reads of a block in the library's form.
    type Reads: BlockReads;
    /// The library's records of a block.
    type Answer: BlockRecords;

    /// Prepares the process, before anything else of the library is called: it prints warnings and errors only.
    ///
    /// # Errors
    /// The message for the user if the processor cannot run the library.
    fn prepare_process() -> Result<(), String>;

    /// Rejects options under which the records of this library would not be bwa's.
    ///
    /// # Errors
    /// The message for the user.
    fn check_options(options: &AlignmentOptions) -> Result<(), String>;

    /// Loads an index. The library may end the process with a message if an error occurs.
    ///
    /// # Errors
    /// [`Error::LoadIndex`] and [`Error::Usage`].
    fn load(options: &LoadOptions<'_>) -> Result<Self, Error>;

    /// Returns names and lengths of the contigs. Names that are not UTF-8 cannot be distinguished in a SAM header; their
    /// invalid bytes become replacement characters.
    ///
    /// # Errors
    /// [`GenomeError`] if two share a name.
    fn genome(&self) -> Result<Genome, GenomeError>;

    /// Aligns a block as one batch of bwa; calls never overlap.
    ///
    /// # Errors
    /// [`Error::AlignBlock`] and [`Error::InvalidRecord`].
    fn align(&self, options: &AlignmentOptions, block: ReadBlock<Self::Reads>) -> Result<Self::Answer, Error>;
}

/// A function that writes the index files of a reference at a prefix, or returns the status of the library. The library may
/// end the process if it fails.
pub type BuildIndex = fn(fasta: &CStr, prefix: &CStr) -> Result<(), c_int>;

/// Options for loading an index.
pub struct LoadOptions<'a> {
    /// Path prefix of the index files.
    pub reference: &'a Path,
    /// True to map the large files instead of reading them, if the library can.
    pub share_index: bool,
    /// `-j`: treat alternate contigs as primary ones.
    pub ignore_alternates: bool,
    /// Number of threads for loading, at least 1.
    pub threads: usize,
}

impl LoadOptions<'_> {
    /// Returns the path as a C string.
    ///
    /// # Errors
    /// [`Error::Usage`] for a path with a NUL, which no file has.
    pub fn c_prefix(&self) -> Result<CString, Error> {
        path_to_c_string(self.reference)
    }
}

/// A block to align.
pub struct ReadBlock<R> {
    /// Header of the block.
    pub header: BlockHeader,
    /// ID of the read group, at most 255 bytes, empty for none.
    pub read_group: CString,
    /// Number of reads of the lane before this block.
    pub first_ordinal: i64,
    /// The reads.
    pub reads: R,
}

/// A collector of the reads of a block.
pub trait BlockReads: Default + Send + 'static {
    /// Adds the reads of a batch of `schema::reads`.
    ///
    /// # Errors
    /// [`Error::InvalidRead`] for a read that the library cannot process.
    fn push(&mut self, batch: &RecordBatch, keep_comments: bool) -> Result<(), Error>;

    /// Returns the number of reads.
    fn read_count(&self) -> usize;
}

/// The aligned records of a block, in the order of its reads.
pub trait BlockRecords: Send + 'static {
    /// Writes the records and returns the number of reads.
    ///
    /// # Errors
    /// [`Error::Output`], and [`Error::InvalidRecord`] for output that is not a record.
    fn write<W: Write>(self, header: &BlockHeader, streams: &mut StreamEncoder<'_, W>) -> Result<u64, Error>;
}

/// Returns a path as a C string.
///
/// # Errors
/// [`Error::Usage`] for a path with a NUL, which no file has.
fn path_to_c_string(path: &Path) -> Result<CString, Error> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::Usage { message: format!("{} is not a path", path.display()) })
}
