//! Parts that the programs around the libraries of BWA-MEM share: the original (`godwit-bwa`) and its successor
//! (`godwit-bwa-mem3`).
//!
//! All take the same options and the same reads and break ties by the same ordinal. So command line, options, threads and
//! streams are here, and a program adds the [`MemLibrary`] it links. Nothing here links one.

mod align;
mod error;
mod layout;
mod options;
mod program;
mod reads;
mod sequences;

use std::ffi::{CStr, CString, c_int};
use std::io::Write;
use std::path::Path;

use arrow_array::RecordBatch;
use godwit_engines::aligner::{BlockHeader, StreamEncoder};
use godwit_model::{Genome, GenomeError};

pub use error::Error;
pub use layout::{InsertSizes, MemOptions, Sequence, mem_flags};
pub use options::AlignmentOptions;
pub use program::run_program;
pub use reads::{Read, ReadBatches, ReadColumns};
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
    /// The reads of a block as the library takes them.
    type Reads: BlockReads;
    /// The library's records of a block.
    type Answer: BlockAnswer;

    /// Prepares the process, before anything else of the library is called: it prints warnings and errors only.
    ///
    /// # Errors
    /// The message for the user if the processor cannot run the library.
    fn prepare() -> Result<(), String>;

    /// Refuses options under which this library would not give what it is here for.
    ///
    /// # Errors
    /// The message for the user.
    fn check(options: &AlignmentOptions) -> Result<(), String>;

    /// Loads an index. The library may end the process with a message when something is wrong.
    ///
    /// # Errors
    /// [`Error::Load`] and [`Error::Usage`].
    fn load(options: &LoadOptions<'_>) -> Result<Self, Error>;

    /// Names and lengths of the contigs. Names that are not UTF-8 cannot be told apart from each other in a SAM header
    /// and come with replacement characters.
    ///
    /// # Errors
    /// [`GenomeError`] when two share a name.
    fn genome(&self) -> Result<Genome, GenomeError>;

    /// Aligns a block as one batch of bwa; not called twice at a time.
    ///
    /// # Errors
    /// [`Error::Align`] and [`Error::Record`].
    fn align(&self, options: &AlignmentOptions, block: ReadBlock<Self::Reads>) -> Result<Self::Answer, Error>;
}

/// Writes the index files of a reference at a prefix, or returns the status of the library. The library may end the process when
/// it fails.
pub type BuildIndex = fn(fasta: &CStr, prefix: &CStr) -> Result<(), c_int>;

/// Options of loading an index.
pub struct LoadOptions<'a> {
    /// Path that the names of the index files begin with.
    pub reference: &'a Path,
    /// Map the large files instead of reading them, where the library can.
    pub share: bool,
    /// `-j`: treat alternate contigs as all others.
    pub ignore_alternates: bool,
    /// Threads that may load, at least 1.
    pub threads: usize,
}

impl LoadOptions<'_> {
    /// The path as C has it.
    ///
    /// # Errors
    /// [`Error::Usage`] for one with a NUL, which no file has.
    pub fn c_prefix(&self) -> Result<CString, Error> {
        c_path(self.reference)
    }
}

/// A block to align.
pub struct ReadBlock<R> {
    /// Header of the block.
    pub header: BlockHeader,
    /// ID of the read group, at most 255 bytes, empty for none.
    pub read_group: CString,
    /// Reads of the lane before this block.
    pub first_ordinal: i64,
    /// The reads.
    pub reads: R,
}

/// Collects the reads of a block.
pub trait BlockReads: Default + Send + 'static {
    /// Adds the reads of a batch of `schema::reads`.
    ///
    /// # Errors
    /// [`Error::Read`] for a read that the library cannot take.
    fn push(&mut self, batch: &RecordBatch, keep_comments: bool) -> Result<(), Error>;

    /// Number of reads.
    fn reads(&self) -> usize;
}

/// The aligned records of a block, in the order of its reads.
pub trait BlockAnswer: Send + 'static {
    /// Writes the records and returns the number of reads.
    ///
    /// # Errors
    /// [`Error::Output`], and [`Error::Record`] for an answer that is not a record.
    fn write<W: Write>(self, header: &BlockHeader, streams: &mut StreamEncoder<'_, W>) -> Result<u64, Error>;
}

/// Returns a path as a C string.
///
/// # Errors
/// [`Error::Usage`] for a path with a NUL, which no file has.
fn c_path(path: &Path) -> Result<CString, Error> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::Usage { message: format!("{} is not a path", path.display()) })
}
