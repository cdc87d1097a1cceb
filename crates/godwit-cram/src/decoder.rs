//! Decodes a CRAM file in this process: reads the header, and decodes and validates the records.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use godwit_model::Genome;

use crate::error::CramError;
use crate::htslib::{CramInput, ReadOutcome};
use crate::htslib_layout;
use crate::reference::Reference;
use godwit_formats::bam::{DamagedRecordError, RecordProblem, check_record};
use godwit_formats::sam::{FileHeaderError, Header};

/// A decoder of a CRAM file in this process. A malicious file may crash the process; use [`crate::Reader`] for
/// untrusted files.
pub struct Decoder {
    path: PathBuf,
    input: CramInput,
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
    /// Opens a CRAM file, starts `threads` decoding threads, and reads the header. Without a reference, only files that
    /// need none can be decoded: files of unaligned reads, or with an embedded reference.
    ///
    /// # Errors
    /// [`CramError`] if the file or its header cannot be read, or if the reference does not match the header.
    pub fn open(path: &Path, reference: Option<&Reference>, threads: usize) -> Result<Self, CramError> {
        let input = match reference {
            Some(reference) => reference.with_linked_path(|reference| CramInput::open(path, Some(reference), threads)),
            None => CramInput::open(path, None, threads),
        };
        let input = input.map_err(|source| {
            let path = path.to_owned();
            // If `errno` is 0, htslib rejected the data. If memory runs out before the first record, the cause is an
            // invalid size in the file.
            let is_data = matches!(source.kind(), ErrorKind::InvalidData | ErrorKind::OutOfMemory)
                || source.raw_os_error() == Some(0);
            if is_data { CramError::NotCram { path } } else { CramError::Open { path, source } }
        })?;
        if !input.has_eof_container() {
            return Err(CramError::Truncated { path: path.to_owned() });
        }
        let unusable = |source| FileHeaderError { path: path.to_owned(), source };
        let header = Header::parse(&input.header().text()).map_err(unusable)?;
        let genome = header.genome().map_err(unusable)?;
        if let Some(reference) = reference {
            reference.check_header(&header)?;
        }
        let (path, has_reference) = (path.to_owned(), reference.is_some());
        Ok(Self { path, input, header, genome, records: 0, has_reference })
    }

    /// Returns the header of the file.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Decodes and validates the next record, and appends it to `out` in BAM's packing; returns false at the end of the
    /// file.
    ///
    /// # Errors
    /// [`CramError`] with the number of the record if it is invalid. `out` may then end with an incomplete record.
    pub fn append_record(&mut self, out: &mut Vec<u8>) -> Result<bool, CramError> {
        let (path, record) = (self.path.clone(), self.records + 1);
        match self.input.read_record() {
            ReadOutcome::End => return Ok(false),
            ReadOutcome::Failed if !self.has_reference => return Err(CramError::MissingReference { path, record }),
            ReadOutcome::Failed => return Err(CramError::DecodeRecord { path, record }),
            ReadOutcome::Record => {}
        }
        let start = out.len();
        let (core, data) = self.input.last_record();
        if htslib_layout::pack_record(&core, data, out).is_none() {
            let source = RecordProblem::Value { field: "position or length", value: core.position };
            return Err(DamagedRecordError { path, record, source }.into());
        }
        check_record(&out[start..], self.genome.contigs().len()).map_err(|source| DamagedRecordError {
            path,
            record,
            source,
        })?;
        self.records += 1;
        Ok(true)
    }
}
