//! One CRAM file from parts that are encoded independently, as `samtools cat` would join them.
//!
//! Parts are containers alone. htslib writes to a descriptor, so a part goes to a scratch file without a name and is copied
//! from there. Containers count their records from the start of their part, as in a file that `samtools cat` made; the count
//! names reads whose names were dropped, and godwit drops none.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use godwit_model::RawRecord;

use crate::EOF_CONTAINER;
use crate::error::CramError;
use crate::htslib::{self, Containers, HtsHeader, SharedReference};
use crate::index::IndexEntry;
use crate::reference::Reference;
use godwit_formats::sam::Header;

/// Bytes copied at once.
const COPY_BYTES: usize = 1 << 20;

/// What all parts of a file share.
pub struct Encoder {
    shared: SharedReference,
    header: HtsHeader,
    header_bytes: Vec<u8>,
    scratch: PathBuf,
}

impl Encoder {
    /// Takes a reference that has every contig of the header. `scratch` is a directory for files without names.
    ///
    /// # Errors
    /// [`CramError::MissingContig`] and [`CramError::OtherContig`] where header and reference differ.
    pub fn new(header: &Header, reference: &Reference, scratch: &Path) -> Result<Self, CramError> {
        let unusable = |source| CramError::Scratch { path: scratch.to_owned(), source };
        let header = reference.check(header)?;
        let refused = |action| move |source| CramError::Htslib { action, source };
        let no_file = tempfile::tempfile_in(scratch).map_err(unusable)?;
        let shared = reference.with_path(|path| SharedReference::open(path, &no_file));
        let shared = shared.map_err(refused("load the reference"))?;
        let parsed = HtsHeader::parse(&header.text()).ok_or_else(io::Error::last_os_error);
        let header = parsed.map_err(refused("parse the header"))?;
        let mut file = tempfile::tempfile_in(scratch).map_err(unusable)?;
        shared.write_header(&header, &file).map_err(refused("write the header"))?;
        let mut header_bytes = Vec::new();
        file.rewind().and_then(|()| file.read_to_end(&mut header_bytes)).map_err(unusable)?;
        if !header_bytes.ends_with(&EOF_CONTAINER) {
            return Err(refused("write the header")(io::Error::from(io::ErrorKind::InvalidData)));
        }
        header_bytes.truncate(header_bytes.len() - EOF_CONTAINER.len());
        Ok(Self { shared, header, header_bytes, scratch: scratch.to_owned() })
    }

    /// What comes before the first part.
    pub fn header_bytes(&self) -> &[u8] {
        &self.header_bytes
    }

    /// An empty part.
    ///
    /// # Errors
    /// When scratch space fails.
    pub fn part(&self) -> io::Result<PartEncoder<'_>> {
        let (out, index) = (tempfile::tempfile_in(&self.scratch)?, tempfile::tempfile_in(&self.scratch)?);
        let containers = Containers::create(&self.shared, &self.header, &out, &htslib::path_of(&index))?;
        Ok(PartEncoder { containers, out, index, _encoder: self })
    }
}

/// A part in the making. Dropping it gives it up.
pub struct PartEncoder<'e> {
    containers: Containers,
    out: File,
    index: File,
    /// The reference lives as long as its users.
    _encoder: &'e Encoder,
}

impl PartEncoder<'_> {
    /// Appends a record whose FLAG is to be `flag`; coordinate order.
    ///
    /// # Errors
    /// [`CramError::Encode`] or what the file system reports, as [`io::Error`].
    pub fn write(&mut self, record: RawRecord, flag: u16) -> io::Result<()> {
        self.containers.write(record, flag).map_err(|error| {
            let name = String::from_utf8_lossy(record.name()).into_owned();
            of_the_system(error, CramError::Encode { name })
        })
    }

    /// Ends the part, copies its containers to `to` and returns their index, whose offsets count from the part's start.
    ///
    /// # Errors
    /// [`CramError::Htslib`] or what the file system reports, as [`io::Error`].
    pub fn finish(mut self, to: &mut impl Write) -> io::Result<Vec<IndexEntry>> {
        self.containers.finish().map_err(|source| {
            let again = io::Error::from(source.kind());
            of_the_system(source, CramError::Htslib { action: "encode the last records of a partition", source: again })
        })?;
        let whole = self.out.seek(io::SeekFrom::End(0))?;
        let bytes = whole.saturating_sub(EOF_CONTAINER.len() as u64);
        self.out.rewind()?;
        let mut buffer = vec![0; COPY_BYTES];
        let mut left = bytes;
        while left > 0 {
            let chunk = left.min(COPY_BYTES as u64) as usize;
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

/// The system's error where it is one about space or devices; what htslib leaves behind otherwise means nothing.
fn of_the_system(error: io::Error, otherwise: CramError) -> io::Error {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => error,
        _ if error.raw_os_error() == Some(libc::EIO) => error,
        _ => io::Error::other(otherwise),
    }
}
