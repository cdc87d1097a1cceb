//! Safe functions over the C interface of `bwa-mem3-sys`.
//!
//! All `unsafe` of this program is here. The interface works in three phases on the reads of one block, a [`Cohort`]: seeds
//! are extended segment by segment, insert sizes are inferred from the whole cohort, then pairs are resolved and records
//! returned segment by segment. Segments may be processed in parallel, each with its own [`Scratch`].

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;

use bwa_mem3_sys as sys;
use godwit_mem::Read;

pub use sys::{mem_opt_t as RawOptions, mem_pestat_t as RawInsertSizes};

/// Insert sizes of the orientations FF, FR, RF and RR.
pub type InsertSizeModel = [RawInsertSizes; 4];

/// Version of bwa-mem3.
pub const VERSION: &str = sys::build_info::VERSION;

/// Limits the library's output to warnings and errors.
pub fn set_verbosity_to_warnings() {
    // SAFETY: sets a global before any other thread runs.
    unsafe { sys::bwa_shim_set_verbosity(2) }
}

/// Options of the library.
pub struct LibraryOptions(pub RawOptions);

// SAFETY: numbers, and a pointer to a constant of the library.
unsafe impl Send for LibraryOptions {}
// SAFETY: as above.
unsafe impl Sync for LibraryOptions {}

/// Returns the default options of the library.
pub fn default_options() -> RawOptions {
    // SAFETY: returns an initialised structure of plain numbers from malloc, or null; it is freed once.
    unsafe {
        let options = sys::bwa_shim_opts_new();
        let copy = *NonNull::new(options).expect("the library exits when memory is missing").as_ref();
        sys::bwa_shim_opts_free(options);
        copy
    }
}

/// Returns the number of reads per call of the library's kernels, an even number.
pub fn kernel_batch_reads() -> usize {
    // SAFETY: a query without preconditions.
    unsafe { sys::bwa_shim_kernel_batch_size() }
}

/// Returns the last error of this thread.
fn last_error() -> String {
    // SAFETY: null, or a NUL-terminated string of this thread that stays valid until its next call; it is copied.
    let text = unsafe {
        let text = sys::bwa_shim_last_error();
        if text.is_null() { None } else { Some(CStr::from_ptr(text).to_string_lossy().into_owned()) }
    };
    text.unwrap_or_else(|| "the library reports no reason".to_owned())
}

fn check_status(status: c_int) -> Result<(), String> {
    if status == 0 { Ok(()) } else { Err(last_error()) }
}

/// A loaded index.
pub struct LoadedIndex {
    raw: NonNull<sys::BwaIndex>,
}

// SAFETY: the index is not bound to a thread.
unsafe impl Send for LoadedIndex {}
// SAFETY: nothing in the index changes after it was loaded.
unsafe impl Sync for LoadedIndex {}

impl LoadedIndex {
    /// Reports whether bwa-mem3 has an index of that file name in shared memory. `load` would use that one, whatever genome
    /// it belongs to.
    pub fn is_in_shared_memory(prefix: &CStr) -> bool {
        // SAFETY: the string is NUL-terminated.
        unsafe { sys::bwa_shim_shm_test(prefix.as_ptr()) != 0 }
    }

