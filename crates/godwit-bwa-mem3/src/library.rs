//! Safe functions for the C interface of `bwa-mem3-sys`. No other module of this program has `unsafe` code.
//!
//! The interface aligns the reads of one block, a [`Cohort`], in three phases. First, seeds are found and extended in
//! each segment. Then insert sizes are inferred from the whole cohort. Last, pairs are resolved and records returned
//! for each segment. Several threads may process different segments, each thread with its own [`Scratch`].

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;

use bwa_mem3_sys as sys;
use godwit_mem::Read;

pub use sys::{mem_opt_t as RawOptions, mem_pestat_t as RawInsertSizes};

/// Distributions of insert sizes for the orientations FF, FR, RF and RR.
pub type InsertSizeModel = [RawInsertSizes; 4];

/// Version of the bwa-mem3 library.
pub const VERSION: &str = sys::build_info::VERSION;

/// Limits the messages of the library on stderr to warnings and errors.
pub fn set_verbosity_to_warnings() {
    // SAFETY: the call sets a global variable, before any other thread runs.
    unsafe { sys::bwa_shim_set_verbosity(2) }
}

/// The alignment options in the structure of the library.
pub struct LibraryOptions(pub RawOptions);

// SAFETY: the structure contains numbers, and a pointer to a constant of the library.
unsafe impl Send for LibraryOptions {}
// SAFETY: the structure contains numbers, and a pointer to a constant of the library.
unsafe impl Sync for LibraryOptions {}

/// Returns the default options of the library.
pub fn default_options() -> RawOptions {
    // SAFETY: the first call returns null or an initialised structure of plain numbers, which is freed once.
    unsafe {
        let options = sys::bwa_shim_opts_new();
        let copy = *NonNull::new(options).expect("the library exits when memory is missing").as_ref();
        sys::bwa_shim_opts_free(options);
        copy
    }
}

/// Returns the number of reads that one call of the library's kernels processes; this number is even.
pub fn kernel_batch_reads() -> usize {
    // SAFETY: the call only returns a number and has no preconditions.
    unsafe { sys::bwa_shim_kernel_batch_size() }
}

/// Returns the message of the last library error on this thread.
fn last_error() -> String {
    // SAFETY: the result is null or a NUL-terminated string, which is copied before the next call on this thread
    // invalidates it.
    let text = unsafe {
        let text = sys::bwa_shim_last_error();
        if text.is_null() { None } else { Some(CStr::from_ptr(text).to_string_lossy().into_owned()) }
    };
    text.unwrap_or_else(|| "the library reports no reason".to_owned())
}

fn check_status(status: c_int) -> Result<(), String> {
    if status == 0 { Ok(()) } else { Err(last_error()) }
}

/// A loaded index of bwa-mem3.
pub struct LoadedIndex {
    raw: NonNull<sys::BwaIndex>,
}

// SAFETY: the index is not bound to a thread.
unsafe impl Send for LoadedIndex {}
// SAFETY: nothing changes the index after it was loaded.
unsafe impl Sync for LoadedIndex {}

impl LoadedIndex {
    /// Returns whether bwa-mem3 has an index with this file name in shared memory. If so, `load` would use that index,
    /// even if it belongs to another genome.
    pub fn is_in_shared_memory(prefix: &CStr) -> bool {
        // SAFETY: the string is NUL-terminated.
        unsafe { sys::bwa_shim_shm_test(prefix.as_ptr()) != 0 }
    }

    /// Loads the index at `prefix`. The caller must check the index files before: the library exits the process if it
    /// cannot read a file.
    ///
    /// # Errors
    /// The message of the library if it cannot load the index.
    pub fn load(prefix: &CStr, threads: usize) -> Result<Self, String> {
        let threads = c_int::try_from(threads).unwrap_or(c_int::MAX);
        // SAFETY: the string is NUL-terminated, and the result is a complete index or null.
        let raw = unsafe { sys::bwa_shim_idx_load_threads(prefix.as_ptr(), threads) };
        NonNull::new(raw).map(|raw| Self { raw }).ok_or_else(last_error)
    }
}

