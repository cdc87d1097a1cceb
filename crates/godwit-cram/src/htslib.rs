//! Safe types for files, headers, records and checksums of htslib. No other module calls htslib.
//!
//! htslib changes the use count of a shared reference without a lock, so `OPEN_CLOSE_LOCK` serializes opening and
//! closing of files. Encoding and decoding run in parallel: htslib's own lock protects the bases of the shared
//! reference.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

use hts_sys as hts;
use parking_lot::{Mutex, MutexGuard};

use crate::htslib_layout::{self, RecordCore};

/// A lock that a thread holds while it opens or closes a file with htslib.
static OPEN_CLOSE_LOCK: Mutex<()> = Mutex::new(());

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Error::from(io::ErrorKind::InvalidFilename))
}

/// A parsed SAM header of htslib.
pub(super) struct HtsHeader(NonNull<hts::sam_hdr_t>);

// SAFETY: the header is owned and not bound to a thread.
unsafe impl Send for HtsHeader {}
// SAFETY: threads that share the header only copy it, and hold `OPEN_CLOSE_LOCK` meanwhile.
unsafe impl Sync for HtsHeader {}

impl HtsHeader {
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        // SAFETY: the pointer and the length belong to the same slice, which htslib copies.
        let header = unsafe { hts::sam_hdr_parse(text.len(), text.as_ptr().cast()) };
        let header = Self(NonNull::new(header)?);
        // `sam_hdr_parse` only stores the text; counting lines makes htslib parse them.
        // SAFETY: the header is alive, and the literal ends with NUL.
        let contigs = unsafe { hts::sam_hdr_count_lines(header.0.as_ptr(), c"SQ".as_ptr()) };
        (contigs >= 0).then_some(header)
    }

    pub(super) fn text(&self) -> Vec<u8> {
        // SAFETY: the header is alive, and htslib keeps its text until the header changes.
        unsafe {
            let bytes = hts::sam_hdr_length(self.0.as_ptr());
            let text = hts::sam_hdr_str(self.0.as_ptr());
            if text.is_null() || bytes == usize::MAX {
                return Vec::new();
            }
            std::slice::from_raw_parts(text.cast::<u8>(), bytes).to_vec()
        }
    }
}

impl Drop for HtsHeader {
    fn drop(&mut self) {
        // SAFETY: the header is owned, and not used after this call.
        unsafe { hts::sam_hdr_destroy(self.0.as_ptr()) }
    }
}

/// An open CRAM file of htslib.
struct HtsFile(NonNull<hts::htsFile>);

impl HtsFile {
    /// Creates a CRAM 3.0 file without an embedded reference. htslib writes to a duplicate of the descriptor of `file`.
    fn create(file: &File, opening: &MutexGuard<()>) -> io::Result<Self> {
        disable_logging();
        let descriptor = file.try_clone()?.into_raw_fd();
        // SAFETY: the descriptor is open and owned by the stream from here on, and the literals end with NUL.
        let opened = unsafe {
            let stream = hts::hdopen(descriptor, c"w".as_ptr());
            if stream.is_null() {
                return Err(io::Error::last_os_error());
            }
            // htslib writes this name as the file ID into the file definition of the CRAM file.
            hts::hts_hopen(stream, c"godwit".as_ptr(), c"wc".as_ptr())
        };
        let file = Self(NonNull::new(opened).ok_or_else(io::Error::last_os_error)?);
        // SAFETY: the CRAM file is open, and the arguments have the types of these options (htslib 1.19
        // `cram_set_voption`).
        let set = unsafe {
            hts::hts_set_opt(file.0.as_ptr(), hts::hts_fmt_option_CRAM_OPT_VERSION, c"3.0".as_ptr())
                | hts::hts_set_opt(file.0.as_ptr(), hts::hts_fmt_option_CRAM_OPT_EMBED_REF, 0)
        };
        if set != 0 {
            let error = io::Error::last_os_error();
            file.close_locked(opening)?;
            return Err(error);
        }
        Ok(file)
    }

