//! VCF files read from places in them, for lookups and for several readers at once.
//!
//! Flows in: a BGZF file, stretches of it (as an index tells them), and the regions that are asked for. Flows out: records,
//! in the order of the file.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use godwit_model::SpanSet;

use super::error::VcfError;
use super::header::Header;
use super::reader::{Reader, read_line};
use super::record::Record;
use crate::bgzf::{SeekReader, VirtualOffset};
use crate::index::FileChunk;
use crate::random_access::RandomAccess;

/// What is known of a bgzipped VCF before its records are read.
#[derive(Debug)]
pub struct VcfFile {
    source: Arc<dyn RandomAccess>,
    header: Arc<Header>,
    first_record: VirtualOffset,
}

impl VcfFile {
    /// Reads the header of a file that is BGZF.
    ///
    /// # Errors
    /// [`VcfError`].
    pub fn open(source: Arc<dyn RandomAccess>) -> Result<Self, VcfError> {
        let (header, input) = Reader::new(SeekReader::new(source.clone()))?.into_parts();
        Ok(Self { source, header: Arc::new(header), first_record: input.virtual_offset() })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    /// Its length, bytes.
    pub fn bytes(&self) -> u64 {
        self.source.bytes()
    }

    /// The header.
    pub fn header(&self) -> &Arc<Header> {
        &self.header
    }

    /// Where the first record is, or would be.
    pub fn first_record(&self) -> VirtualOffset {
        self.first_record
    }

    /// Reads records that begin in one of some stretches, each of which begins with a record. `u64::MAX` for the end of one is
    /// that of the file.
    pub fn records(&self, stretches: Vec<FileChunk>) -> Records {
        Records {
            input: SeekReader::new(self.source.clone()),
            header: self.header.clone(),
            stretches: stretches.into(),
            end: None,
            wanted: None,
            line: Vec::new(),
            offset: 0,
        }
    }
}

/// Records on their way out of a file.
#[derive(Debug)]
pub struct Records {
    input: SeekReader,
    header: Arc<Header>,
    stretches: VecDeque<FileChunk>,
    /// Where the stretch ends that is being read.
    end: Option<VirtualOffset>,
    wanted: Option<Wanted>,
    line: Vec<u8>,
    /// Where the line is.
    offset: VirtualOffset,
}

/// Which records are wanted.
#[derive(Debug)]
struct Wanted {
    spans: SpanSet,
    contigs: HashMap<String, u32>,
    /// The contig of the record before, mostly the next one's too.
    last: (String, u32),
}

impl Records {
    /// Passes over records that overlap none of some spans of contigs numbered by name, as `bcftools view -r` does (bcftools
    /// 1.16): by `REF`, or by `END` where a record has it.
    pub fn overlapping(mut self, spans: SpanSet, contigs: HashMap<String, u32>) -> Self {
        self.wanted = Some(Wanted { spans, contigs, last: (String::new(), u32::MAX) });
        self
    }

    /// The next record.
    ///
    /// # Errors
    /// [`VcfError`].
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, VcfError> {
        while self.advance()? {
            let record = parse(&self.line, &self.header, &self.input, self.offset)?;
            if self.wanted.as_mut().is_none_or(|wanted| wanted.has(&record)) {
                // Taken apart once more, because the borrow of a loop cannot leave it.
                return parse(&self.line, &self.header, &self.input, self.offset).map(Some);
            }
        }
        Ok(None)
    }

    /// An error about the record that was read last.
    pub fn record_error(&self, problem: String) -> VcfError {
        VcfError::RecordAt { path: self.input.source().path().to_owned(), offset: self.offset, problem }
    }

    /// Reads a line into place; false where there is none any more.
    fn advance(&mut self) -> Result<bool, VcfError> {
        loop {
            let Some(end) = self.end else {
                let Some((start, end)) = self.stretches.pop_front() else { return Ok(false) };
                self.input.seek(start)?;
                self.end = Some(end);
                continue;
            };
            self.offset = self.input.virtual_offset();
            if self.offset >= end {
                self.end = None;
                continue;
            }
            let source = self.input.source().clone();
            if read_line(&mut self.input, source.path(), &mut self.line, &mut 0)?.is_some() {
                return Ok(true);
            }
            self.end = None;
        }
    }
}

impl Wanted {
    fn has(&mut self, record: &Record) -> bool {
        if self.last.0 != record.contig {
            self.last = (record.contig.to_owned(), self.contigs.get(record.contig).copied().unwrap_or(u32::MAX));
        }
        let (start, end) = (record.position.max(0) as u32, record.end_position().max(0) as u32);
        self.spans.overlaps(self.last.1, start, end)
    }
}

fn parse<'l>(line: &'l [u8], header: &Header, input: &SeekReader, offset: u64) -> Result<Record<'l>, VcfError> {
    let text = std::str::from_utf8(line).map_err(|_| "it is not UTF-8 text".to_owned());
    let parsed = text.and_then(|text| Record::parse(text, 0, header));
    parsed.map_err(|problem| VcfError::RecordAt { path: input.source().path().to_owned(), offset, problem })
}
