//! What the programs around the two libraries of BWA-MEM share: the original (`godwit-bwa`) and bwa-mem2
//! (`godwit-bwa-mem2`).
//!
//! Both take the same options and the same reads, break ties by the same ordinal and leave their answer as SAM text. So
//! command line, options, threads and streams are here, and a program adds the [`MemLibrary`] it links. Nothing here links
//! either.

mod align;
mod error;
mod index;
mod layout;
mod options;
mod program;
mod sequences;

use std::ffi::{CStr, CString, c_int};
use std::path::Path;

use godwit_model::{Genome, GenomeError};

pub use error::Error;
pub use layout::{InsertSizes, MemOptions, Sequence, mem_flags};
pub use options::AlignmentOptions;
pub use program::run_program;

/// A linked library, which is also its loaded index.
///
/// # Safety
/// [`align`](Self::align) must do with the reads what bwa's `mem_process_seqs` does: leave in `sam` of each a NUL-ended
/// string from `malloc`, or null, and keep none of the pointers.
pub unsafe trait MemLibrary: Send + Sync + Sized + 'static {
    /// Name of the program, for its messages.
    const PROGRAM: &'static str;
    /// Name of the engine.
    const ENGINE: &'static str;
    /// Version of the engine.
    const VERSION: &'static str;
    /// What is put behind the reference's path and a dot for each index file, the file that makes the others an index last.
    const INDEX_EXTENSIONS: &'static [&'static str];

    /// Has the library print warnings and errors only.
    fn print_warnings_only();

    /// Refuses options under which this library would not give what it is here for.
    ///
    /// # Errors
    /// What the user is told.
    fn check(options: &AlignmentOptions) -> Result<(), String>;

    /// Loads the index beside `prefix`. Ends the process with a message when something is wrong.
    ///
    /// `share`: map the large files instead of reading them, where the library can.
    fn load(prefix: &CStr, share: bool) -> Self;

    /// Treats alternate contigs as all others.
    fn forget_alternates(&mut self);

    /// Names and lengths of the contigs. Names that are not UTF-8 cannot be told apart from each other in a SAM header
    /// and come with replacement characters.
    ///
    /// # Errors
    /// [`GenomeError`] when two share a name.
    fn genome(&self) -> Result<Genome, GenomeError>;

    /// Writes the index files at `prefix`. May end the process when something is wrong.
    ///
    /// # Errors
    /// The library's status.
    fn build_index(fasta: &CStr, prefix: &CStr) -> Result<(), c_int>;

    /// Aligns the reads as one batch; not to be called twice at a time.
    ///
    /// `read_group`: its ID, at most 255 bytes, empty for none. `first_ordinal`: reads before these.
    ///
    /// # Safety
    /// The pointers of `reads` lead to NUL-ended text that nothing else refers to, or are null, with `bases` the length
    /// of the sequence, whose letters are printable ASCII; what `sam` points to is the caller's to free.
    unsafe fn align(
        &self,
        options: &MemOptions,
        read_group: &CStr,
        first_ordinal: i64,
        reads: &mut [Sequence],
        insert_sizes: Option<&[InsertSizes; 4]>,
    );
}

/// A path as C wants it; `None` for one with a NUL in it, which no file has.
fn c_path(path: &Path) -> Option<CString> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes()).ok()
}
