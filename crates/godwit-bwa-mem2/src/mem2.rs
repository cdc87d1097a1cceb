//! The C++ library and the shim around it, for the instructions this processor has.
//!
//! All `unsafe` of this program is here. `shim.cpp` asserts the layouts or copies field by field.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{self, NonNull};

use godwit_mem::{AlignmentOptions, InsertSizes, MemLibrary, MemOptions, Sequence};
use godwit_model::{Contig, Genome, GenomeError};

/// bwa-mem2 keeps its threads' buffers in arrays of this length (`MAX_THREADS`, macro.h).
const MAX_THREADS: c_int = 256;

/// `godwit_index` of the shim.
#[repr(C)]
struct RawIndex {
    _private: [u8; 0],
}

/// `godwit_mem2` of the shim: the library for one instruction set.
#[repr(C)]
struct Table {
    defaults: unsafe extern "C" fn(options: *mut MemOptions),
    load: unsafe extern "C" fn(prefix: *const c_char) -> *mut RawIndex,
    contigs: unsafe extern "C" fn(index: *const RawIndex) -> i32,
    contig: unsafe extern "C" fn(*const RawIndex, contig: i32, length: *mut i32, is_alt: *mut i32) -> *const c_char,
    forget_alternates: unsafe extern "C" fn(index: *mut RawIndex),
    align: unsafe extern "C" fn(
        options: *const MemOptions,
        index: *mut RawIndex,
        read_group: *const c_char,
        first_ordinal: i64,
        reads: c_int,
        sequences: *mut Sequence,
        insert_sizes: *const c_void,
    ),
    build: unsafe extern "C" fn(fasta: *const c_char, prefix: *const c_char) -> c_int,
}

unsafe extern "C" {
    static godwit_mem2_sse41: Table;
    static godwit_mem2_avx2: Table;
    static godwit_mem2_avx512bw: Table;
}

/// Environment variable that holds the instructions down, for measurements and tests.
const INSTRUCTIONS: &str = "GODWIT_BWA_MEM2_INSTRUCTIONS";

/// The best of the tables for this processor, at most that of [`INSTRUCTIONS`].
fn table() -> &'static Table {
    let at_most = std::env::var(INSTRUCTIONS).unwrap_or_default();
    let avx512 = is_x86_feature_detected!("avx512bw") && !["sse41", "avx2"].contains(&at_most.as_str());
    let avx2 = is_x86_feature_detected!("avx2") && at_most != "sse41";
    // SAFETY: the tables are constants, initialised before main.
    unsafe {
        match (avx512, avx2) {
            (true, _) => &godwit_mem2_avx512bw,
            (_, true) => &godwit_mem2_avx2,
            _ => &godwit_mem2_sse41,
        }
    }
}

/// The library with a loaded index.
pub struct Mem2 {
    table: &'static Table,
    raw: NonNull<RawIndex>,
}

// SAFETY: the index does not belong to a thread.
unsafe impl Send for Mem2 {}
// SAFETY: what `align` changes is scratch space, and it is never called twice at a time; contigs change in
// `forget_alternates` alone, which takes `&mut`.
unsafe impl Sync for Mem2 {}

impl Mem2 {
    fn contig(&self, contig: i32) -> Contig {
        let (mut length, mut is_alt) = (0, 0);
        // SAFETY: `contig` is in range; the name is NUL-ended, lives as long as the index and is copied.
        let name = unsafe { CStr::from_ptr((self.table.contig)(self.raw.as_ptr(), contig, &mut length, &mut is_alt)) };
        Contig { name: name.to_string_lossy().into_owned(), length: length.max(0) as u32, alternate: is_alt != 0 }
    }
}