impl Drop for LoadedIndex {
    fn drop(&mut self) {
        // SAFETY: the index is complete and freed once.
        unsafe { sys::bwa_shim_idx_free(self.raw.as_ptr()) }
    }
}

/// Working memory of the library for one thread, about 24 MB.
pub struct Scratch {
    raw: NonNull<sys::BwaScratch>,
}

// SAFETY: the memory is not bound to a thread; its owner may use it on any thread.
unsafe impl Send for Scratch {}

impl Scratch {
    /// Allocates new working memory.
    ///
    /// # Errors
    /// The message of the library if the allocation fails.
    pub fn new() -> Result<Self, String> {
        // SAFETY: the call only allocates memory and has no preconditions.
        NonNull::new(unsafe { sys::bwa_shim_scratch_new() }).map(|raw| Self { raw }).ok_or_else(last_error)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: the memory is initialised and freed once.
        unsafe { sys::bwa_shim_scratch_free(self.raw.as_ptr()) }
    }
}

/// The reads of a block, divided into segments, and the state of the library for their alignment.
pub struct Cohort {
    raw: NonNull<sys::BwaResidentCohort>,
    segments: Vec<Segment>,
}

/// Consecutive reads of a cohort, which one thread processes at a time.
pub struct Segment {
    raw: NonNull<sys::BwaResidentSegment>,
    paired: bool,
    first_read: usize,
    read_count: usize,
}

// SAFETY: each segment has memory of its own. The cohort, which owns the memory, outlives all borrows of its segments.
unsafe impl Send for Segment {}

impl Cohort {
    /// Creates a cohort of `reads` reads, in segments of at most `segment_reads` reads. Both numbers must be even if
    /// the reads are paired.
    ///
    /// # Errors
    /// The message of the library if an allocation fails.
    pub fn new(reads: usize, segment_reads: usize, paired: bool) -> Result<Self, String> {
        // SAFETY: the call only allocates memory and has no preconditions. The argument 0 means that reads are not
        // bisulfite.
        let raw = NonNull::new(unsafe { sys::bwa_shim_resident_cohort_new(0) }).ok_or_else(last_error)?;
        let mut cohort = Self { raw, segments: Vec::new() };
        for first in (0..reads).step_by(segment_reads.max(1)) {
            cohort.reserve_segment(first, segment_reads.min(reads - first), paired)?;
        }
        Ok(cohort)
    }

    fn reserve_segment(&mut self, first_read: usize, read_count: usize, paired: bool) -> Result<(), String> {
        let mut found = 0;
        let reserve =
            if paired { sys::bwa_shim_resident_reserve_pairs } else { sys::bwa_shim_resident_reserve_singles };
        // SAFETY: the cohort is initialised, `&mut self` excludes other calls that use it, and the call only writes
        // `found`.
        let raw = unsafe { reserve(self.raw.as_ptr(), read_count, &mut found) };
        let raw = NonNull::new(raw).ok_or_else(last_error)?;
        debug_assert_eq!(found, first_read);
        self.segments.push(Segment { raw, paired, first_read, read_count });
        Ok(())
    }

    /// Returns the segments in the order of their reads.
    pub fn segments(&mut self) -> &mut [Segment] {
        &mut self.segments
    }

    /// Infers the insert sizes from all pairs, as bwa does for each block. [`Segment::seed_extend`] must have been
    /// called for every segment, and [`Segment::emit_records`] for none.
    ///
    /// # Errors
    /// The message of the library if it fails.
    pub fn infer_insert_sizes(
        &mut self,
        index: &LoadedIndex,
        options: &LibraryOptions,
    ) -> Result<InsertSizeModel, String> {
        let mut model = [RawInsertSizes { low: 0, high: 0, failed: 0, avg: 0.0, std: 0.0 }; 4];
        // SAFETY: index, options and cohort are initialised, and `&mut self` excludes other calls that use the cohort.
        // The call writes four entries to `model`.
        let status = unsafe {
            sys::bwa_shim_resident_pestat_cohort(index.raw.as_ptr(), &options.0, self.raw.as_ptr(), model.as_mut_ptr())
        };
        check_status(status).map(|()| model)
    }
}

