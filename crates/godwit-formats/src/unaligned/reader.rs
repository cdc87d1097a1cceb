//! A reader of templates (single reads or pairs) from SAM, BAM or other records.

use std::path::Path;

use godwit_io::bgzf;
use godwit_model::{RawRecord, flags};

use super::error::{ReadProblem, UnalignedError};
use super::read::Read;
use crate::bam::{self, RecordBuffer};
use crate::sam::{self, Header, LineEncoder};

/// Bytes of records or SAM lines that are read at once.
const BUFFER_BYTES: usize = 1 << 20;

/// A selection of records by their read group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadGroupFilter {
    /// All records, independent of the read group.
    All,
    /// All records. A record with another read group than this one is an error; a record without read group is
    /// accepted.
    Single(Vec<u8>),
    /// The records of the read group `id`, in a file that has the read groups `known_ids`.
    OneOf {
        /// ID of the read group to select.
        id: Vec<u8>,
        /// IDs of all read groups of the file, including `id`. A record with another read group is an error.
        known_ids: Vec<Vec<u8>>,
    },
}

/// A selection of the records of a file and of their tags.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_formats::sam;
/// use godwit_formats::unaligned::{ReadGroupFilter, Reader, Selection};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("a.sam");
/// std::fs::write(&path, "r1\t4\t*\t0\t0\t*\t*\t0\t0\tACGT\tIIII\tXZ:Z:x\tBC:Z:TTGA\n")?;
/// let selection = Selection { read_groups: ReadGroupFilter::All, tags: vec![*b"BC"] };
/// let mut reader = Reader::from_sam(sam::Reader::open(&path, 1)?, selection)?;
/// reader.next_template(|read| assert_eq!(read.comment, b"BC:Z:TTGA"))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Filter of the records by read group.
    pub read_groups: ReadGroupFilter,
    /// Names of the tags that are copied into the comment of a read.
    pub tags: Vec<[u8; 2]>,
}

/// A reader that returns the templates of a file in order.
#[derive(Debug)]
pub struct Reader {
    records: RecordStream,
    selection: Selection,
    paired: bool,
    /// Origin of the next read, if that read was already read into `first` but not returned.
    peeked: Option<ReadOrigin>,
    first: Read,
    second: Read,
}

/// FLAG and number of the record from which a read was made.
#[derive(Clone, Copy, Debug)]
struct ReadOrigin {
    flag: u16,
    /// 1-based number of the record in the file.
    record: u64,
}

/// A sequence of packed records that is read into a buffer.
#[derive(Debug)]
struct RecordStream {
    source: RecordInput,
    buffer: RecordBuffer,
    /// Index of the next record in the buffer.
    next_index: usize,
}

#[derive(Debug)]
enum RecordInput {
    Bam(bam::Reader),
    Sam(sam::Reader, LineEncoder),
    Other(Box<dyn RecordSource>),
}

/// A source of SAM records in a file format that this crate does not read, such as CRAM.
pub trait RecordSource: std::fmt::Debug + Send {
    /// Returns the path of the file.
    fn path(&self) -> &Path;

    /// Returns the SAM header of the file.
    fn header(&self) -> &Header;

    /// Replaces the records of the buffer by the next records of the file, about `max_bytes` but at least one record.
    /// The source must have validated them. Returns false, with an empty buffer, at the end of the file.
    ///
    /// # Errors
    /// Any error in reading the file; its message contains the path.
    fn read_records(
        &mut self,
        chunk: &mut RecordBuffer,
        max_bytes: usize,
    ) -> Result<bool, Box<dyn std::error::Error + Send + Sync>>;

    /// Returns the number of bytes of the file read so far. A source that cannot report progress may return 0 until it
    /// has read the whole file.
    fn compressed_bytes_read(&self) -> u64;
}

impl Reader {
    /// Creates a reader of the templates of a BAM file of which no record has been read.
    ///
    /// # Errors
    /// [`UnalignedError`] if the first read cannot be read or used.
    pub fn from_bam(reader: bam::Reader, selection: Selection) -> Result<Self, UnalignedError> {
        Self::new(RecordInput::Bam(reader), selection)
    }

    /// Creates a reader of the templates of a SAM file of which no record has been read.
    ///
    /// # Errors
    /// [`UnalignedError`] if the header is invalid, or the first read cannot be read or used.
    pub fn from_sam(reader: sam::Reader, selection: Selection) -> Result<Self, UnalignedError> {
        let path = reader.input().path().to_owned();
        let genome = reader
            .header()
            .genome()
            .map_err(|source| sam::SamReadError::from(sam::FileHeaderError { path, source }))?;
        let encoder = LineEncoder::new(&genome);
        Self::new(RecordInput::Sam(reader, encoder), selection)
    }

