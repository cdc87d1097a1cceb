//! Encodes parts of a CRAM file independently. The header, the parts in order and the end-of-file container form the
//! file, as if `samtools cat` had concatenated the parts.
//!
//! A part consists of containers without a header. htslib can only write to a file descriptor, so it writes a part to
//! an unnamed scratch file, from which the part is copied. The record counter of a container starts at 0 in each part,
//! as after `samtools cat`. Readers only use it to name reads without a name, and godwit always writes the names.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use godwit_model::RawRecord;

use crate::EOF_CONTAINER;
use crate::crai::IndexEntry;
use crate::error::CramError;
use crate::htslib::{self, ContainerWriter, HtsHeader, SharedReference};
use crate::reference::Reference;
use godwit_formats::sam::Header;

/// Size in bytes of the buffer for copying a part.
const COPY_BUFFER_BYTES: usize = 1 << 20;

/// An encoder of a CRAM file: the header and the reference, which all parts share.
pub struct Encoder {
    shared: SharedReference,
    header: HtsHeader,
    header_bytes: Vec<u8>,
    scratch: PathBuf,
}

impl Encoder {
    /// Creates an encoder. The reference must contain every contig of the header. `scratch` is a directory for unnamed
    /// files.
    ///
    /// # Errors
    /// [`CramError::MissingContig`] or [`CramError::ContigMismatch`] if the header and the reference differ.
    pub fn new(header: &Header, reference: &Reference, scratch: &Path) -> Result<Self, CramError> {
        let scratch_error = |source| CramError::Scratch { path: scratch.to_owned(), source };
        let header = reference.check_header(header)?;
        let htslib_error = |action| move |source| CramError::Htslib { action, source };
        let no_file = tempfile::tempfile_in(scratch).map_err(scratch_error)?;
        let shared = reference.with_linked_path(|path| SharedReference::open(path, &no_file));
        let shared = shared.map_err(htslib_error("load the reference"))?;
        let parsed = HtsHeader::parse(&header.text()).ok_or_else(io::Error::last_os_error);
        let header = parsed.map_err(htslib_error("parse the header"))?;
        let mut file = tempfile::tempfile_in(scratch).map_err(scratch_error)?;
        shared.write_header(&header, &file).map_err(htslib_error("write the header"))?;
        let mut header_bytes = Vec::new();
        file.rewind().and_then(|()| file.read_to_end(&mut header_bytes)).map_err(scratch_error)?;
        if !header_bytes.ends_with(&EOF_CONTAINER) {
            return Err(htslib_error("write the header")(io::Error::from(io::ErrorKind::InvalidData)));
        }
        header_bytes.truncate(header_bytes.len() - EOF_CONTAINER.len());
        Ok(Self { shared, header, header_bytes, scratch: scratch.to_owned() })
    }

    /// Returns the bytes of the file that precede the first part: the file definition and the header.
    pub fn header_bytes(&self) -> &[u8] {
        &self.header_bytes
    }

    /// Creates an encoder for a new part of the file.
    ///
    /// # Errors
    /// I/O errors of the scratch files.
    pub fn start_part(&self) -> io::Result<PartEncoder<'_>> {
        let (out, index) = (tempfile::tempfile_in(&self.scratch)?, tempfile::tempfile_in(&self.scratch)?);
        let containers = ContainerWriter::create(&self.shared, &self.header, &out, &htslib::descriptor_path(&index))?;
        Ok(PartEncoder { containers, out, index, _encoder: self })
    }
}

/// An encoder of one part of a CRAM file. Dropping it discards the part.
pub struct PartEncoder<'e> {
    containers: ContainerWriter,
    out: File,
    index: File,
    /// Owner of the reference, which must outlive `containers`.
    _encoder: &'e Encoder,
}

impl PartEncoder<'_> {
    /// Appends a record, with `flag` in place of its own FLAG. The records of a part must be in coordinate order.
    ///
    /// # Errors
    /// [`CramError::EncodeRecord`] if htslib rejects the record, or an error of the file system; both as [`io::Error`].
    pub fn write(&mut self, record: RawRecord, flag: u16) -> io::Result<()> {
        self.containers.write_record(record, flag).map_err(|error| {
            let read_name = String::from_utf8_lossy(record.name()).into_owned();
            prefer_system_error(error, CramError::EncodeRecord { read_name })
        })
    }

    /// Encodes the remaining records and copies the containers of the part to `to`. Returns the index entries of the
    /// part, with offsets from its start.
    ///
    /// # Errors
    /// [`CramError::Htslib`] if htslib fails, or an error of the file system; both as [`io::Error`].
    pub fn finish(mut self, to: &mut impl Write) -> io::Result<Vec<IndexEntry>> {
        self.containers.finish().map_err(|source| {
            let source_copy = io::Error::from(source.kind());
            prefer_system_error(
                source,
                CramError::Htslib { action: "encode the last records of a partition", source: source_copy },
            )
        })?;
        let file_length = self.out.seek(io::SeekFrom::End(0))?;
        let bytes = file_length.saturating_sub(EOF_CONTAINER.len() as u64);
        self.out.rewind()?;
        let mut buffer = vec![0; COPY_BUFFER_BYTES];
        let mut left = bytes;
        while left > 0 {
            let chunk = left.min(COPY_BUFFER_BYTES as u64) as usize;
            self.out.read_exact(&mut buffer[..chunk])?;
            to.write_all(&buffer[..chunk])?;
            left -= chunk as u64;
        }
        let mut end = Vec::new();
        self.out.read_to_end(&mut end)?;
        if end != EOF_CONTAINER {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "htslib did not end a CRAM part as expected"));
        }
        self.index.rewind()?;
        IndexEntry::read_all(&self.index)
    }
}

/// Returns `error` if it reports a full or failing disk, otherwise `htslib_error`: htslib sets `errno` to meaningful
/// values only in these cases.
fn prefer_system_error(error: io::Error, htslib_error: CramError) -> io::Error {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => error,
        _ if error.raw_os_error() == Some(libc::EIO) => error,
        _ => io::Error::other(htslib_error),
    }
}
