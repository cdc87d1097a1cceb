//! VCF and BCF files read from places in them, for lookups and for several readers at once.
//!
//! Flows in: a BGZF file, stretches of it (as an index tells them), and the regions that are asked for. Flows out: records,
//! in the order of the file.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use godwit_model::SpanSet;

use super::bcf::{Decoder, Dictionaries};
use super::error::VcfError;
use super::header::Header;
use super::reader::{Reader, read_record_line};
use super::record::Record;
use crate::bgzf::{SeekReader, StretchReader, VirtualOffset};
use crate::index::FileChunk;
use crate::random_access::RandomAccess;

/// What is known of a bgzipped VCF, or a BCF, before its records are read.
#[derive(Debug)]
pub struct VcfFile {
    source: Arc<dyn RandomAccess>,
    header: Arc<Header>,
    /// Of BCF.
    dictionaries: Option<Arc<Dictionaries>>,
    first_record: VirtualOffset,
}

impl VcfFile {
    /// Reads the header of a file that is BGZF.
    ///
    /// # Errors
    /// [`VcfError`].
    pub fn open(source: Arc<dyn RandomAccess>) -> Result<Self, VcfError> {
        let (header, decoder, input) = Reader::new(SeekReader::new(source.clone()))?.into_parts();
        let dictionaries = decoder.map(|decoder| decoder.dictionaries().clone());
        Ok(Self { source, header: Arc::new(header), dictionaries, first_record: input.virtual_offset() })
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

    /// Contigs by name, numbered as in an index, where the file numbers them: BCF does.
    pub fn contig_numbers(&self) -> Option<HashMap<String, u32>> {
        self.dictionaries.as_ref().map(|dictionaries| dictionaries.contig_numbers())
    }

    /// Where the first record is, or would be.
    pub fn first_record(&self) -> VirtualOffset {
        self.first_record
    }

    /// Reads records that begin in one of some stretches, each of which begins with a record. `u64::MAX` for the end of one is
    /// that of the file.
    pub fn records(&self, stretches: Vec<FileChunk>) -> Records {
        Records {
            input: StretchReader::new(self.source.clone(), stretches),
            header: self.header.clone(),
            decoder: self.dictionaries.clone().map(Decoder::new),
            wanted: None,
            line: Vec::new(),
        }
    }
}

/// Records on their way out of a file.
#[derive(Debug)]
pub struct Records {
    input: StretchReader,
    header: Arc<Header>,
    decoder: Option<Decoder>,
    wanted: Option<Wanted>,
    line: Vec<u8>,
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
        while let Some(end) = self.advance()? {
            let parsed = Record::parse(&self.line, 0, &self.header, end);
            let record = parsed.map_err(|problem| self.record_error(problem))?;
            if self.wanted.as_mut().is_none_or(|wanted| wanted.has(&record)) {
                // Taken apart once more, because the borrow of a loop cannot leave it.
                let parsed = Record::parse(&self.line, 0, &self.header, end);
                return parsed.map(Some).map_err(|problem| wrong_at(&self.input, problem));
            }
        }
        Ok(None)
    }

    /// An error about the record that was read last.
    pub fn record_error(&self, problem: String) -> VcfError {
        wrong_at(&self.input, problem)
    }

    /// Reads the line of a record into place, and where BCF says that it ends; `None` at the end.
    fn advance(&mut self) -> Result<Option<Option<i32>>, VcfError> {
        let Self { input, decoder, line, .. } = self;
        let path = input.path().to_owned();
        let (mut end, mut wrong) = (None, None);
        let more = input.next(|input| match decoder {
            None => read_record_line(input, &path, line, &mut 0),
            Some(decoder) => match decoder.next_line(input, line)? {
                Ok(found) => {
                    end = found.and_then(|found| found.end_position);
                    Ok(found.is_some())
                }
                Err(problem) => {
                    wrong = Some(problem);
                    Ok(true)
                }
            },
        })?;
        match wrong {
            Some(problem) => Err(wrong_at(input, problem)),
            None => Ok(more.then_some(end)),
        }
    }
}

fn wrong_at(input: &StretchReader, problem: String) -> VcfError {
    VcfError::RecordAt { path: input.path().to_owned(), offset: input.offset(), problem }
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