    /// Creates a reader of the templates of another source, of which no record has been read.
    ///
    /// # Errors
    /// [`UnalignedError`] if the first read cannot be read or used.
    pub fn from_source(source: Box<dyn RecordSource>, selection: Selection) -> Result<Self, UnalignedError> {
        Self::new(RecordInput::Other(source), selection)
    }

    fn new(source: RecordInput, selection: Selection) -> Result<Self, UnalignedError> {
        let records = RecordStream { source, buffer: RecordBuffer::default(), next_index: 0 };
        let (first, second) = (Read::default(), Read::default());
        let mut reader = Self { records, selection, paired: false, peeked: None, first, second };
        reader.peeked = reader.read_first_mate()?;
        reader.paired = reader.peeked.is_some_and(ReadOrigin::is_paired);
        if reader.peeked.is_none() && !matches!(reader.selection.read_groups, ReadGroupFilter::OneOf { .. }) {
            return Err(UnalignedError::Empty { file: reader.records.source.path().to_owned() });
        }
        Ok(reader)
    }

    /// Returns the BLAKE3 hash of the file as it is on disk, in hexadecimal digits; `None` before the end of the file
    /// has been read, and for a [`RecordSource`].
    pub fn checksum(&self) -> Option<String> {
        self.records.source.bgzf_reader()?.checksum()
    }

    /// Returns the number of bytes read from the file so far, counted as on disk, before decompression.
    pub fn compressed_bytes_read(&self) -> u64 {
        match &self.records.source {
            RecordInput::Other(source) => source.compressed_bytes_read(),
            source => source.bgzf_reader().map_or(0, bgzf::Reader::compressed_bytes_read),
        }
    }

    /// Returns the estimated number of bytes of the file on disk up to the templates returned so far; at the end, the
    /// length of the file.
    pub(crate) fn compressed_bytes_consumed(&self) -> u64 {
        match &self.records.source {
            RecordInput::Other(source) => source.compressed_bytes_read(),
            source => source.bgzf_reader().map_or(0, bgzf::Reader::compressed_bytes_consumed),
        }
    }

    /// Returns the length of the file on disk in bytes; `None` for a pipe and for a [`RecordSource`], whose progress is
    /// unknown.
    pub fn compressed_bytes_total(&self) -> Option<u64> {
        match &self.records.source {
            RecordInput::Other(_) => None,
            source => source.bgzf_reader()?.compressed_bytes_total(),
        }
    }

    /// Returns the SAM header of the file.
    pub fn header(&self) -> &Header {
        self.records.source.header()
    }

    /// Returns whether the reads are paired, as FLAG 0x1 of the first record says.
    pub fn is_paired(&self) -> bool {
        self.paired
    }

    /// Returns the name of the first read; empty if the file has no reads. The result is valid before the first call of
    /// [`Reader::next_template`].
    pub fn first_name(&self) -> &[u8] {
        &self.first.name
    }

    /// Passes the reads of the next template to `push`: one read, or read 1 and then read 2. Returns the number of
    /// reads, which is 0 at the end of the file.
    ///
    /// # Errors
    /// [`UnalignedError`]. The reader cannot be used after an error.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_formats::sam;
    /// use godwit_formats::unaligned::{ReadGroupFilter, Reader, Selection};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("a.sam");
    /// // The read is reversed in the alignment.
    /// std::fs::write(&path, "@SQ\tSN:chr1\tLN:1000\nr1\t16\tchr1\t7\t60\t4M\t*\t0\t0\tAACG\t!#%I\n")?;
    /// let selection = Selection { read_groups: ReadGroupFilter::All, tags: Vec::new() };
    /// let mut reader = Reader::from_sam(sam::Reader::open(&path, 1)?, selection)?;
    /// let mut reads = Vec::new();
    /// assert_eq!(reader.next_template(|read| reads.push(read.clone()))?, 1);
    /// assert_eq!(reads[0].sequence, b"CGTT");
    /// assert_eq!(reads[0].quality, b"I%#!");
    /// assert_eq!(reader.next_template(|_| {})?, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn next_template(&mut self, mut push: impl FnMut(&Read)) -> Result<u64, UnalignedError> {
        let peeked = self.peeked.take();
        let Some(first) = peeked.map_or_else(|| self.read_first_mate(), |ahead| Ok(Some(ahead)))? else { return Ok(0) };
        let record_error =
            |reader: &Self, problem| reader.records.record_error(first.record, &reader.first.name, problem);
        if first.is_paired() != self.paired {
            return Err(record_error(self, ReadProblem::Mixed { paired: first.is_paired() }));
        }
        if !self.paired {
            push(&self.first);
            return Ok(1);
        }
        let second = self.records.read_next(&self.selection, &mut self.second)?;
        let Some(second) = second.filter(|_| self.first.name == self.second.name) else {
            return Err(record_error(self, ReadProblem::NoMate));
        };
        let ends = flags::FIRST | flags::LAST;
        match (first.flag & ends, second.flag & ends) {
            (flags::FIRST, flags::LAST) if second.is_paired() => [&self.first, &self.second].map(&mut push),
            (flags::LAST, flags::FIRST) if second.is_paired() => [&self.second, &self.first].map(&mut push),
            _ => {
                let problem = ReadProblem::NotReadOneAndTwo { first: first.flag, second: second.flag };
                return Err(record_error(self, problem));
            }
        };
        Ok(2)
    }

    fn read_first_mate(&mut self) -> Result<Option<ReadOrigin>, UnalignedError> {
        self.records.read_next(&self.selection, &mut self.first)
    }
}