impl Drop for Cohort {
    fn drop(&mut self) {
        // SAFETY: the cohort is initialised and freed once, together with its segments, which are no longer borrowed.
        unsafe { sys::bwa_shim_resident_cohort_free(self.raw.as_ptr()) }
    }
}

impl Segment {
    /// Returns the index in the cohort of the first read of this segment.
    pub fn first_read(&self) -> usize {
        self.first_read
    }

    /// Returns the number of reads of this segment.
    pub fn read_count(&self) -> usize {
        self.read_count
    }

    /// Copies the reads into the segment. Their number must equal [`Segment::read_count`].
    ///
    /// # Errors
    /// The message if the number differs or the library fails.
    pub fn write_reads<'r>(&mut self, reads: impl Iterator<Item = Read<'r>>) -> Result<(), String> {
        let mut added = 0;
        let singles: Vec<sys::BwaSingleRead> = reads.map(raw_read).collect();
        if singles.len() != self.read_count {
            return Err(format!("a segment of {} reads was given {}", self.read_count, singles.len()));
        }
        if !self.paired {
            // SAFETY: the segment is initialised, and only this call uses it. The reads outlive the call, which copies
            // them.
            let status = unsafe {
                sys::bwa_shim_resident_write_singles(self.raw.as_ptr(), singles.as_ptr(), singles.len(), &mut added)
            };
            return check_status(status);
        }
        let pairs: Vec<sys::BwaReadPair> =
            singles.chunks_exact(2).map(|mates| raw_pair(&mates[0], &mates[1])).collect();
        // SAFETY: the segment is initialised, and only this call uses it. The pairs outlive the call, which copies
        // them.
        let status =
            unsafe { sys::bwa_shim_resident_write_pairs(self.raw.as_ptr(), pairs.as_ptr(), pairs.len(), &mut added) };
        check_status(status)
    }

    /// Finds the seeds of the reads and extends them (first phase).
    ///
    /// # Errors
    /// The message of the library if it fails.
    pub fn seed_extend(
        &mut self,
        index: &LoadedIndex,
        options: &LibraryOptions,
        scratch: &mut Scratch,
    ) -> Result<(), String> {
        // SAFETY: all arguments are initialised, and only this call uses the segment and the scratch memory.
        check_status(unsafe {
            sys::bwa_shim_resident_seed_extend(index.raw.as_ptr(), &options.0, scratch.raw.as_ptr(), self.raw.as_ptr())
        })
    }

    /// Resolves pairs, passes the records to `sink` in the order of the reads, and frees the data of the segment (last
    /// phase).
    ///
    /// `first_ordinal` is the number of reads in the lane before this cohort. Paired reads need the insert sizes in
    /// `model`.
    ///
    /// # Errors
    /// The message of the library if it fails.
    pub fn emit_records(
        &mut self,
        index: &LoadedIndex,
        options: &LibraryOptions,
        scratch: &mut Scratch,
        model: Option<&InsertSizeModel>,
        first_ordinal: u64,
        sink: &mut dyn FnMut(EmittedRecord<'_>),
    ) -> Result<(), String> {
        let before = first_ordinal + self.first_read as u64;
        let (ids, origin_base) = if self.paired {
            (sys::BwaIdBases { first_single_id: 0, first_pair_id: before / 2 }, self.first_read / 2)
        } else {
            (sys::BwaIdBases { first_single_id: before, first_pair_id: 0 }, self.first_read)
        };
        let mut context = SinkContext { sink, paired: self.paired };
        // SAFETY: all arguments are initialised, and only this call uses the segment and the scratch memory. The model
        // is null or has four entries. The context outlives the call, and only `pass_record` uses it.
        check_status(unsafe {
            sys::bwa_shim_resident_pair_emit_fields(
                index.raw.as_ptr(),
                &options.0,
                scratch.raw.as_ptr(),
                self.raw.as_ptr(),
                model.map_or(std::ptr::null(), |model| model.as_ptr()),
                ids,
                origin_base,
                Some(pass_record),
                (&raw mut context).cast(),
            )
        })
    }
}

