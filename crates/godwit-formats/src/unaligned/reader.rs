//! Records to templates.

use std::path::Path;

use godwit_model::{RawRecord, flags};

use super::error::{ReadProblem, UnalignedError};
use super::read::Read;
use crate::bam::{self, RecordChunk};
use crate::bgzf;
use crate::sam::{self, Header, LineEncoder};

/// Bytes of records or lines taken at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Which records of a file are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Take {
    /// All, whatever read group they are of.
    All,
    /// All, which may have no read group but this one.
    Only(Vec<u8>),
    /// Those of one read group, in a file that has these.
    Group {
        /// The one.
        id: Vec<u8>,
        /// Every one, itself among them.
        all: Vec<Vec<u8>>,
    },
}

/// What is read of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Which records.
    pub take: Take,
    /// Which of their tags.
    pub tags: Vec<[u8; 2]>,
}

/// Reads templates.
#[derive(Debug)]
pub struct Reader {
    records: Records,
    selection: Selection,
    paired: bool,
    /// The next read was looked at and lies in `first`.
    ahead: Option<Taken>,
    first: Read,
    second: Read,
}

/// A record that was taken over.
#[derive(Clone, Copy, Debug)]
struct Taken {
    flag: u16,
    /// 1-based number in the file.
    record: u64,
}

/// Packed records, one at a time.
#[derive(Debug)]
struct Records {
    source: Source,
    chunk: RecordChunk,
    /// The next record of the chunk.
    next: usize,
}

#[derive(Debug)]
enum Source {
    Bam(bam::Reader),
    Sam(sam::Reader, LineEncoder),
    Other(Box<dyn RecordSource>),
}

/// A file of records in a format that this crate does not read.
pub trait RecordSource: std::fmt::Debug + Send {
    /// The file.
    fn path(&self) -> &Path;

    /// Its header.
    fn header(&self) -> &Header;

    /// Replaces the records of `chunk` by the next ones, checked: about `max_bytes`, at least one record. False, with no
    /// records, at the end of the file.
    ///
    /// # Errors
    /// Whatever is wrong with the file, naming it.
    fn read_chunk(
        &mut self,
        chunk: &mut RecordChunk,
        max_bytes: usize,
    ) -> Result<bool, Box<dyn std::error::Error + Send + Sync>>;

    /// Bytes of the file taken so far; may stay 0 until all of it is.
    fn bytes_read(&self) -> u64;
}

impl Reader {
    /// Reads a BAM file that stands at its first record.
    ///
    /// # Errors
    /// [`UnalignedError`] about its first read.
    pub fn from_bam(reader: bam::Reader, selection: Selection) -> Result<Self, UnalignedError> {
        Self::new(Source::Bam(reader), selection)
    }

    /// Reads a SAM file that stands at its first record.
    ///
    /// # Errors
    /// [`UnalignedError`] about its header or its first read.
    pub fn from_sam(reader: sam::Reader, selection: Selection) -> Result<Self, UnalignedError> {
        let path = reader.input().path().to_owned();
        let genome =
            reader.header().genome().map_err(|source| sam::ReadError::from(sam::UnusableHeader { path, source }))?;
        let encoder = LineEncoder::new(&genome);
        Self::new(Source::Sam(reader, encoder), selection)
    }

    /// Reads a file that stands at its first record.
    ///
    /// # Errors
    /// [`UnalignedError`] about its first read.
    pub fn from_source(source: Box<dyn RecordSource>, selection: Selection) -> Result<Self, UnalignedError> {
        Self::new(Source::Other(source), selection)
    }

    fn new(source: Source, selection: Selection) -> Result<Self, UnalignedError> {
        let records = Records { source, chunk: RecordChunk::default(), next: 0 };
        let (first, second) = (Read::default(), Read::default());
        let mut reader = Self { records, selection, paired: false, ahead: None, first, second };
        reader.ahead = reader.advance_first()?;
        reader.paired = reader.ahead.is_some_and(Taken::is_paired);
        if reader.ahead.is_none() && !matches!(reader.selection.take, Take::Group { .. }) {
            return Err(UnalignedError::Empty { file: reader.records.source.path().to_owned() });
        }
        Ok(reader)
    }

    /// BLAKE3 of the file as it is on disk, hexadecimal; `None` before its end was read, and where it is not read in order.
    pub fn checksum(&self) -> Option<String> {
        self.records.source.text()?.checksum()
    }

    /// Bytes taken from the file so far, as they are on disk.
    pub fn compressed_bytes_read(&self) -> u64 {
        match &self.records.source {
            Source::Other(source) => source.bytes_read(),
            source => source.text().map_or(0, bgzf::Reader::compressed_bytes_read),
        }
    }

    /// Bytes of the file up to the templates returned so far, estimated; all of them at the end.
    pub fn compressed_bytes_consumed(&self) -> u64 {
        match &self.records.source {
            Source::Other(source) => source.bytes_read(),
            source => source.text().map_or(0, bgzf::Reader::compressed_bytes_consumed),
        }
    }

    /// Bytes of the file on disk; `None` where nobody says how far reading is: for a pipe, and another's format.
    pub fn compressed_bytes_total(&self) -> Option<u64> {
        match &self.records.source {
            Source::Other(_) => None,
            source => source.text()?.compressed_bytes_total(),
        }
    }

