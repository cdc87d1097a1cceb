//! The C++ library and the shim around it, for the instructions this processor has.
//!
//! All `unsafe` of this program is here. `shim.cpp` asserts the layouts or copies field by field.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{self, NonNull};

use godwit_mem::{
    AlignmentOptions, Error, IndexBuilder, LoadOptions, MemLibrary, MemOptions, ReadBlock, SamTexts, Sequence,
    Sequences, mem_flags,
};
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
// `load` alone.
unsafe impl Sync for Mem2 {}

impl Mem2 {
    fn contig(&self, contig: i32) -> Contig {
        let (mut length, mut is_alt) = (0, 0);
        // SAFETY: `contig` is in range; the name is NUL-ended, lives as long as the index and is copied.
        let name = unsafe { CStr::from_ptr((self.table.contig)(self.raw.as_ptr(), contig, &mut length, &mut is_alt)) };
        Contig { name: name.to_string_lossy().into_owned(), length: length.max(0) as u32, alternate: is_alt != 0 }
    }
}

impl MemLibrary for Mem2 {
    const PROGRAM: &'static str = "godwit-bwa-mem2";
    const ENGINE: &'static str = "bwa-mem2";
    const VERSION: &'static str = "2.2.1";
    const INDEX_BUILDER: Option<&'static IndexBuilder> =
        Some(&IndexBuilder { extensions: &["amb", "ann", "pac", "0123", "bwt.2bit.64"], build: build_index });
    type Reads = Sequences;
    type Answer = SamTexts;

    /// It is compiled to print warnings and errors only (`shim/quiet.h`).
    fn prepare() -> Result<(), String> {
        if is_x86_feature_detected!("sse4.1") {
            return Ok(());
        }
        Err("this processor lacks SSE 4.1, which bwa-mem2 needs; use --aligner bwa".into())
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

    /// Sharing is not possible: bwa-mem2 reads its index into memory of its own.
    fn load(options: &LoadOptions<'_>) -> Result<Self, Error> {
        let (table, prefix) = (table(), options.c_prefix()?);
        // SAFETY: the string is NUL-ended; the shim returns a whole index or exits.
        let raw = NonNull::new(unsafe { (table.load)(prefix.as_ptr()) });
        let raw = raw.expect("the shim exits rather than return NULL");
        if options.ignore_alternates {
            // SAFETY: the index is whole, and nothing else refers to it.
            unsafe { (table.forget_alternates)(raw.as_ptr()) }
        }
        Ok(Self { table, raw })
    }

    fn genome(&self) -> Result<Genome, GenomeError> {
        // SAFETY: the index is whole.
        let contigs = unsafe { (self.table.contigs)(self.raw.as_ptr()) };
        Genome::new((0..contigs).map(|contig| self.contig(contig)).collect())
    }

    fn align(&self, options: &AlignmentOptions, block: ReadBlock<Sequences>) -> Result<SamTexts, Error> {
        let mut mem = MemOptions { n_threads: options.mem.n_threads.min(MAX_THREADS), ..options.mem.clone() };
        if block.header.paired {
            mem.flag |= mem_flags::PAIRED;
        }
        let insert_sizes = options.insert_sizes.as_ref().map_or(ptr::null(), |sizes| sizes.as_ptr().cast());
        let (read_group, first_ordinal) = (&block.read_group, block.first_ordinal);
        let align = |reads: &mut [Sequence]| {
            // SAFETY: the index is whole and is this table's, `reads` are as `align_by` promises and as many as passed, the
            // read group is NUL-ended, `insert_sizes` is null or four long, threads never change from call to call.
            // Letters of printable ASCII are within bwa-mem2's 256-entry tables.
            unsafe {
                (self.table.align)(
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
        // SAFETY: `align` is bwa-mem2's mem_process_seqs, which keeps to the same rules as bwa's.
        Ok(unsafe { block.reads.align_by(align) })
    }
}

fn build_index(fasta: &CStr, prefix: &CStr) -> Result<(), c_int> {
    // SAFETY: both strings are NUL-ended and outlive the call.
    match unsafe { (table().build)(fasta.as_ptr(), prefix.as_ptr()) } {
        0 => Ok(()),
        status => Err(status),
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