    /// Sets the reference: a FASTA file whose `.fai` is in the same directory.
    fn set_reference(&self, fasta: &Path) -> io::Result<()> {
        let fasta = c_path(fasta)?;
        // SAFETY: the CRAM file is open, and htslib copies the path.
        let set = unsafe { hts::hts_set_opt(self.0.as_ptr(), hts::hts_fmt_option_CRAM_OPT_REFERENCE, fasta.as_ptr()) };
        if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn use_reference_of(&self, with: &SharedReference, _opening: &MutexGuard<()>) -> io::Result<()> {
        // SAFETY: both CRAM files are open, and the caller holds `OPEN_CLOSE_LOCK` while htslib changes the use count.
        let set = unsafe {
            let refs = hts::cram_get_refs(with.0.0.as_ptr());
            hts::hts_set_opt(self.0.as_ptr(), hts::hts_fmt_option_CRAM_OPT_SHARED_REF, refs)
        };
        if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn close(self) -> io::Result<()> {
        self.close_locked(&OPEN_CLOSE_LOCK.lock())
    }

    fn close_locked(self, _opening: &MutexGuard<()>) -> io::Result<()> {
        let file = self.0;
        std::mem::forget(self);
        // SAFETY: the file is owned, and `forget` prevents that `drop` closes it again.
        if unsafe { hts::hts_close(file.as_ptr()) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl Drop for HtsFile {
    fn drop(&mut self) {
        let _opening = OPEN_CLOSE_LOCK.lock();
        // SAFETY: the file is owned. Errors of closing are ignored, because a dropped file is discarded.
        unsafe { hts::hts_close(self.0.as_ptr()) };
    }
}

/// A reference that several files share. htslib loads a contig when it is first needed, and frees it after the next two
/// contigs were loaded.
pub(super) struct SharedReference(HtsFile);

// SAFETY: threads share only the use count, under `OPEN_CLOSE_LOCK`, and the bases, under htslib's own lock.
unsafe impl Send for SharedReference {}
// SAFETY: threads share only the use count, under `OPEN_CLOSE_LOCK`, and the bases, under htslib's own lock.
unsafe impl Sync for SharedReference {}

impl SharedReference {
    /// Opens a FASTA file whose `.fai` is in the same directory. Both paths may be removed afterwards. `scratch` is an
    /// empty file for the CRAM stream to which htslib attaches the reference.
    pub(super) fn open(fasta: &Path, scratch: &File) -> io::Result<Self> {
        let guard = OPEN_CLOSE_LOCK.lock();
        let file = HtsFile::create(scratch, &guard);
        drop(guard);
        let file = file?;
        file.set_reference(fasta)?;
        Ok(Self(file))
    }

    /// Writes a CRAM file with a header and without records to `out`, and assigns the reference to the contigs of the
    /// header.
    pub(super) fn write_header(&self, header: &HtsHeader, out: &File) -> io::Result<()> {
        let guard = OPEN_CLOSE_LOCK.lock();
        let file = HtsFile::create(out, &guard);
        let shared = file.as_ref().ok().map(|file| file.use_reference_of(self, &guard));
        drop(guard);
        let file = file?;
        shared.unwrap_or(Ok(()))?;
        // SAFETY: the file is open and the header is alive; htslib copies the header.
        let written = unsafe { hts::sam_hdr_write(file.0.as_ptr(), header.0.as_ptr()) };
        if written < 0 {
            return Err(io::Error::last_os_error());
        }
        file.close()
    }
}

/// A writer of CRAM containers with records; it does not write a header.
pub(super) struct ContainerWriter {
    file: HtsFile,
    data: Vec<u8>,
}

// SAFETY: the file is owned, and locks protect the shared reference as described at [`SharedReference`].
unsafe impl Send for ContainerWriter {}

impl ContainerWriter {
    /// Creates a writer that writes containers to the file `out`, and their index to the path `index`.
    pub(super) fn create(
        reference: &SharedReference,
        header: &HtsHeader,
        out: &File,
        index: &Path,
    ) -> io::Result<Self> {
        let index = c_path(index)?;
        let guard = OPEN_CLOSE_LOCK.lock();
        let file = HtsFile::create(out, &guard);
        let shared = file.as_ref().ok().map(|file| file.use_reference_of(reference, &guard));
        let copy = shared.as_ref().and_then(|_| {
            // SAFETY: the header is alive, and the lock prevents that another thread copies it at the same time.
            let copy = NonNull::new(unsafe { hts::sam_hdr_dup(header.0.as_ptr()) })?;
            // SAFETY: the copy is alive, and the literal ends with NUL. Counting makes htslib parse the lines of the
            // copy.
            unsafe { hts::sam_hdr_count_lines(copy.as_ptr(), c"RG".as_ptr()) };
            Some(copy)
        });
        drop(guard);
        let file = file?;
        shared.unwrap_or(Ok(()))?;
        let copy = copy.ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the open file is CRAM, so the union holds `cram`. It has no header yet, and owns this header from now
        // on.
        let indexed = unsafe {
            hts::cram_fd_set_header((*file.0.as_ptr()).fp.cram, copy.as_ptr());
            hts::sam_idx_init(file.0.as_ptr(), copy.as_ptr(), 0, index.as_ptr())
        };
        if indexed < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { file, data: Vec::new() })
    }

    /// Appends a record, with `flag` in place of its own FLAG.
    pub(super) fn write_record(&mut self, record: godwit_model::RawRecord, flag: u16) -> io::Result<()> {
        let core = htslib_layout::to_htslib_layout(record, flag, &mut self.data);
        // SAFETY: a `bam1_t` with all bits zero is valid.
        let mut bam: hts::bam1_t = unsafe { std::mem::zeroed() };
        bam.core = to_bam1_core(&core);
        bam.data = self.data.as_mut_ptr();
        bam.l_data = self.data.len() as i32;
        bam.m_data = self.data.len() as u32;
        // SAFETY: the file is open and has a header. The record outlives the call, and htslib copies it
        // (`cram_put_bam_seq`). `sam_write1` does not use its header argument for CRAM.
        let written = unsafe {
            let header = hts::cram_fd_get_header((*self.file.0.as_ptr()).fp.cram);
            hts::sam_write1(self.file.0.as_ptr(), header, &raw const bam)
        };
        if written < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Encodes the remaining records, and closes the file and the index.
    pub(super) fn finish(self) -> io::Result<()> {
        // Encode the last container now, because `close` would do so while it holds `OPEN_CLOSE_LOCK`.
        // SAFETY: the CRAM file is open.
        if unsafe { hts::cram_flush((*self.file.0.as_ptr()).fp.cram) } < 0 {
            return Err(io::Error::last_os_error());
        }
        self.file.close()
    }
}

/// A CRAM file that is open for reading.
pub(super) struct CramInput {
    record: NonNull<hts::bam1_t>,
    header: HtsHeader,
    file: HtsFile,
}

// SAFETY: all fields are owned and not bound to a thread.
unsafe impl Send for CramInput {}

/// The outcome of reading a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadOutcome {
    Record,
    End,
    Failed,
}

impl CramInput {
    /// Opens a CRAM file for reading. `reference` is the path of a FASTA file whose `.fai` is in the same directory;
    /// both paths may be removed afterwards.
    pub(super) fn open(path: &Path, reference: Option<&Path>, threads: usize) -> io::Result<Self> {
        disable_logging();
        let name = c_path(path)?;
        let guard = OPEN_CLOSE_LOCK.lock();
        // SAFETY: the path and the literal end with NUL.
        let opened = unsafe { hts::hts_open_format(name.as_ptr(), c"r".as_ptr(), std::ptr::null()) };
        let file = NonNull::new(opened).map(HtsFile).ok_or_else(io::Error::last_os_error);
        drop(guard);
        let file = file?;
        // SAFETY: the file is open.
        let is_cram = unsafe { (*file.0.as_ptr()).format.format == hts::htsExactFormat_cram };
        if !is_cram {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is not CRAM"));
        }
        if let Some(fasta) = reference {
            file.set_reference(fasta)?;
        }
        // SAFETY: the file is open.
        let header = unsafe { hts::sam_hdr_read(file.0.as_ptr()) };
        let header = NonNull::new(header).map(HtsHeader).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the file is open, and the record is owned from here on.
        let record = unsafe {
            hts::hts_set_threads(file.0.as_ptr(), threads.clamp(1, 64) as i32);
            hts::bam_init1()
        };
        let record = NonNull::new(record).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Self { record, header, file })
    }

    pub(super) fn header(&self) -> &HtsHeader {
        &self.header
    }

    /// Returns whether the file ends with the end-of-file container.
    pub(super) fn has_eof_container(&self) -> bool {
        // SAFETY: the file is open.
        unsafe { hts::hts_check_EOF(self.file.0.as_ptr()) != 0 }
    }

    /// Reads and decodes the next record.
    pub(super) fn read_record(&mut self) -> ReadOutcome {
        // SAFETY: the file is open, the header belongs to it, and the record is owned.
        match unsafe { hts::sam_read1(self.file.0.as_ptr(), self.header.0.as_ptr(), self.record.as_ptr()) } {
            0.. => ReadOutcome::Record,
            -1 => ReadOutcome::End,
            _ => ReadOutcome::Failed,
        }
    }

    /// Returns the fixed and the variable fields of the record that was read last.
    pub(super) fn last_record(&self) -> (RecordCore, &[u8]) {
        // SAFETY: the record is owned. Its data has `l_data` bytes; the pointer is null before the first record.
        unsafe {
            let bam = self.record.as_ref();
            let data = if bam.data.is_null() {
                &[]
            } else {
                std::slice::from_raw_parts(bam.data, usize::try_from(bam.l_data).unwrap_or_default())
            };
            (from_bam1_core(&bam.core), data)
        }
    }
}

impl Drop for CramInput {
    fn drop(&mut self) {
        // SAFETY: the record is owned, and not used after this call.
        unsafe { hts::bam_destroy1(self.record.as_ptr()) }
    }
}

/// The state of an MD5 computation of htslib.
pub(super) struct Md5(NonNull<hts::hts_md5_context>);

impl Md5 {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: the function has no arguments.
        let context = unsafe { hts::hts_md5_init() };
        NonNull::new(context).map(Self).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        // SAFETY: the pointer and the length belong to the same slice.
        unsafe { hts::hts_md5_update(self.0.as_ptr(), bytes.as_ptr().cast(), bytes.len() as _) }
    }

    /// Returns the MD5 of all bytes so far in hexadecimal, and resets the state.
    pub(super) fn finish_hex(&mut self) -> String {
        let mut digest = [0u8; 16];
        // SAFETY: the array has space for the 16 bytes of a digest.
        unsafe {
            hts::hts_md5_final(digest.as_mut_ptr(), self.0.as_ptr());
            hts::hts_md5_reset(self.0.as_ptr());
        }
        hex::encode(digest)
    }
}

impl Drop for Md5 {
    fn drop(&mut self) {
        // SAFETY: the state is owned, and not used after this call.
        unsafe { hts::hts_md5_destroy(self.0.as_ptr()) }
    }
}

/// Disables htslib's messages on stderr, because callers report errors themselves.
fn disable_logging() {
    // SAFETY: the call only sets a global number.
    unsafe { hts::hts_set_log_level(hts::htsLogLevel_HTS_LOG_OFF) }
}

/// Returns a path by which htslib can open a file without a name.
pub(super) fn descriptor_path(file: &File) -> std::path::PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

fn to_bam1_core(core: &RecordCore) -> hts::bam1_core_t {
    hts::bam1_core_t {
        pos: core.position,
        tid: core.contig,
        bin: core.bin,
        qual: core.mapping_quality,
        l_extranul: core.padding,
        flag: core.flag,
        l_qname: core.name_bytes,
        n_cigar: core.cigar_ops,
        l_qseq: core.bases,
        mtid: core.mate_contig,
        mpos: core.mate_position,
        isize_: core.template_length,
    }
}

fn from_bam1_core(core: &hts::bam1_core_t) -> RecordCore {
    RecordCore {
        contig: core.tid,
        position: core.pos,
        bin: core.bin,
        mapping_quality: core.qual,
        padding: core.l_extranul,
        flag: core.flag,
        name_bytes: core.l_qname,
        cigar_ops: core.n_cigar,
        bases: core.l_qseq,
        mate_contig: core.mtid,
        mate_position: core.mpos,
        template_length: core.isize_,
    }
}