// SAFETY: `align` is bwa-mem2's mem_process_seqs, which keeps to the same rules as bwa's.
unsafe impl MemLibrary for Mem2 {
    const PROGRAM: &'static str = "godwit-bwa-mem2";
    const ENGINE: &'static str = "bwa-mem2";
    const VERSION: &'static str = "2.2.1";
    const INDEX_EXTENSIONS: &'static [&'static str] = &["amb", "ann", "pac", "0123", "bwt.2bit.64"];

    /// It is compiled so (`shim/quiet.h`).
    fn print_warnings_only() {
        if !is_x86_feature_detected!("sse4.1") {
            eprintln!(
                "{}: error: this processor lacks SSE 4.1, which bwa-mem2 needs; use --aligner bwa",
                Self::PROGRAM
            );
            std::process::exit(1);
        }
    }

    /// bwa-mem2 2.2.1 does not score as bwa 0.7.17 does with another match score than 1, and some reads come out
    /// differently with the presets for long reads.
    fn check(options: &AlignmentOptions) -> Result<(), String> {
        let other = |option: &str| {
            format!("{option} does not give bwa's alignments with bwa-mem2 2.2.1; use --aligner bwa for that")
        };
        match &options.preset {
            _ if options.mem.a != 1 => Err(other("a match score other than 1 (-A)")),
            Some(preset) if preset != "intractg" => Err(other(&format!("the preset -x {preset}"))),
            _ => Ok(()),
        }
    }

    /// `share` is not possible: bwa-mem2 reads its index into memory of its own.
    fn load(prefix: &CStr, _share: bool) -> Self {
        let table = table();
        // SAFETY: the string is NUL-ended; the shim returns a whole index or exits.
        let raw = unsafe { (table.load)(prefix.as_ptr()) };
        Self { table, raw: NonNull::new(raw).expect("the shim exits rather than return NULL") }
    }

    fn forget_alternates(&mut self) {
        // SAFETY: the index is whole, and nobody else looks at it.
        unsafe { (self.table.forget_alternates)(self.raw.as_ptr()) }
    }

    fn genome(&self) -> Result<Genome, GenomeError> {
        // SAFETY: the index is whole.
        let contigs = unsafe { (self.table.contigs)(self.raw.as_ptr()) };
        Genome::new((0..contigs).map(|contig| self.contig(contig)).collect())
    }

    fn build_index(fasta: &CStr, prefix: &CStr) -> Result<(), c_int> {
        // SAFETY: both strings are NUL-ended and outlive the call.
        match unsafe { (table().build)(fasta.as_ptr(), prefix.as_ptr()) } {
            0 => Ok(()),
            status => Err(status),
        }
    }

    unsafe fn align(
        &self,
        options: &MemOptions,
        read_group: &CStr,
        first_ordinal: i64,
        reads: &mut [Sequence],
        insert_sizes: Option<&[InsertSizes; 4]>,
    ) {
        let options = MemOptions { n_threads: options.n_threads.min(MAX_THREADS), ..options.clone() };
        let insert_sizes = insert_sizes.map_or(ptr::null(), |sizes| sizes.as_ptr().cast());
        // SAFETY: the index is whole and is this table's, `reads` are as the caller promises and as many as told, the read
        // group is NUL-ended, `insert_sizes` is null or four long, threads never change from call to call. Letters of
        // printable ASCII are within bwa-mem2's 256-entry tables.
        unsafe {
            (self.table.align)(
                &options,
                self.raw.as_ptr(),
                read_group.as_ptr(),
                first_ordinal,
                reads.len() as c_int,
                reads.as_mut_ptr(),
                insert_sizes,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_start_as_the_librarys_own() {
        let mut theirs = MemOptions { a: 99, ..MemOptions::default() };
        // SAFETY: fills all fields of one structure, whose layout the shim asserts.
        unsafe { (table().defaults)(&mut theirs) };
        assert_eq!(MemOptions::default(), theirs);
    }

    #[test]
    fn what_gives_other_alignments_than_bwas_is_refused() {
        let check = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            Mem2::check(&AlignmentOptions::parse(&words, 1).unwrap_or_else(|error| panic!("{error}")))
        };
        assert!(check("-M -Y -x intractg -B 3").is_ok());
        assert!(check("-A 2").unwrap_err().contains("-A"));
        assert!(check("-x ont2d").unwrap_err().contains("-x ont2d"));
    }
}