    /// Loads the index at `prefix`. The caller must have checked its files. The library ends the process if it cannot read one.
    ///
    /// # Errors
    /// The library's message.
    pub fn load(prefix: &CStr, threads: usize) -> Result<Self, String> {
        let threads = c_int::try_from(threads).unwrap_or(c_int::MAX);
        // SAFETY: the string is NUL-terminated; the result is a complete index or null.
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

/// Working memory of one thread, about 24 MB.
pub struct Scratch {
    raw: NonNull<sys::BwaScratch>,
}

// SAFETY: the memory is not bound to a thread; its owner may use it on any thread.
unsafe impl Send for Scratch {}

impl Scratch {
    /// Allocates new working memory.
    ///
    /// # Errors
    /// The library's message if memory is missing.
    pub fn new() -> Result<Self, String> {
        // SAFETY: an allocator without preconditions.
        NonNull::new(unsafe { sys::bwa_shim_scratch_new() }).map(|raw| Self { raw }).ok_or_else(last_error)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: the memory is initialised and freed once.
        unsafe { sys::bwa_shim_scratch_free(self.raw.as_ptr()) }
    }
}

/// The reads of a block, in segments, with the library's state for them.
pub struct Cohort {
    raw: NonNull<sys::BwaResidentCohort>,
    segments: Vec<Segment>,
}

/// Consecutive reads of a cohort.
pub struct Segment {
    raw: NonNull<sys::BwaResidentSegment>,
    paired: bool,
    first_read: usize,
    read_count: usize,
}

// SAFETY: a segment is separate memory within its cohort, which outlives it: a cohort only lends its segments.
unsafe impl Send for Segment {}

impl Cohort {
    /// Creates a cohort of `reads` reads in segments of at most `segment_reads`. Both are even if reads are paired.
    ///
    /// # Errors
    /// The library's message if memory is missing.
    pub fn new(reads: usize, segment_reads: usize, paired: bool) -> Result<Self, String> {
        // SAFETY: an allocator without preconditions; 0: not bisulfite.
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
        // SAFETY: the cohort is initialised and, by `&mut`, no other call uses it; `found` is written.
        let raw = unsafe { reserve(self.raw.as_ptr(), read_count, &mut found) };
        let raw = NonNull::new(raw).ok_or_else(last_error)?;
        debug_assert_eq!(found, first_read);
        self.segments.push(Segment { raw, paired, first_read, read_count });
        Ok(())
    }

    /// Returns the segments, in order.
    pub fn segments(&mut self) -> &mut [Segment] {
        &mut self.segments
    }

    /// Infers the insert sizes of all pairs, as bwa does once for a block. Every segment must be extended, none emitted.
    ///
    /// # Errors
    /// The library's message.
    pub fn infer_insert_sizes(
        &mut self,
        index: &LoadedIndex,
        options: &LibraryOptions,
    ) -> Result<InsertSizeModel, String> {
        let mut model = [RawInsertSizes { low: 0, high: 0, failed: 0, avg: 0.0, std: 0.0 }; 4];
        // SAFETY: index, options and cohort are initialised, no other call uses the cohort (`&mut`), four entries are written.
        let status = unsafe {
            sys::bwa_shim_resident_pestat_cohort(index.raw.as_ptr(), &options.0, self.raw.as_ptr(), model.as_mut_ptr())
        };
        check_status(status).map(|()| model)
    }
}

impl Drop for Cohort {
    fn drop(&mut self) {
        // SAFETY: the cohort is initialised and freed once; its segments are freed with it and no longer lent.
        unsafe { sys::bwa_shim_resident_cohort_free(self.raw.as_ptr()) }
    }
}

impl Segment {
    /// Returns the index of its first read within the cohort.
    pub fn first_read(&self) -> usize {
        self.first_read
    }

    /// Returns the number of its reads.
    pub fn read_count(&self) -> usize {
        self.read_count
    }

    /// Copies the reads in, as many as the segment has.
    ///
    /// # Errors
    /// The library's message.
    pub fn write_reads<'r>(&mut self, reads: impl Iterator<Item = Read<'r>>) -> Result<(), String> {
        let mut added = 0;
        let singles: Vec<sys::BwaSingleRead> = reads.map(raw_read).collect();
        if singles.len() != self.read_count {
            return Err(format!("a segment of {} reads was given {}", self.read_count, singles.len()));
        }
        if !self.paired {
            // SAFETY: the segment is initialised and borrowed by this call alone; the reads outlive it and are copied.
            let status = unsafe {
                sys::bwa_shim_resident_write_singles(self.raw.as_ptr(), singles.as_ptr(), singles.len(), &mut added)
            };
            return check_status(status);
        }
        let pairs: Vec<sys::BwaReadPair> =
            singles.chunks_exact(2).map(|mates| raw_pair(&mates[0], &mates[1])).collect();
        // SAFETY: as above.
        let status =
            unsafe { sys::bwa_shim_resident_write_pairs(self.raw.as_ptr(), pairs.as_ptr(), pairs.len(), &mut added) };
        check_status(status)
    }

    /// Finds seeds of the reads and extends them.
    ///
    /// # Errors
    /// The library's message.
    pub fn seed_extend(
        &mut self,
        index: &LoadedIndex,
        options: &LibraryOptions,
        scratch: &mut Scratch,
    ) -> Result<(), String> {
        // SAFETY: index and options are initialised; segment and scratch are initialised and borrowed by this call alone.
        check_status(unsafe {
            sys::bwa_shim_resident_seed_extend(index.raw.as_ptr(), &options.0, scratch.raw.as_ptr(), self.raw.as_ptr())
        })
    }

    /// Resolves pairs, passes the records to `sink` in the order of the reads, and frees the data of the segment.
    ///
    /// `first_ordinal`: reads of the lane before the cohort. `model`: required if reads are paired.
    ///
    /// # Errors
    /// The library's message.
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
        // SAFETY: index and options are initialised; segment and scratch are initialised and borrowed by this call alone;
        // the model is null or has four entries; the context outlives the call and is only used by `pass_record`.
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

/// A record as the library returns it: values, and the part of the read that it contains.
pub struct EmittedRecord<'a> {
    /// Index of its read within the cohort.
    pub read: usize,
    raw: &'a sys::BwaAlignedFields,
}

impl<'a> EmittedRecord<'a> {
    /// Returns the numeric fields.
    pub fn fields(&self) -> &'a sys::BwaAlignedFields {
        self.raw
    }

