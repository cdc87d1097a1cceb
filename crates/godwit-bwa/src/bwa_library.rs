//! The C library and its shim: structures with their memory layout, and safe functions.
//!
//! All `unsafe` of this program is here. The layouts are those of bwa 0.7.17; `shim.c` fails to compile with any other.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::{self, NonNull};

use godwit_mem::{
    AlignmentOptions, BuildIndex, BwaMemOptions, BwaSequence, Error, InsertSizeDistribution, LoadOptions, MemLibrary,
    ReadBlock, SamTexts, Sequences, mem_flags,
};
use godwit_model::{Contig, Genome, GenomeError};

/// The opaque `godwit_index` of the shim.
#[repr(C)]
struct RawIndex {
    _private: [u8; 0],
}

unsafe extern "C" {
    fn bwa_idx_build(fasta: *const c_char, prefix: *const c_char, algorithm: c_int, block_bases: c_int) -> c_int;
    fn godwit_index_load(prefix: *const c_char, share: c_int) -> *mut RawIndex;
    fn godwit_index_contigs(index: *const RawIndex) -> i32;
    fn godwit_index_contig(index: *const RawIndex, contig: i32, length: *mut i32, is_alt: *mut i32) -> *const c_char;
    fn godwit_index_clear_alternates(index: *mut RawIndex);
    fn godwit_set_verbosity(verbosity: c_int);
    fn godwit_align(
        options: *const BwaMemOptions,
        index: *const RawIndex,
        read_group: *const c_char,
        first_ordinal: i64,
        reads: c_int,
        sequences: *mut BwaSequence,
        insert_sizes: *const InsertSizeDistribution,
    );
}

/// The linked library with a loaded index.
pub struct BwaLibrary {
    raw: NonNull<RawIndex>,
}

// SAFETY: nothing in the index changes after `load` has returned: alignment only reads it.
unsafe impl Send for BwaLibrary {}
// SAFETY: as above.
unsafe impl Sync for BwaLibrary {}

impl BwaLibrary {
    fn contig(&self, contig: i32) -> Contig {
        let (mut length, mut is_alt) = (0, 0);
        // SAFETY: `contig` is in range; the name is NUL-terminated, lives as long as the index and is copied.
        let name = unsafe { CStr::from_ptr(godwit_index_contig(self.raw.as_ptr(), contig, &mut length, &mut is_alt)) };
        Contig { name: name.to_string_lossy().into_owned(), length: length.max(0) as u32, alternate: is_alt != 0 }
    }
}

impl MemLibrary for BwaLibrary {
    const PROGRAM: &'static str = "godwit-bwa";
    const ENGINE: &'static str = "bwa";
    /// The version that the build found.
    const VERSION: &'static str = env!("GODWIT_LIBBWA_VERSION");
    const BUILD_INDEX: Option<BuildIndex> = Some(build_index);
    type Reads = Sequences;
    type Answer = SamTexts;

    /// Silences progress messages, which would hide warnings.
    fn prepare_process() -> Result<(), String> {
        // SAFETY: sets a global before any other thread runs.
        unsafe { godwit_set_verbosity(2) }
        Ok(())
    }

    fn check_options(_: &AlignmentOptions) -> Result<(), String> {
        Ok(())
    }

    fn load(options: &LoadOptions<'_>) -> Result<Self, Error> {
        let prefix = options.c_prefix()?;
        // SAFETY: the string is NUL-terminated; the shim returns a complete index or exits.
        let raw = unsafe { godwit_index_load(prefix.as_ptr(), c_int::from(options.share_index)) };
        let raw = NonNull::new(raw).expect("the shim exits rather than return NULL");
        if options.ignore_alternates {
            // SAFETY: the index is complete, and nothing else refers to it.
            unsafe { godwit_index_clear_alternates(raw.as_ptr()) }
        }
        Ok(Self { raw })
    }

    fn genome(&self) -> Result<Genome, GenomeError> {
        // SAFETY: the index is complete.
        let contigs = unsafe { godwit_index_contigs(self.raw.as_ptr()) };
        Genome::new((0..contigs).map(|contig| self.contig(contig)).collect())
    }

    fn align(&self, options: &AlignmentOptions, block: ReadBlock<Sequences>) -> Result<SamTexts, Error> {
        let mut mem = options.mem.clone();
        if block.header.paired {
            mem.flag |= mem_flags::PAIRED;
        }
        let insert_sizes = options.insert_sizes.as_ref().map_or(ptr::null(), |sizes| sizes.as_ptr());
        let (read_group, first_ordinal) = (&block.read_group, block.first_ordinal);
        let align = |reads: &mut [BwaSequence]| {
            // SAFETY: the index is complete, `reads` are as `align_with` promises and as many as passed, the read group is
            // NUL-terminated, `insert_sizes` is null or four long. Printable ASCII is within bwa's 256-entry tables.
            unsafe {
                godwit_align(
                    &mem,
                    self.raw.as_ptr(),
                    read_group.as_ptr(),
                    first_ordinal,
                    reads.len() as c_int,
                    reads.as_mut_ptr(),
                    insert_sizes,
                );
            }
        };
        // SAFETY: `align` is mem_process_seqs itself.
        Ok(unsafe { block.reads.align_with(align) })
    }
}

/// Calls `bwa index` with its default algorithm and block size.
fn build_index(fasta: &CStr, prefix: &CStr) -> Result<(), c_int> {
    const BWTALGO_AUTO: c_int = 0;
    const BLOCK_BASES: c_int = 10_000_000;
    // SAFETY: both strings are NUL-terminated and outlive the call.
    match unsafe { bwa_idx_build(fasta.as_ptr(), prefix.as_ptr(), BWTALGO_AUTO, BLOCK_BASES) } {
        0 => Ok(()),
        status => Err(status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" {
        fn mem_opt_init() -> *mut BwaMemOptions;
        fn bwa_fill_scmat(a: c_int, b: c_int, mat: *mut i8);
    }

    #[test]
    fn options_start_as_the_librarys_own() {
        // SAFETY: mem_opt_init returns one initialised mem_opt_t from calloc, whose layout the shim asserts to equal ours.
        let theirs = unsafe {
            let options = mem_opt_init();
            let copy = (*options).clone();
            libc::free(options.cast());
            copy
        };
        assert_eq!(BwaMemOptions::default(), theirs);
    }

    #[test]
    fn scoring_matrices_are_the_librarys_own() {
        for (a, b) in [(1, 4), (2, 3), (100, 200), (-1, -5)] {
            let mut ours = BwaMemOptions { a, b, ..BwaMemOptions::default() };
            ours.fill_matrix();
            let mut theirs = [0; 25];
            // SAFETY: the function writes the 25 entries of the matrix.
            unsafe { bwa_fill_scmat(a, b, theirs.as_mut_ptr()) }
            assert_eq!(ours.mat, theirs);
        }
    }
}
