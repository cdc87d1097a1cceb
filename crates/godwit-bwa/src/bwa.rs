//! The C library and the shim around it: structures as they lie in memory, and safe functions.
//!
//! All `unsafe` of this program is here and in [`crate::sequences`]. The layouts are those of bwa 0.7.17; `shim.c` refuses to
//! compile with any other, and the assertions below tie this side to the same numbers.

use std::ffi::{CStr, CString, c_char, c_int};
use std::mem::offset_of;
use std::path::Path;
use std::ptr::NonNull;

use godwit_model::{Contig, Genome, GenomeError};

/// `MEM_F_*`: bits of [`MemOptions::flag`].
pub mod mem_flags {
    /// Reads come in pairs.
    pub const PAIRED: i32 = 0x2;
    /// `-P`
    pub const NO_PAIRING: i32 = 0x4;
    /// `-a`
    pub const ALL: i32 = 0x8;
    /// `-M`
    pub const NO_MULTI: i32 = 0x10;
    /// `-S`
    pub const NO_RESCUE: i32 = 0x20;
    /// `-V`
    pub const REFERENCE_HEADER: i32 = 0x100;
    /// `-Y`
    pub const SOFT_CLIP: i32 = 0x200;
    /// `-5`
    pub const PRIMARY_5: i32 = 0x800;
    /// `-q`
    pub const KEEP_SUPPLEMENTARY_MAPQ: i32 = 0x1000;
}

/// `mem_opt_t`. Names are bwa's, where its comments explain them.
#[derive(Clone, Debug, PartialEq)]
#[repr(C)]
#[allow(missing_docs)]
pub struct MemOptions {
    pub a: c_int,
    pub b: c_int,
    pub o_del: c_int,
    pub e_del: c_int,
    pub o_ins: c_int,
    pub e_ins: c_int,
    pub pen_unpaired: c_int,
    pub pen_clip5: c_int,
    pub pen_clip3: c_int,
    pub w: c_int,
    pub zdrop: c_int,
    pub max_mem_intv: u64,
    pub min_score: c_int,
    pub flag: c_int,
    pub min_seed_len: c_int,
    pub min_chain_weight: c_int,
    pub max_chain_extend: c_int,
    pub split_factor: f32,
    pub split_width: c_int,
    pub max_occ: c_int,
    pub max_chain_gap: c_int,
    pub n_threads: c_int,
    pub chunk_size: c_int,
    pub mask_level: f32,
    pub drop_ratio: f32,
    pub xa_drop_ratio: f32,
    pub mask_level_redun: f32,
    pub mapq_coef_len: f32,
    pub mapq_coef_fac: c_int,
    pub max_ins: c_int,
    pub max_matesw: c_int,
    pub max_xa_hits: c_int,
    pub max_xa_hits_alt: c_int,
    pub mat: [i8; 25],
}

const _: () = assert!(
    size_of::<MemOptions>() == 168
        && offset_of!(MemOptions, max_mem_intv) == 48
        && offset_of!(MemOptions, flag) == 60
        && offset_of!(MemOptions, n_threads) == 92
        && offset_of!(MemOptions, mat) == 140
);

/// `mem_pestat_t`: the insert sizes of one orientation.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct InsertSizes {
    /// Smallest insert of a proper pair, bases.
    pub low: c_int,
    /// Largest insert of a proper pair, bases.
    pub high: c_int,
    /// Not 0: no pair of this orientation is proper.
    pub failed: c_int,
    /// Mean, bases.
    pub mean: f64,
    /// Standard deviation, bases.
    pub deviation: f64,
}

const _: () = assert!(size_of::<InsertSizes>() == 32 && offset_of!(InsertSizes, mean) == 16);

/// `bseq1_t`: one read.
#[repr(C)]
pub(crate) struct Sequence {
    pub(crate) bases: c_int,
    pub(crate) id: c_int,
    pub(crate) name: *mut c_char,
    pub(crate) comment: *mut c_char,
    pub(crate) sequence: *mut c_char,
    pub(crate) quality: *mut c_char,
    pub(crate) sam: *mut c_char,
}

const _: () =
    assert!(size_of::<Sequence>() == 48 && offset_of!(Sequence, name) == 8 && offset_of!(Sequence, sam) == 40);

/// `godwit_index` of the shim.
#[repr(C)]
pub(crate) struct RawIndex {
    _private: [u8; 0],
}