impl ReadOrigin {
    fn is_paired(self) -> bool {
        self.flag & flags::PAIRED != 0
    }
}

impl RecordStream {
    /// Reads the next primary record that belongs to the selection, and stores its read in `read`. Returns `None` at
    /// the end of the file.
    fn read_next(&mut self, selection: &Selection, read: &mut Read) -> Result<Option<ReadOrigin>, UnalignedError> {
        loop {
            if self.next_index == self.buffer.end_offsets.len() && !self.fill_buffer()? {
                return Ok(None);
            }
            let start = if self.next_index == 0 { 0 } else { self.buffer.end_offsets[self.next_index - 1] };
            let record =
                RawRecord::from_trusted_bytes(&self.buffer.data[start..self.buffer.end_offsets[self.next_index]]);
            self.next_index += 1;
            if record.flag() & flags::NOT_PRIMARY != 0 {
                continue;
            }
            let result = match selection.includes(record) {
                Ok(false) => continue,
                Ok(true) => read.fill_from_record(record, &selection.tags),
                Err(problem) => Err(problem),
            };
            let number = self.buffer.first_record + self.next_index as u64;
            return match result {
                Ok(()) => Ok(Some(ReadOrigin { flag: record.flag(), record: number })),
                Err(problem) => Err(self.record_error(number, record.name(), problem)),
            };
        }
    }

    /// Fills the buffer with the next records; returns false at the end of the file.
    fn fill_buffer(&mut self) -> Result<bool, UnalignedError> {
        self.next_index = 0;
        match &mut self.source {
            RecordInput::Bam(reader) => Ok(reader.read_records(&mut self.buffer, BUFFER_BYTES)?),
            RecordInput::Sam(reader, encoder) => {
                self.buffer.first_record += self.buffer.end_offsets.len() as u64;
                self.buffer.data.clear();
                self.buffer.end_offsets.clear();
                let Some(lines) = reader.next_lines(BUFFER_BYTES)? else { return Ok(false) };
                for (index, line) in lines.lines().enumerate() {
                    encoder.encode(line, &mut self.buffer.data).map_err(|source| UnalignedError::Line {
                        file: reader.input().path().to_owned(),
                        line: lines.first_line_number + index as u64,
                        source,
                    })?;
                    self.buffer.end_offsets.push(self.buffer.data.len());
                }
                reader.recycle(lines.bytes);
                Ok(true)
            }
            RecordInput::Other(source) => {
                source.read_records(&mut self.buffer, BUFFER_BYTES).map_err(UnalignedError::Other)
            }
        }
    }

    fn record_error(&self, record: u64, name: &[u8], problem: ReadProblem) -> UnalignedError {
        let name = String::from_utf8_lossy(name).into_owned();
        UnalignedError::Record { file: self.source.path().to_owned(), record, name, problem }
    }
}

impl RecordInput {
    /// Returns the BGZF reader of a SAM or BAM file, or `None` for a [`RecordSource`].
    fn bgzf_reader(&self) -> Option<&bgzf::Reader> {
        match self {
            Self::Bam(reader) => Some(reader.input()),
            Self::Sam(reader, _) => Some(reader.input()),
            Self::Other(_) => None,
        }
    }

    fn path(&self) -> &Path {
        match self {
            Self::Bam(reader) => reader.input().path(),
            Self::Sam(reader, _) => reader.input().path(),
            Self::Other(source) => source.path(),
        }
    }

    fn header(&self) -> &Header {
        match self {
            Self::Bam(reader) => reader.header(),
            Self::Sam(reader, _) => reader.header(),
            Self::Other(source) => source.header(),
        }
    }
}

impl Selection {
    fn includes(&self, record: RawRecord<'_>) -> Result<bool, ReadProblem> {
        if self.read_groups == ReadGroupFilter::All {
            return Ok(true);
        }
        let found = record.read_group();
        let is_included = match &self.read_groups {
            ReadGroupFilter::All => Some(true),
            ReadGroupFilter::Single(id) => found.is_none_or(|found| found == id).then_some(true),
            ReadGroupFilter::OneOf { id, known_ids } => {
                found.filter(|found| known_ids.iter().any(|known| known == found)).map(|found| found == id)
            }
        };
        is_included
            .ok_or_else(|| ReadProblem::ReadGroup { found: found.map(|id| String::from_utf8_lossy(id).into_owned()) })
    }
}
