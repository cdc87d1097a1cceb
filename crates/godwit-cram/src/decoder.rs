//! A CRAM file as its header and checked records, decoded in this process.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use godwit_model::Genome;

use crate::error::CramError;
use crate::htslib::{Input, Read};
use crate::packing;
use crate::reference::Reference;
use godwit_formats::bam::{DamagedRecord, RecordProblem, check_record};
use godwit_formats::sam::{Header, UnusableHeader};

/// Decodes a CRAM file in this process, which a file made to do harm may take down: [`crate::Reader`] is for files of strangers.
pub struct Decoder {
    path: PathBuf,
    input: Input,
    header: Header,
    genome: Genome,
    records: u64,
    has_reference: bool,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter
            .debug_struct("Decoder")
            .field("path", &self.path)
            .field("records", &self.records)
            .finish_non_exhaustive()
    }
}

impl Decoder {
    /// Opens a file, decoded on that many threads, and reads its header. Without a reference only files that hold none of
    /// it can be read: unaligned reads, or an embedded reference.
    ///
    /// # Errors
    /// [`CramError`] about the file, its header, or a reference that is another one.
    pub fn open(path: &Path, reference: Option<&Reference>, threads: usize) -> Result<Self, CramError> {
        let input = match reference {
            Some(reference) => reference.with_path(|reference| Input::open(path, Some(reference), threads)),
            None => Input::open(path, None, threads),
        };
        let input = input.map_err(|source| {
            let path = path.to_owned();
            // Where the system has nothing to say, htslib did not like what it read; what it needs memory for before the
            // first record is what the file says of itself.
            let is_data = matches!(source.kind(), ErrorKind::InvalidData | ErrorKind::OutOfMemory)
                || source.raw_os_error() == Some(0);
            if is_data { CramError::Format { path } } else { CramError::Open { path, source } }
        })?;
        if !input.has_end() {
            return Err(CramError::Truncated { path: path.to_owned() });
        }
        let unusable = |source| UnusableHeader { path: path.to_owned(), source };
        let header = Header::parse(&input.header().text()).map_err(unusable)?;
        let genome = header.genome().map_err(unusable)?;
        if let Some(reference) = reference {
            reference.check(&header)?;
        }
        let (path, has_reference) = (path.to_owned(), reference.is_some());
        Ok(Self { path, input, header, genome, records: 0, has_reference })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Appends the next record as BAM packs it, checked; false at the end of the file.
    ///
    /// # Errors
    /// [`CramError`] naming the record; `out` may then hold some of it.
    pub fn append_record(&mut self, out: &mut Vec<u8>) -> Result<bool, CramError> {
        let (path, record) = (self.path.clone(), self.records + 1);
        match self.input.read() {
            Read::End => return Ok(false),
            Read::Failed if !self.has_reference => return Err(CramError::NoReference { path, record }),
            Read::Failed => return Err(CramError::Decode { path, record }),
            Read::Record => {}
        }
        let start = out.len();
        let (core, data) = self.input.record();
        if packing::pack(&core, data, out).is_none() {
            let source = RecordProblem::Value { field: "position or length", value: core.position };
            return Err(DamagedRecord { path, record, source }.into());
        }
        check_record(&out[start..], self.genome.contigs().len()).map_err(|source| DamagedRecord {
            path,
            record,
            source,
        })?;
        self.records += 1;
        Ok(true)
    }
}
