//! BAM files read from places in them, for lookups and for several readers at once.
//!
//! Flows in: a file, stretches of it (as an index tells them), and the regions that are asked for. Flows out: checked packed
//! records, in the order of the file. Choosing stretches is [`crate::index::RegionIndex`]'s business.

use std::path::Path;
use std::sync::Arc;

use godwit_model::{Genome, RawRecord, SpanSet};

use super::error::BamError;
use super::header::read_header;
use super::reader::append_record;
use crate::bgzf::{SeekReader, StretchReader, VirtualOffset};
use crate::index::FileChunk;
use crate::random_access::RandomAccess;
use crate::sam::Header;

/// What is known of a BAM file before its records are read.
#[derive(Debug)]
pub struct BamFile {
    source: Arc<dyn RandomAccess>,
    header: Header,
    genome: Genome,
    first_record: VirtualOffset,
}

impl BamFile {
    /// Reads the header of a file.
    ///
    /// # Errors
    /// [`BamError`] about the file or its header.
    pub fn open(source: Arc<dyn RandomAccess>) -> Result<Self, BamError> {
        let mut input = SeekReader::new(source.clone());
        let (header, genome) = read_header(&mut input)?;
        Ok(Self { source, header, genome, first_record: input.virtual_offset() })
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
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The contigs.
    pub fn genome(&self) -> &Genome {
        &self.genome
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
            contigs: self.genome.contigs().len(),
            spans: None,
            record: Vec::new(),
        }
    }
}

/// Records on their way out of a file.
#[derive(Debug)]
pub struct Records {
    input: StretchReader,
    contigs: usize,
    /// Which records are wanted, and whether others come behind them only.
    spans: Option<(SpanSet, bool)>,
    record: Vec<u8>,
}

impl Records {
    /// Passes over records that overlap none of some spans, as `samtools view` with regions does (htslib 1.16
    /// `bam_endpos`). Where the file is `sorted`, reading ends behind the last of them.
    pub fn overlapping(mut self, spans: SpanSet, sorted: bool) -> Self {
        self.spans = Some((spans, sorted));
        self
    }

    /// The next record.
    ///
    /// # Errors
    /// [`BamError`] naming the place.
    pub fn next_record(&mut self) -> Result<Option<RawRecord<'_>>, BamError> {
        while self.advance()? {
            let record = RawRecord::trusted(&self.record);
            let Some((spans, sorted)) = &self.spans else { return Ok(Some(RawRecord::trusted(&self.record))) };
            // -1, no contig, is above all contigs.
            let (contig, position) = (record.contig() as u32, record.position().max(0) as u32);
            if *sorted && spans.end_before(contig, position) {
                self.input.finish();
            } else if spans.overlaps(contig, position, record.end_position(record.flag()).max(0) as u32) {
                return Ok(Some(RawRecord::trusted(&self.record)));
            }
        }
        Ok(None)
    }

    /// Reads a record into place; false where there is none any more.
    fn advance(&mut self) -> Result<bool, BamError> {
        let Self { input, contigs, record, .. } = self;
        let mut problem = None;
        let more = input.next(|input| {
            record.clear();
            let read = append_record(input, *contigs, record)?;
            // A record that is none ends the reading as one that was read does.
            Ok::<_, BamError>(read.unwrap_or_else(|found| {
                problem = Some(found);
                true
            }))
        })?;
        let (path, offset) = (|| self.input.path().to_owned(), self.input.offset());
        match problem {
            None => Ok(more),
            Some(None) => Err(BamError::TruncatedAt { path: path(), offset }),
            Some(Some(source)) => Err(BamError::DamagedAt { path: path(), offset, source }),
        }
    }
}