unsafe extern "C" {
    fn mem_opt_init() -> *mut MemOptions;
    fn bwa_fill_scmat(a: c_int, b: c_int, mat: *mut i8);
    fn bwa_idx_build(fasta: *const c_char, prefix: *const c_char, algorithm: c_int, block_bases: c_int) -> c_int;
    fn godwit_index_load(prefix: *const c_char, share: c_int) -> *mut RawIndex;
    fn godwit_index_contigs(index: *const RawIndex) -> i32;
    fn godwit_index_contig(index: *const RawIndex, contig: i32, length: *mut i32, is_alt: *mut i32) -> *const c_char;
    fn godwit_index_forget_alternates(index: *mut RawIndex);
    fn godwit_set_verbosity(verbosity: c_int);
    pub(crate) fn godwit_align(
        options: *const MemOptions,
        index: *const RawIndex,
        read_group: *const c_char,
        first_ordinal: i64,
        reads: c_int,
        sequences: *mut Sequence,
        insert_sizes: *const InsertSizes,
    );
}

impl Default for MemOptions {
    fn default() -> Self {
        // SAFETY: mem_opt_init returns one initialised mem_opt_t from calloc, whose layout is asserted to be ours; it is
        // copied out before it is freed.
        unsafe {
            let options = mem_opt_init();
            let copy = (*options).clone();
            libc::free(options.cast());
            copy
        }
    }
}

impl MemOptions {
    /// Fills the scoring matrix from match score and mismatch penalty.
    pub fn fill_matrix(&mut self) {
        // SAFETY: the function writes the 25 entries of the matrix.
        unsafe { bwa_fill_scmat(self.a, self.b, self.mat.as_mut_ptr()) }
    }
}

/// Has bwa print warnings and errors only: its progress messages would bury them.
pub fn print_warnings_only() {
    // SAFETY: sets a global before any other thread runs.
    unsafe { godwit_set_verbosity(2) }
}

/// `bwa index` with its default algorithm and block size: writes `PREFIX.amb`, `.ann`, `.bwt`, `.pac` and `.sa`. Ends the
/// process when something is wrong.
pub fn build_index(fasta: &CStr, prefix: &CStr) -> Result<(), c_int> {
    const BWTALGO_AUTO: c_int = 0;
    const BLOCK_BASES: c_int = 10_000_000;
    // SAFETY: both strings are NUL-ended and outlive the call.
    match unsafe { bwa_idx_build(fasta.as_ptr(), prefix.as_ptr(), BWTALGO_AUTO, BLOCK_BASES) } {
        0 => Ok(()),
        status => Err(status),
    }
}

/// A loaded index.
pub struct Index {
    raw: NonNull<RawIndex>,
}

// SAFETY: nothing in the index changes after it was loaded: `forget_alternates` takes `&mut`, and alignment only reads it.
unsafe impl Send for Index {}
// SAFETY: as above.
unsafe impl Sync for Index {}

impl Index {
    /// Loads the index beside `prefix`. Ends the process with a message when something is wrong, as bwa does.
    ///
    /// `share`: map the large files instead of reading them.
    pub fn load(prefix: &CStr, share: bool) -> Self {
        // SAFETY: the string is NUL-ended; the shim returns a whole index or exits.
        let raw = unsafe { godwit_index_load(prefix.as_ptr(), c_int::from(share)) };
        Self { raw: NonNull::new(raw).expect("the shim exits rather than return NULL") }
    }

    pub(crate) fn as_ptr(&self) -> *const RawIndex {
        self.raw.as_ptr()
    }

    /// Treats alternate contigs as all others.
    pub fn forget_alternates(&mut self) {
        // SAFETY: the index is whole, and nobody else looks at it.
        unsafe { godwit_index_forget_alternates(self.raw.as_ptr()) }
    }

    /// Names and lengths of the contigs. Names that are not UTF-8 cannot be told apart from each other in a SAM header
    /// and come with replacement characters.
    ///
    /// # Errors
    /// [`GenomeError`] when two share a name.
    pub fn genome(&self) -> Result<Genome, GenomeError> {
        // SAFETY: the index is whole.
        let contigs = unsafe { godwit_index_contigs(self.raw.as_ptr()) };
        Genome::new((0..contigs).map(|contig| self.contig(contig)).collect())
    }

    fn contig(&self, contig: i32) -> Contig {
        let (mut length, mut is_alt) = (0, 0);
        // SAFETY: `contig` is in range; the name is NUL-ended, lives as long as the index and is copied.
        let name = unsafe { CStr::from_ptr(godwit_index_contig(self.raw.as_ptr(), contig, &mut length, &mut is_alt)) };
        Contig { name: name.to_string_lossy().into_owned(), length: length.max(0) as u32, alternate: is_alt != 0 }
    }
}

/// A path as C wants it; `None` for one with a NUL in it, which no file has.
pub fn c_path(path: &Path) -> Option<CString> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes()).ok()
}
