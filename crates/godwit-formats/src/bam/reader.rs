//! A sequential reader of a BAM file: its header, then buffers of validated records.

use std::path::Path;

use godwit_io::bgzf::{self, BgzfBufRead, BgzfError};
use godwit_model::Genome;

use super::error::{BamError, DamagedRecordError};
use super::header::read_header;
use super::record_validation::{RecordProblem, check_record};
use crate::sam::Header;

/// Maximum bytes of a record. The limit of htslib is 2 GiB; real records are much smaller than a megabyte.
const MAX_RECORD_BYTES: u32 = 1 << 29;
/// Minimum bytes of a record: the fixed fields and an empty name.
const MIN_RECORD_BYTES: u32 = 33;

/// A buffer of consecutive packed records.
#[derive(Clone, Debug, Default)]
pub struct RecordBuffer {
    /// The packed records, without the field `block_size` before each of them.
    pub data: Vec<u8>,
    /// Offset of the end of each record in `data`.
    pub end_offsets: Vec<usize>,
    /// 0-based number, in the file, of the first record of the buffer.
    pub first_record: u64,
}

impl RecordBuffer {
    /// Returns the packed records in order.
    pub fn records(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let mut start = 0;
        self.end_offsets.iter().map(move |end| &self.data[std::mem::replace(&mut start, *end)..*end])
    }

    /// Replaces the records by those that `read` appends. Each call of `read` appends one record, or returns false if
    /// there is no further record. About `max_bytes` are read, but at least one record. `first_record` is the 0-based
    /// number of the first record in the file. Returns false if no record was read.
    ///
    /// # Errors
    /// The errors of `read`. After an error, the buffer contains the valid records before it, but no bytes of the
    /// failed record.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_formats::bam::RecordBuffer;
    /// use godwit_formats::sam::LineEncoder;
    /// use godwit_model::Genome;
    ///
    /// let reads = ["r1\t4\t*\t0\t0\t*\t*\t0\t0\tACGT\tIIII", "r2\t4\t*\t0\t0\t*\t*\t0\t0\tTTGA\tIIII"];
    /// let (mut lines, mut encoder) = (reads.iter(), LineEncoder::new(&Genome::default()));
    /// let mut buffer = RecordBuffer::default();
    /// buffer.fill_with(0, 1 << 20, |data| match lines.next() {
    ///     Some(line) => encoder.encode(line.as_bytes(), data).map(|()| true),
    ///     None => Ok(false),
    /// })?;
    /// assert_eq!(buffer.records().len(), 2);
    /// # Ok(())
    /// # }
    /// ```
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

/// A sequential reader of BAM files from untrusted sources.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use godwit_formats::bam::encode_header;
/// # use godwit_io::bgzf;
/// # use godwit_formats::sam::{Header, LineEncoder};
/// use godwit_formats::bam::{Reader, RecordBuffer};
/// use godwit_model::RawRecord;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("a.bam");
/// # let header = Header::parse(b"@SQ\tSN:chr1\tLN:1000\n")?;
/// # let mut bytes = Vec::new();
/// # encode_header(&header, &mut bytes)?;
/// # let mut file = bgzf::Writer::new(std::fs::File::create(&path)?, 6);
/// # file.write_bytes(&bytes)?;
/// # let mut encoder = LineEncoder::new(&header.genome()?);
/// # for line in ["r1\t0\tchr1\t7\t60\t4M\t*\t0\t0\tACGT\tIIII", "r2\t0\tchr1\t501\t60\t4M\t*\t0\t0\tTTGA\tIIII"] {
/// #     let mut record = Vec::new();
/// #     encoder.encode(line.as_bytes(), &mut record)?;
/// #     file.write_record(&[&(record.len() as u32).to_le_bytes()[..], &record])?;
/// # }
/// # file.finish_file()?;
/// // A file with the records r1 and r2 on chr1.
/// let mut reader = Reader::open(&path, 1)?;
/// let contig_count = reader.genome().contigs().len();
/// let (mut buffer, mut names) = (RecordBuffer::default(), Vec::new());
/// while reader.read_records(&mut buffer, 1 << 20)? {
///     for record in buffer.records() {
///         names.push(RawRecord::from_bytes(record, contig_count)?.name().to_vec());
///     }
/// }
/// assert_eq!(names, [b"r1", b"r2"]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Reader {
    input: bgzf::Reader,
    header: Header,
    genome: Genome,
    records_read: u64,
}

impl Reader {
    /// Opens a BAM file, which `threads` threads decompress, and reads its header. Missing `@SQ` lines are created from
    /// the binary list of contigs.
    ///
    /// # Errors
    /// [`BamError`] if the file cannot be read or its header is invalid.
    pub fn open(path: &Path, threads: usize) -> Result<Self, BamError> {
        Self::new(bgzf::Reader::open(path, threads)?)
    }

    /// Reads the header of an open BAM file from which nothing has been consumed.
    ///
    /// # Errors
    /// [`BamError`] if the file cannot be read or its header is invalid.
    pub fn new(mut input: bgzf::Reader) -> Result<Self, BamError> {
        let path = input.path().to_owned();
        // `is_bgzf` is valid only after the first read.
        input.data()?;
        if !input.is_bgzf() {
            return Err(BgzfError::NotBgzf { path }.into());
        }
        let (header, genome) = read_header(&mut input)?;
        Ok(Self { input, header, genome, records_read: 0 })
    }

    /// Returns the SAM header of the file.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the BLAKE3 hash of the file as it is on disk, in hexadecimal digits; `None` before the end of the file
    /// has been read.
    pub fn checksum(&self) -> Option<String> {
        self.input.checksum()
    }

    /// Returns the reader of the compressed file.
    pub fn input(&self) -> &bgzf::Reader {
        &self.input
    }

    /// Returns the contigs of the file.
    pub fn genome(&self) -> &Genome {
        &self.genome
    }

    /// Replaces the records of `out` by the next records of the file: about `max_bytes`, but at least one record.
    /// Returns false, with an empty buffer, at the end of the file. The file is then known to be complete.
    ///
    /// # Errors
    /// [`BamError`] with the number of the record, or the offset of the damaged data. `out` then contains the valid
    /// records before it.
    pub fn read_records(&mut self, out: &mut RecordBuffer, max_bytes: usize) -> Result<bool, BamError> {
        out.fill_with(self.records_read, max_bytes, |data| {
            let more = self.read_record(data)?;
            self.records_read += u64::from(more);
            Ok(more)
        })
    }

    /// Appends the next record to `out`; returns false at the end of the file.
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

/// Appends the next record, without its `block_size`, to `out` and validates it. Returns false at the end of the file.
/// The inner error is the problem of the record, or `None` if the file ends within the record.
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
