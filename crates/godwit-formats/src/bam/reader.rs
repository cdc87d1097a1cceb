//! A reader of a BAM file: its header and buffers of checked records.

use std::path::Path;

use godwit_model::Genome;

use super::error::{BamError, DamagedRecordError};
use super::header::read_header;
use super::record_validation::{RecordProblem, check_record};
use crate::bgzf::{self, BgzfBufRead, BgzfError};
use crate::sam::Header;

/// Maximum bytes of a record; htslib's own limit is 2 GiB, real ones stay far below a megabyte.
const MAX_RECORD_BYTES: u32 = 1 << 29;
/// Minimum bytes of a record: fixed fields and an empty name.
const MIN_RECORD_BYTES: u32 = 33;

/// Packed records, one behind the other.
#[derive(Clone, Debug, Default)]
pub struct RecordBuffer {
    /// The records, without `block_size`.
    pub data: Vec<u8>,
    /// End of each record in `data`.
    pub end_offsets: Vec<usize>,
    /// 0-based index in the file of the first record.
    pub first_record: u64,
}

impl RecordBuffer {
    /// Returns the packed records in order.
    pub fn records(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let mut start = 0;
        self.end_offsets.iter().map(move |end| &self.data[std::mem::replace(&mut start, *end)..*end])
    }

    /// Replaces the records by those that `read` appends, one per call, until it returns false (no more records): about
    /// `max_bytes`, at least one. `first_record` is the index in the file of the first, 0-based. Returns false where no
    /// record was read.
    ///
    /// # Errors
    /// Those of `read`; the buffer then holds the valid records before it, and nothing of the failed one.
    pub fn fill_with<E>(
        &mut self,
        first_record: u64,
        max_bytes: usize,
        mut read: impl FnMut(&mut Vec<u8>) -> Result<bool, E>,
    ) -> Result<bool, E> {
        self.data.clear();
        self.end_offsets.clear();
        self.first_record = first_record;
        while self.end_offsets.is_empty() || self.data.len() < max_bytes {
            let start = self.data.len();
            let more = read(&mut self.data);
            if !matches!(more, Ok(true)) {
                self.data.truncate(start);
                more?;
                break;
            }
            self.end_offsets.push(self.data.len());
        }
        Ok(!self.end_offsets.is_empty())
    }
}

/// A reader of untrusted BAM files.
#[derive(Debug)]
pub struct Reader {
    input: bgzf::Reader,
    header: Header,
    genome: Genome,
    records_read: u64,
}

impl Reader {
    /// Opens a file, decompressed on `threads` threads, and reads its header. Where the text lacks `@SQ` lines, they are
    /// made from the binary list.
    ///
    /// # Errors
    /// [`BamError`] about the file or its header.
    pub fn open(path: &Path, threads: usize) -> Result<Self, BamError> {
        Self::new(bgzf::Reader::open(path, threads)?)
    }

    /// Reads an open file of which nothing was consumed.
    ///
    /// # Errors
    /// [`BamError`] about the file or its header.
    pub fn new(mut input: bgzf::Reader) -> Result<Self, BamError> {
        let path = input.path().to_owned();
        // Whether the file is read as BGZF is known only after a first read.
        input.data()?;
        if !input.is_bgzf() {
            return Err(BgzfError::NotBgzf { path }.into());
        }
        let (header, genome) = read_header(&mut input)?;
        Ok(Self { input, header, genome, records_read: 0 })
    }

    /// Returns the header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the BLAKE3 of the file as it is on disk, hexadecimal; `None` before its end was read.
    pub fn checksum(&self) -> Option<String> {
        self.input.checksum()
    }

    /// Returns the input.
    pub fn input(&self) -> &bgzf::Reader {
        &self.input
    }

    /// Returns the contigs.
    pub fn genome(&self) -> &Genome {
        &self.genome
    }

    /// Replaces the records of `out` by the next ones: about `max_bytes`, at least one record. Returns false, with no
    /// records, at the end of the file, which then is verified as whole.
    ///
    /// # Errors
    /// [`BamError`] with the record, or the offset of the damage; `out` then holds the valid records before it.
    pub fn read_records(&mut self, out: &mut RecordBuffer, max_bytes: usize) -> Result<bool, BamError> {
        out.fill_with(self.records_read, max_bytes, |data| {
            let more = self.read_record(data)?;
            self.records_read += u64::from(more);
            Ok(more)
        })
    }

    /// Appends one record; returns false at the end of the file.
    fn read_record(&mut self, out: &mut Vec<u8>) -> Result<bool, BamError> {
        match append_record(&mut self.input, self.genome.contigs().len(), out)? {
            Ok(more) => Ok(more),
            Err(None) => Err(self.truncated_record_error()),
            Err(Some(problem)) => Err(self.damaged_record_error(problem)),
        }
    }

    fn truncated_record_error(&self) -> BamError {
        BamError::TruncatedRecord { path: self.input.path().to_owned(), record: self.records_read + 1 }
    }

    fn damaged_record_error(&self, source: RecordProblem) -> BamError {
        DamagedRecordError { path: self.input.path().to_owned(), record: self.records_read + 1, source }.into()
    }
}

/// Appends the next record without its size, checked; returns false at the end of the file. The inner error is the problem
/// of the record; `None` where the file ends within it.
pub(super) fn append_record(
    input: &mut impl BgzfBufRead,
    contigs: usize,
    out: &mut Vec<u8>,
) -> Result<Result<bool, Option<RecordProblem>>, BgzfError> {
    let start = out.len();
    let read = input.append_to(out, 4)?;
    if read == 0 {
        return Ok(Ok(false));
    }
    let size = out[start..].first_chunk().filter(|_| read == 4).map(|bytes| u32::from_le_bytes(*bytes));
    out.truncate(start);
    let Some(bytes) = size else { return Ok(Err(None)) };
    if !(MIN_RECORD_BYTES..=MAX_RECORD_BYTES).contains(&bytes) {
        return Ok(Err(Some(RecordProblem::Size { bytes })));
    }
    if input.append_to(out, bytes as usize)? < bytes as usize {
        return Ok(Err(None));
    }
    Ok(check_record(&out[start..], contigs).map(|_| true).map_err(Some))
}