    /// Returns the CIGAR operations as in BAM.
    pub fn cigar(&self) -> &'a [u32] {
        if self.raw.n_cigar == 0 {
            return &[];
        }
        // SAFETY: the library points to that many operations, which stay valid while the record is passed.
        unsafe { std::slice::from_raw_parts(self.raw.cigar, self.raw.n_cigar as usize) }
    }

    /// Returns the value of `MD`.
    pub fn md_tag(&self) -> Option<&'a [u8]> {
        self.c_text(self.raw.md)
    }

    /// Returns the value of `MC`.
    pub fn mc_tag(&self) -> Option<&'a [u8]> {
        self.c_text(self.raw.mc)
    }

    /// Returns the value of `SA`.
    pub fn sa_tag(&self) -> Option<&'a [u8]> {
        self.c_text(self.raw.sa)
    }

    /// Returns the value of `XA`.
    pub fn xa_tag(&self) -> Option<&'a [u8]> {
        self.c_text(self.raw.xa)
    }

    fn c_text(&self, text: *const c_char) -> Option<&'a [u8]> {
        // SAFETY: null, or NUL-terminated text that stays valid while the record is passed.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes())
    }
}

struct SinkContext<'s> {
    sink: &'s mut dyn FnMut(EmittedRecord<'_>),
    paired: bool,
}

/// Passes a record from the library to the sink. A panic of the sink ends the process: it cannot unwind through C++.
unsafe extern "C" fn pass_record(
    context: *mut c_void,
    _origin_kind: u32,
    origin: usize,
    mate: u8,
    _is_primary: c_int,
    record: *const sys::BwaAlignedFields,
) {
    // SAFETY: `emit_records` passes its context, which nothing else uses during the call; the record stays valid during it.
    let (context, raw) = unsafe { (&mut *context.cast::<SinkContext<'_>>(), &*record) };
    let read = if context.paired { 2 * origin + usize::from(mate) } else { origin };
    (context.sink)(EmittedRecord { read, raw });
}
