//! One CRAM file from parts that are encoded independently, as `samtools cat` would join them.
//!
//! Parts consist of containers only. htslib writes to a descriptor, so a part goes to an unnamed scratch file and is copied
//! from there. Containers count their records from the start of their part, as in a file of `samtools cat`. The count names
//! reads whose names were dropped, and godwit drops none.

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

/// Bytes copied at once.
const COPY_BUFFER_BYTES: usize = 1 << 20;

/// The state that all parts of a file share.
pub struct Encoder {
    shared: SharedReference,
    header: HtsHeader,
    header_bytes: Vec<u8>,
    scratch: PathBuf,
}

impl Encoder {
    /// Creates an encoder with a reference that has every contig of the header. `scratch` is a directory for unnamed files.
    ///
    /// # Errors
    /// [`CramError::MissingContig`] and [`CramError::ContigMismatch`] where header and reference differ.
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

    /// Returns the bytes before the first part.
    pub fn header_bytes(&self) -> &[u8] {
        &self.header_bytes
    }

    /// Starts an empty part.
    ///
    /// # Errors
    /// Errors of the scratch directory.
    pub fn start_part(&self) -> io::Result<PartEncoder<'_>> {
        let (out, index) = (tempfile::tempfile_in(&self.scratch)?, tempfile::tempfile_in(&self.scratch)?);
        let containers = ContainerWriter::create(&self.shared, &self.header, &out, &htslib::descriptor_path(&index))?;
        Ok(PartEncoder { containers, out, index, _encoder: self })
    }
}

/// An encoder of one part. Dropping it discards the part.
pub struct PartEncoder<'e> {
    containers: ContainerWriter,
    out: File,
    index: File,
    /// Keeps the reference alive.
    _encoder: &'e Encoder,
}

impl PartEncoder<'_> {
    /// Appends a record with the FLAG `flag`; coordinate order.
    ///
    /// # Errors
    /// [`CramError::EncodeRecord`] or errors of the file system, as [`io::Error`].
    pub fn write(&mut self, record: RawRecord, flag: u16) -> io::Result<()> {
        self.containers.write_record(record, flag).map_err(|error| {
            let read_name = String::from_utf8_lossy(record.name()).into_owned();
            prefer_system_error(error, CramError::EncodeRecord { read_name })
        })
    }

    /// Ends the part, copies its containers to `to` and returns their index, whose offsets count from the part's start.
    ///
    /// # Errors
    /// [`CramError::Htslib`] or errors of the file system, as [`io::Error`].
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

/// Returns the system's error if it is about space or devices; other values that htslib leaves there mean nothing.
fn prefer_system_error(error: io::Error, htslib_error: CramError) -> io::Error {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => error,
        _ if error.raw_os_error() == Some(libc::EIO) => error,
        _ => io::Error::other(htslib_error),
    }
}
