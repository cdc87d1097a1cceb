//! The only module that calls htslib: files, headers, records and checksums behind safe types.
//!
//! htslib counts the users of a shared reference without a lock, so files are opened and closed one at a time. Encoding and
//! decoding run in parallel: htslib's own lock protects what they share of the reference.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hts_sys as hts;

use crate::htslib_layout::{self, RecordCore};

/// Held while files are opened and closed.
static OPEN_CLOSE_LOCK: Mutex<()> = Mutex::new(());

fn lock_open_close() -> MutexGuard<'static, ()> {
    OPEN_CLOSE_LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Error::from(io::ErrorKind::InvalidFilename))
}

/// A parsed header.
pub(super) struct HtsHeader(NonNull<hts::sam_hdr_t>);

// SAFETY: the header is owned and not bound to a thread.
unsafe impl Send for HtsHeader {}
// SAFETY: shared use is copying under `OPEN_CLOSE_LOCK` only.
unsafe impl Sync for HtsHeader {}

impl HtsHeader {
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        // SAFETY: pointer and length are of one slice, which htslib copies.
        let header = unsafe { hts::sam_hdr_parse(text.len(), text.as_ptr().cast()) };
        let header = Self(NonNull::new(header)?);
        // So far only the text is stored; a request for a count parses the lines.
        // SAFETY: a live header and a literal with its NUL.
        let contigs = unsafe { hts::sam_hdr_count_lines(header.0.as_ptr(), c"SQ".as_ptr()) };
        (contigs >= 0).then_some(header)
    }

    pub(super) fn text(&self) -> Vec<u8> {
        // SAFETY: a live header; htslib keeps the text until the header changes.
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
        // SAFETY: owned, and not used after this.
        unsafe { hts::sam_hdr_destroy(self.0.as_ptr()) }
    }
}

/// An open CRAM file.
struct HtsFile(NonNull<hts::htsFile>);