fn raw_read(read: Read<'_>) -> sys::BwaSingleRead {
    sys::BwaSingleRead {
        name: read.name.as_ptr().cast(),
        name_len: read.name.len(),
        seq: read.sequence.as_ptr(),
        seq_len: read.sequence.len(),
        qual: read.quality.map_or(std::ptr::null(), <[u8]>::as_ptr),
    }
}

fn raw_pair(first: &sys::BwaSingleRead, second: &sys::BwaSingleRead) -> sys::BwaReadPair {
    sys::BwaReadPair {
        r1_name: first.name,
        r1_name_len: first.name_len,
        r1_seq: first.seq,
        r1_seq_len: first.seq_len,
        r1_qual: first.qual,
        r2_name: second.name,
        r2_name_len: second.name_len,
        r2_seq: second.seq,
        r2_seq_len: second.seq_len,
        r2_qual: second.qual,
    }
}

/// An aligned record in the structure of the library: numeric fields, CIGAR, tags, and the range of bases of the read
/// that it contains.
pub struct EmittedRecord<'a> {
    /// Index of the read in the cohort.
    pub read: usize,
    raw: &'a sys::BwaAlignedFields,
}

impl<'a> EmittedRecord<'a> {
    /// Returns the numeric fields of the record.
    pub fn fields(&self) -> &'a sys::BwaAlignedFields {
        self.raw
    }

    /// Returns the CIGAR operations in the encoding of BAM.
    pub fn cigar(&self) -> &'a [u32] {
        if self.raw.n_cigar == 0 {
            return &[];
        }
        // SAFETY: the pointer leads to `n_cigar` operations, which are valid until the sink returns.
        unsafe { std::slice::from_raw_parts(self.raw.cigar, self.raw.n_cigar as usize) }
    }

    /// Returns the value of the tag `MD`, if the record has it.
    pub fn md_tag(&self) -> Option<&'a [u8]> {
        self.c_text(self.raw.md)
    }

    /// Returns the value of the tag `MC`, if the record has it.
    pub fn mc_tag(&self) -> Option<&'a [u8]> {
        self.c_text(self.raw.mc)
    }

    /// Returns the value of the tag `SA`, if the record has it.
    pub fn sa_tag(&self) -> Option<&'a [u8]> {
        self.c_text(self.raw.sa)
    }

    /// Returns the value of the tag `XA`, if the record has it.
    pub fn xa_tag(&self) -> Option<&'a [u8]> {
        self.c_text(self.raw.xa)
    }

    fn c_text(&self, text: *const c_char) -> Option<&'a [u8]> {
        // SAFETY: the pointer is null, or leads to a NUL-terminated string that is valid until the sink returns.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes())
    }
}

struct SinkContext<'s> {
    sink: &'s mut dyn FnMut(EmittedRecord<'_>),
    paired: bool,
}

/// Callback for the library, which passes a record to the sink. A panic in the sink aborts the process, because it
/// cannot unwind through C++.
unsafe extern "C" fn pass_record(
    context: *mut c_void,
    _origin_kind: u32,
    origin: usize,
    mate: u8,
    _is_primary: c_int,
    record: *const sys::BwaAlignedFields,
) {
    // SAFETY: `context` is the one of `emit_records`, which nothing else uses meanwhile. The record is valid during
    // this call.
    let (context, raw) = unsafe { (&mut *context.cast::<SinkContext<'_>>(), &*record) };
    let read = if context.paired { 2 * origin + usize::from(mate) } else { origin };
    (context.sink)(EmittedRecord { read, raw });
}
