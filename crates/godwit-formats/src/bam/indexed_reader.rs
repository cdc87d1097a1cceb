//! BAM files read by index, for lookups and for several readers at once.
//!
//! Flows in: a file, chunks of it from an index, and the requested regions. Flows out: checked packed records, in the order
//! of the file. [`crate::binning_index::RegionIndex`] selects the chunks.

use std::path::Path;
use std::sync::Arc;

use godwit_model::{Genome, IntervalSet, RawRecord};

use super::error::BamError;
use super::header::read_header;
use super::reader::append_record;
use crate::bgzf::{IndexedReader, SeekReader, VirtualOffset};
use crate::binning_index::FileChunk;
use crate::random_access::RandomAccess;
use crate::sam::Header;

/// A BAM file: its header, known before its records are read.
#[derive(Debug)]
pub struct BamFile {
    source: Arc<dyn RandomAccess>,
    header: Header,
    genome: Genome,
    first_record_offset: VirtualOffset,
}

impl BamFile {
    /// Reads the header of a file.
    ///
    /// # Errors
    /// [`BamError`] about the file or its header.
    pub fn open(source: Arc<dyn RandomAccess>) -> Result<Self, BamError> {
        let mut input = SeekReader::new(source.clone());
        let (header, genome) = read_header(&mut input)?;
        Ok(Self { source, header, genome, first_record_offset: input.virtual_offset() })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    /// Returns the length, bytes.
    pub fn byte_len(&self) -> u64 {
        self.source.byte_len()
    }

    /// Returns the header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the contigs.
    pub fn genome(&self) -> &Genome {
        &self.genome
    }

    /// Returns the virtual offset of the first record; that of the end of the header where the file has none.
    pub fn first_record_offset(&self) -> VirtualOffset {
        self.first_record_offset
    }

    /// Reads the records that begin in the given chunks, each of which begins with a record. An end of `u64::MAX` is the
    /// end of the file.
    pub fn records_in_chunks(&self, chunks: Vec<FileChunk>) -> IndexedRecords {
        IndexedRecords {
            input: IndexedReader::new(self.source.clone(), chunks),
            contig_count: self.genome.contigs().len(),
            interval_filter: None,
            record: Vec::new(),
        }
    }
}

/// A stream of records of a file.
#[derive(Debug)]
pub struct IndexedRecords {
    input: IndexedReader,
    contig_count: usize,
    /// The intervals to return records of, and whether records are sorted.
    interval_filter: Option<(IntervalSet, bool)>,
    record: Vec<u8>,
}

impl IndexedRecords {
    /// Skips records that overlap none of the intervals, as `samtools view` with regions does (htslib 1.16 `bam_endpos`).
    /// Where the file is `sorted`, reading ends behind the last of them.
    pub fn with_intervals(mut self, intervals: IntervalSet, sorted: bool) -> Self {
        self.interval_filter = Some((intervals, sorted));
        self
    }

    /// Returns the next record.
    ///
    /// # Errors
    /// [`BamError`] with the virtual offset.
    pub fn next_record(&mut self) -> Result<Option<RawRecord<'_>>, BamError> {
        while self.read_next()? {
            let record = RawRecord::from_trusted_bytes(&self.record);
            let Some((intervals, sorted)) = &self.interval_filter else {
                return Ok(Some(RawRecord::from_trusted_bytes(&self.record)));
            };
            // -1, no contig, sorts after all contigs.
            let (contig, position) = (record.contig() as u32, record.position().max(0) as u32);
            if *sorted && intervals.all_end_before(contig, position) {
                self.input.skip_rest();
            } else if intervals.overlaps(contig, position, record.end_position(record.flag()).max(0) as u32) {
                return Ok(Some(RawRecord::from_trusted_bytes(&self.record)));
            }
        }
        Ok(None)
    }

    /// Reads the next record; returns false at the end.
    fn read_next(&mut self) -> Result<bool, BamError> {
        let Self { input, contig_count, record, .. } = self;
        let mut record_problem = None;
        let more = input.read_next_with(|input| {
            record.clear();
            let read = append_record(input, *contig_count, record)?;
            // An invalid record ends the inner read like a valid one; its problem is reported below.
            Ok::<_, BamError>(read.unwrap_or_else(|found| {
                record_problem = Some(found);
                true
            }))
        })?;
        let (path, offset) = (|| self.input.path().to_owned(), self.input.record_offset());
        match record_problem {
            None => Ok(more),
            Some(None) => Err(BamError::TruncatedAt { path: path(), offset }),
            Some(Some(source)) => Err(BamError::DamagedAt { path: path(), offset, source }),
        }
    }
}
