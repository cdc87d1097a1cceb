//! A BAM file as its header and chunks of checked records.

use std::path::Path;

use godwit_model::Genome;

use super::check::{RecordProblem, check_record};
use super::error::{BamError, DamagedRecord};
use super::header::read_header;
use crate::bgzf::{self, BgzfError, Unpacked};
use crate::sam::Header;

/// Largest record accepted; htslib's own limit is 2 GiB, real ones stay far below a megabyte.
const MAX_RECORD_BYTES: u32 = 1 << 29;
/// Smallest record: fixed fields and an empty name.
const MIN_RECORD_BYTES: u32 = 33;

/// Packed records, one behind the other.
#[derive(Clone, Debug, Default)]
pub struct RecordChunk {
    /// The records, without `block_size`.
    pub data: Vec<u8>,
    /// Where each record ends in `data`.
    pub ends: Vec<usize>,
    /// 0-based index in the file of the first record.
    pub first_record: u64,
}

impl RecordChunk {
    /// The packed records in order.
    pub fn records(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |end| &self.data[std::mem::replace(&mut start, *end)..*end])
    }

    /// Replaces the records by those that `read` appends one at a time until it says that there are no more (false):
    /// about `max_bytes`, at least one. The first is the `first_record`th of the file, 0-based. False where none came.
    ///
    /// # Errors
    /// Those of `read`; the good records before it then are there, and nothing of the bad one.
    pub fn fill<E>(
        &mut self,
        first_record: u64,
        max_bytes: usize,
        mut read: impl FnMut(&mut Vec<u8>) -> Result<bool, E>,
    ) -> Result<bool, E> {
        self.data.clear();
        self.ends.clear();
        self.first_record = first_record;
        while self.ends.is_empty() || self.data.len() < max_bytes {
            let start = self.data.len();
            let more = read(&mut self.data);
            if !matches!(more, Ok(true)) {
                self.data.truncate(start);
                more?;
                break;
            }
            self.ends.push(self.data.len());
        }
        Ok(!self.ends.is_empty())
    }
}

/// Reads a BAM file that nobody vouched for.
#[derive(Debug)]
pub struct Reader {
    input: bgzf::Reader,
    header: Header,
    genome: Genome,
    records: u64,
}

impl Reader {
    /// Opens a file, decompressed on that many threads, and reads its header. Where the text lacks `@SQ` lines, they are
    /// made from the binary list.
    ///
    /// # Errors
    /// [`BamError`] about the file or its header.
    pub fn open(path: &Path, threads: usize) -> Result<Self, BamError> {
        Self::new(bgzf::Reader::open(path, threads)?)
    }

    /// As [`Reader::open`] for a file that is open and of which nothing was consumed.
    ///
    /// # Errors
    /// [`BamError`] about the file or its header.
    pub fn new(mut input: bgzf::Reader) -> Result<Self, BamError> {
        let path = input.path().to_owned();
        // Until something was read, it is not known how the file is read.
        input.data()?;
        if !input.is_bgzf() {
            return Err(BgzfError::NotBgzf { path }.into());
        }
        let (header, genome) = read_header(&mut input)?;
        Ok(Self { input, header, genome, records: 0 })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// BLAKE3 of the file as it is on disk, hexadecimal; `None` before its end was read.
    pub fn checksum(&self) -> Option<String> {
        self.input.checksum()
    }

    /// The file that is read.
    pub fn input(&self) -> &bgzf::Reader {
        &self.input
    }

    /// The contigs.
    pub fn genome(&self) -> &Genome {
        &self.genome
    }

    /// Replaces the records of `out` by the next ones: about `max_bytes`, at least one record. False, with no records, at
    /// the end of the file, which then is known to be whole.
    ///
    /// # Errors
    /// [`BamError`] naming the record, or the place of damage; `out` then holds the good records before it.
    pub fn read_chunk(&mut self, out: &mut RecordChunk, max_bytes: usize) -> Result<bool, BamError> {
        out.fill(self.records, max_bytes, |data| {
            let more = self.read_record(data)?;
            self.records += u64::from(more);
            Ok(more)
        })
    }

    /// Appends one record; false at the end of the file.
    fn read_record(&mut self, out: &mut Vec<u8>) -> Result<bool, BamError> {
        match append_record(&mut self.input, self.genome.contigs().len(), out)? {
            Ok(more) => Ok(more),
            Err(None) => Err(self.truncated()),
            Err(Some(problem)) => Err(self.damaged(problem)),
        }
    }

    fn truncated(&self) -> BamError {
        BamError::TruncatedRecord { path: self.input.path().to_owned(), record: self.records + 1 }
    }

    fn damaged(&self, source: RecordProblem) -> BamError {
        DamagedRecord { path: self.input.path().to_owned(), record: self.records + 1, source }.into()
    }
}

/// Appends the next record without its size, checked; false at the end of the file. The inner error is what is wrong with it:
/// nothing but that the file ends within it, or a problem.
pub(super) fn append_record(
    input: &mut impl Unpacked,
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