    /// Its header.
    pub fn header(&self) -> &Header {
        self.records.source.header()
    }

    /// Whether its reads are pairs.
    pub fn is_paired(&self) -> bool {
        self.paired
    }

    /// Name of the first read, before any was taken; empty where there is none.
    pub fn first_name(&self) -> &[u8] {
        &self.first.name
    }

    /// Hands over the next read, or read 1 and read 2, and returns how many: 0 at the end of the file.
    ///
    /// # Errors
    /// [`UnalignedError`]; the reader is of no use afterwards.
    pub fn next_template(&mut self, mut push: impl FnMut(&Read)) -> Result<u64, UnalignedError> {
        let ahead = self.ahead.take();
        let Some(first) = ahead.map_or_else(|| self.advance_first(), |ahead| Ok(Some(ahead)))? else { return Ok(0) };
        let wrong = |reader: &Self, problem| reader.records.wrong(first.record, &reader.first.name, problem);
        if first.is_paired() != self.paired {
            return Err(wrong(self, ReadProblem::Mixed { paired: first.is_paired() }));
        }
        if !self.paired {
            push(&self.first);
            return Ok(1);
        }
        let second = self.records.advance(&self.selection, &mut self.second)?;
        let Some(second) = second.filter(|_| self.first.name == self.second.name) else {
            return Err(wrong(self, ReadProblem::NoMate));
        };
        let ends = flags::FIRST | flags::LAST;
        match (first.flag & ends, second.flag & ends) {
            (flags::FIRST, flags::LAST) if second.is_paired() => [&self.first, &self.second].map(&mut push),
            (flags::LAST, flags::FIRST) if second.is_paired() => [&self.second, &self.first].map(&mut push),
            _ => {
                let problem = ReadProblem::NotReadOneAndTwo { first: first.flag, second: second.flag };
                return Err(wrong(self, problem));
            }
        };
        Ok(2)
    }

    fn advance_first(&mut self) -> Result<Option<Taken>, UnalignedError> {
        self.records.advance(&self.selection, &mut self.first)
    }
}

impl Taken {
    fn is_paired(self) -> bool {
        self.flag & flags::PAIRED != 0
    }
}

impl Records {
    /// Takes over the next record that is selected.
    fn advance(&mut self, selection: &Selection, read: &mut Read) -> Result<Option<Taken>, UnalignedError> {
        loop {
            if self.next == self.chunk.ends.len() && !self.fill()? {
                return Ok(None);
            }
            let start = if self.next == 0 { 0 } else { self.chunk.ends[self.next - 1] };
            let record = RawRecord::trusted(&self.chunk.data[start..self.chunk.ends[self.next]]);
            self.next += 1;
            if record.flag() & flags::NOT_PRIMARY != 0 {
                continue;
            }
            let taken = match selection.wants(record) {
                Ok(false) => continue,
                Ok(true) => read.take(record, &selection.tags),
                Err(problem) => Err(problem),
            };
            let number = self.chunk.first_record + self.next as u64;
            return match taken {
                Ok(()) => Ok(Some(Taken { flag: record.flag(), record: number })),
                Err(problem) => Err(self.wrong(number, record.name(), problem)),
            };
        }
    }

    /// The next chunk; false at the end of the file.
    fn fill(&mut self) -> Result<bool, UnalignedError> {
        self.next = 0;
        match &mut self.source {
            Source::Bam(reader) => Ok(reader.read_chunk(&mut self.chunk, CHUNK_BYTES)?),
            Source::Sam(reader, encoder) => {
                self.chunk.first_record += self.chunk.ends.len() as u64;
                self.chunk.data.clear();
                self.chunk.ends.clear();
                let Some(lines) = reader.next_lines(CHUNK_BYTES)? else { return Ok(false) };
                for (index, line) in lines.lines().enumerate() {
                    encoder.encode(line, &mut self.chunk.data).map_err(|source| UnalignedError::Line {
                        file: reader.input().path().to_owned(),
                        line: lines.first_line + index as u64,
                        source,
                    })?;
                    self.chunk.ends.push(self.chunk.data.len());
                }
                reader.recycle(lines.bytes);
                Ok(true)
            }
            Source::Other(source) => source.read_chunk(&mut self.chunk, CHUNK_BYTES).map_err(UnalignedError::Other),
        }
    }

    fn wrong(&self, record: u64, name: &[u8], problem: ReadProblem) -> UnalignedError {
        let name = String::from_utf8_lossy(name).into_owned();
        UnalignedError::Record { file: self.source.path().to_owned(), record, name, problem }
    }
}

impl Source {
    /// What is read in order.
    fn text(&self) -> Option<&bgzf::Reader> {
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
    fn wants(&self, record: RawRecord<'_>) -> Result<bool, ReadProblem> {
        if self.take == Take::All {
            return Ok(true);
        }
        let found = record.read_group();
        let wanted = match &self.take {
            Take::All => Some(true),
            Take::Only(id) => found.is_none_or(|found| found == id).then_some(true),
            Take::Group { id, all } => {
                found.filter(|found| all.iter().any(|known| known == found)).map(|found| found == id)
            }
        };
        wanted.ok_or_else(|| ReadProblem::ReadGroup { found: found.map(|id| String::from_utf8_lossy(id).into_owned()) })
    }
}