impl HtsFile {
    /// Creates a file of version 3.0 that never embeds its reference. htslib gets a descriptor of its own.
    fn create(file: &File, opening: &MutexGuard<()>) -> io::Result<Self> {
        disable_logging();
        let descriptor = file.try_clone()?.into_raw_fd();
        // SAFETY: an open descriptor, which the stream owns from here on, and literals with their NUL.
        let opened = unsafe {
            let stream = hts::hdopen(descriptor, c"w".as_ptr());
            if stream.is_null() {
                return Err(io::Error::last_os_error());
            }
            // The name becomes the file's ID.
            hts::hts_hopen(stream, c"godwit".as_ptr(), c"wc".as_ptr())
        };
        let file = Self(NonNull::new(opened).ok_or_else(io::Error::last_os_error)?);
        // SAFETY: a live CRAM file, and arguments of the types that these options take (htslib 1.19 `cram_set_voption`).
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

    /// Reads bases from a FASTA file with its `.fai` beside it.
    fn set_reference(&self, fasta: &Path) -> io::Result<()> {
        let fasta = c_path(fasta)?;
        // SAFETY: a live CRAM file and a path that htslib copies.
        let set = unsafe { hts::hts_set_opt(self.0.as_ptr(), hts::hts_fmt_option_CRAM_OPT_REFERENCE, fasta.as_ptr()) };
        if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn use_reference_of(&self, with: &SharedReference, _opening: &MutexGuard<()>) -> io::Result<()> {
        // SAFETY: both are live CRAM files; htslib counts this user, which `OPEN_CLOSE_LOCK` makes safe.
        let set = unsafe {
            let refs = hts::cram_get_refs(with.0.0.as_ptr());
            hts::hts_set_opt(self.0.as_ptr(), hts::hts_fmt_option_CRAM_OPT_SHARED_REF, refs)
        };
        if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn close(self) -> io::Result<()> {
        self.close_locked(&lock_open_close())
    }

    fn close_locked(self, _opening: &MutexGuard<()>) -> io::Result<()> {
        let file = self.0;
        std::mem::forget(self);
        // SAFETY: owned, and forgotten above.
        if unsafe { hts::hts_close(file.as_ptr()) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl Drop for HtsFile {
    fn drop(&mut self) {
        let _opening = lock_open_close();
        // SAFETY: owned. The result of closing is ignored: the file is discarded.
        unsafe { hts::hts_close(self.0.as_ptr()) };
    }
}

/// A reference that many files read. Contigs are loaded when first needed and dropped when the next two were.
pub(super) struct SharedReference(HtsFile);

// SAFETY: only its count (under `OPEN_CLOSE_LOCK`) and its bases (under htslib's own lock) are used by several threads.
unsafe impl Send for SharedReference {}
// SAFETY: as above.
unsafe impl Sync for SharedReference {}

impl SharedReference {
    /// Opens a reference. `fasta` has its `.fai` beside it; neither is needed afterwards, nor is the file `scratch`.
    pub(super) fn open(fasta: &Path, scratch: &File) -> io::Result<Self> {
        let guard = lock_open_close();
        let file = HtsFile::create(scratch, &guard);
        drop(guard);
        let file = file?;
        file.set_reference(fasta)?;
        Ok(Self(file))
    }

    /// Writes a file with a header and no records; binds the reference to the header's contigs.
    pub(super) fn write_header(&self, header: &HtsHeader, out: &File) -> io::Result<()> {
        let guard = lock_open_close();
        let file = HtsFile::create(out, &guard);
        let shared = file.as_ref().ok().map(|file| file.use_reference_of(self, &guard));
        drop(guard);
        let file = file?;
        shared.unwrap_or(Ok(()))?;
        // SAFETY: a live file and a live header, which htslib copies.
        let written = unsafe { hts::sam_hdr_write(file.0.as_ptr(), header.0.as_ptr()) };
        if written < 0 {
            return Err(io::Error::last_os_error());
        }
        file.close()
    }
}

/// A writer of containers of records, without a header before them.
pub(super) struct ContainerWriter {
    file: HtsFile,
    data: Vec<u8>,
}

// SAFETY: the file is owned; its shared parts are safe as described at [`SharedReference`].
unsafe impl Send for ContainerWriter {}

impl ContainerWriter {
    /// Starts writing to `out`, and the index of the containers to the file at `index`.
    pub(super) fn create(
        reference: &SharedReference,
        header: &HtsHeader,
        out: &File,
        index: &Path,
    ) -> io::Result<Self> {
        let index = c_path(index)?;
        let guard = lock_open_close();
        let file = HtsFile::create(out, &guard);
        let shared = file.as_ref().ok().map(|file| file.use_reference_of(reference, &guard));
        let copy = shared.as_ref().and_then(|_| {
            // SAFETY: a live header, copied while no other thread copies it.
            let copy = NonNull::new(unsafe { hts::sam_hdr_dup(header.0.as_ptr()) })?;
            // SAFETY: a live header; counting parses the lines of the copy.
            unsafe { hts::sam_hdr_count_lines(copy.as_ptr(), c"RG".as_ptr()) };
            Some(copy)
        });
        drop(guard);
        let file = file?;
        shared.unwrap_or(Ok(()))?;
        let copy = copy.ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the file is live and CRAM, so the union holds `cram`; it has no header yet and owns this one from now on.
        let indexed = unsafe {
            hts::cram_fd_set_header((*file.0.as_ptr()).fp.cram, copy.as_ptr());
            hts::sam_idx_init(file.0.as_ptr(), copy.as_ptr(), 0, index.as_ptr())
        };
        if indexed < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { file, data: Vec::new() })
    }

    /// Appends a record with the FLAG `flag`.
    pub(super) fn write_record(&mut self, record: godwit_model::RawRecord, flag: u16) -> io::Result<()> {
        let core = htslib_layout::to_htslib_layout(record, flag, &mut self.data);
        // SAFETY: all-zero is a valid `bam1_t`.
        let mut bam: hts::bam1_t = unsafe { std::mem::zeroed() };
        bam.core = to_bam1_core(&core);
        bam.data = self.data.as_mut_ptr();
        bam.l_data = self.data.len() as i32;
        bam.m_data = self.data.len() as u32;
        // SAFETY: a live file with a header; the record lives through the call, and htslib copies it (`cram_put_bam_seq`).
        // Its header argument is not used for CRAM.
        let written = unsafe {
            let header = hts::cram_fd_get_header((*self.file.0.as_ptr()).fp.cram);
            hts::sam_write1(self.file.0.as_ptr(), header, &raw const bam)
        };
        if written < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Encodes the remaining records and ends the file and its index.
    pub(super) fn finish(self) -> io::Result<()> {
        // The last container is encoded here, outside of the lock that closing takes.
        // SAFETY: a live CRAM file.
        if unsafe { hts::cram_flush((*self.file.0.as_ptr()).fp.cram) } < 0 {
            return Err(io::Error::last_os_error());
        }
        self.file.close()
    }
}

/// A CRAM file being read.
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
    /// Opens a file; the FASTA file `reference` has its `.fai` beside it and is not needed by name afterwards.
    pub(super) fn open(path: &Path, reference: Option<&Path>, threads: usize) -> io::Result<Self> {
        disable_logging();
        let name = c_path(path)?;
        let guard = lock_open_close();
        // SAFETY: a path and a literal with their NUL.
        let opened = unsafe { hts::hts_open_format(name.as_ptr(), c"r".as_ptr(), std::ptr::null()) };
        let file = NonNull::new(opened).map(HtsFile).ok_or_else(io::Error::last_os_error);
        drop(guard);
        let file = file?;
        // SAFETY: a live file.
        let is_cram = unsafe { (*file.0.as_ptr()).format.format == hts::htsExactFormat_cram };
        if !is_cram {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it has another format"));
        }
        if let Some(fasta) = reference {
            file.set_reference(fasta)?;
        }
        // SAFETY: a live file.
        let header = unsafe { hts::sam_hdr_read(file.0.as_ptr()) };
        let header = NonNull::new(header).map(HtsHeader).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: a live file; the record is owned from here on.
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

    /// Reports whether the file ends with the end-of-file container.
    pub(super) fn has_eof_container(&self) -> bool {
        // SAFETY: a live file.
        unsafe { hts::hts_check_EOF(self.file.0.as_ptr()) != 0 }
    }

    /// Reads the next record.
    pub(super) fn read_record(&mut self) -> ReadOutcome {
        // SAFETY: a live file, its header, and an owned record.
        match unsafe { hts::sam_read1(self.file.0.as_ptr(), self.header.0.as_ptr(), self.record.as_ptr()) } {
            0.. => ReadOutcome::Record,
            -1 => ReadOutcome::End,
            _ => ReadOutcome::Failed,
        }
    }

    /// Returns the record that was read last: fixed fields and the rest.
    pub(super) fn last_record(&self) -> (RecordCore, &[u8]) {
        // SAFETY: an owned record; its data has `l_data` bytes, and none before the first was read.
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
        // SAFETY: owned, and not used after this.
        unsafe { hts::bam_destroy1(self.record.as_ptr()) }
    }
}

/// A running MD5.
pub(super) struct Md5(NonNull<hts::hts_md5_context>);

impl Md5 {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: the function has no arguments.
        let context = unsafe { hts::hts_md5_init() };
        NonNull::new(context).map(Self).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        // SAFETY: pointer and length are of one slice.
        unsafe { hts::hts_md5_update(self.0.as_ptr(), bytes.as_ptr().cast(), bytes.len() as _) }
    }

    /// Returns the digest of all bytes so far, hexadecimal, and resets it.
    pub(super) fn finish_hex(&mut self) -> String {
        let mut digest = [0u8; 16];
        // SAFETY: room for the 16 bytes of a digest.
        unsafe {
            hts::hts_md5_final(digest.as_mut_ptr(), self.0.as_ptr());
            hts::hts_md5_reset(self.0.as_ptr());
        }
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Drop for Md5 {
    fn drop(&mut self) {
        // SAFETY: owned, and not used after this.
        unsafe { hts::hts_md5_destroy(self.0.as_ptr()) }
    }
}

/// Turns off htslib's messages on stderr; callers report errors.
fn disable_logging() {
    // SAFETY: sets a number.
    unsafe { hts::hts_set_log_level(hts::htsLogLevel_HTS_LOG_OFF) }
}

/// Returns a path under which htslib can open an unnamed file.
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
