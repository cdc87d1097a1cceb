//! A reader of BAM files by means of an index, for lookups and for several simultaneous readers.
//!
//! Flows in: a BAM file, chunks of the file from an index, and the requested intervals. Flows out: validated packed
//! records, in the order of the file. [`crate::binning_index::RegionIndex`] selects the chunks.

mod index_mismatch;

use std::path::Path;
use std::sync::Arc;

use godwit_io::bgzf::{IndexedReader, SeekReader, VirtualOffset};
use godwit_io::random_access::RandomAccess;
use godwit_model::{Genome, IntervalSet, RawRecord};

use super::error::BamError;
use super::header::read_header;
use super::reader::append_record;
use crate::binning_index::FileChunk;
use crate::sam::Header;
pub use index_mismatch::IndexMismatch;

/// A BAM file whose header has been read, and whose records can be read from any virtual offset.
#[derive(Debug)]
pub struct BamFile {
    source: Arc<dyn RandomAccess>,
    header: Header,
    genome: Genome,
    first_record_offset: VirtualOffset,
}

impl BamFile {
    /// Reads the header of a BAM file.
    ///
    /// # Errors
    /// [`BamError`] if the file cannot be read or its header is invalid.
    pub fn open(source: Arc<dyn RandomAccess>) -> Result<Self, BamError> {
        let mut input = SeekReader::new(source.clone());
        let (header, genome) = read_header(&mut input)?;
        Ok(Self { source, header, genome, first_record_offset: input.virtual_offset() })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    /// Returns the length of the compressed file in bytes.
    pub fn byte_len(&self) -> u64 {
        self.source.byte_len()
    }

    /// Returns the SAM header of the file.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the contigs of the file.
    pub fn genome(&self) -> &Genome {
        &self.genome
    }

    /// Returns the virtual offset of the first record, or of the end of the header if the file has no records.
    pub fn first_record_offset(&self) -> VirtualOffset {
        self.first_record_offset
    }

    /// Returns an iterator over the records that begin in the given chunks. Each chunk must begin with a record. A
    /// chunk end of `u64::MAX` means the end of the file.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use godwit_formats::bam::encode_header;
    /// # use godwit_io::bgzf;
    /// # use godwit_formats::sam::{Header, LineEncoder};
    /// use std::sync::Arc;
    ///
    /// use godwit_formats::bam::BamFile;
    /// use godwit_io::random_access::LocalFile;
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
    /// let file = BamFile::open(Arc::new(LocalFile::open(&path)?))?;
    /// let mut records = file.records_in_chunks(vec![(file.first_record_offset(), u64::MAX)]);
    /// let mut positions = Vec::new();
    /// while let Some(record) = records.next_record()? {
    ///     positions.push(record.position());
    /// }
    /// assert_eq!(positions, [6, 500]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn records_in_chunks(&self, chunks: Vec<FileChunk>) -> IndexedRecords {
        IndexedRecords {
            input: IndexedReader::new(self.source.clone(), chunks),
            contig_count: self.genome.contigs().len(),
            interval_filter: None,
            record: Vec::new(),
        }
    }
}

/// An iterator over the records in chunks of a BAM file.
#[derive(Debug)]
pub struct IndexedRecords {
    input: IndexedReader,
    contig_count: usize,
    /// Intervals with which returned records must overlap, and whether the file is sorted by coordinate.
    interval_filter: Option<(IntervalSet, bool)>,
    record: Vec<u8>,
}

impl IndexedRecords {
    /// Restricts the iterator to records that overlap the intervals, as `samtools view` with regions does (htslib 1.16
    /// `bam_endpos`). If the file is `sorted`, reading ends after the last interval.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use godwit_formats::bam::encode_header;
    /// # use godwit_io::bgzf;
    /// # use godwit_formats::sam::{Header, LineEncoder};
    /// use std::sync::Arc;
    ///
    /// use godwit_formats::bam::BamFile;
    /// use godwit_io::random_access::LocalFile;
    /// use godwit_model::IntervalSet;
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
    /// // A file with records at the 0-based positions 6 and 500 of chr1.
    /// let file = BamFile::open(Arc::new(LocalFile::open(&path)?))?;
    /// let all = vec![(file.first_record_offset(), u64::MAX)];
    /// let targets = IntervalSet::new([(0, 0, 100)]);
    /// let mut records = file.records_in_chunks(all).with_intervals(targets, true);
    /// assert_eq!(records.next_record()?.map(|record| record.position()), Some(6));
    /// assert!(records.next_record()?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_intervals(mut self, intervals: IntervalSet, sorted: bool) -> Self {
        self.interval_filter = Some((intervals, sorted));
        self
    }

    /// Returns the next record, or `None` after the last record.
    ///
    /// # Errors
    /// [`BamError`] with the virtual offset of the record that cannot be read.
    pub fn next_record(&mut self) -> Result<Option<RawRecord<'_>>, BamError> {
        while self.read_next()? {
            let record = RawRecord::from_trusted_bytes(&self.record);
            let Some((intervals, sorted)) = &self.interval_filter else {
                return Ok(Some(RawRecord::from_trusted_bytes(&self.record)));
            };
            // Contig -1, which means no contig, sorts after all contigs.
            let (contig, position) = (record.contig() as u32, record.position().max(0) as u32);
            if *sorted && intervals.all_end_before(contig, position) {
                self.input.skip_rest();
            } else if intervals.overlaps(contig, position, record.end_position(record.flag()).max(0) as u32) {
                return Ok(Some(RawRecord::from_trusted_bytes(&self.record)));
            }
        }
        Ok(None)
    }

    /// Reads the next record into `record`; returns false if the chunks contain no further record.
    fn read_next(&mut self) -> Result<bool, BamError> {
        let Self { input, contig_count, record, .. } = self;
        let mut record_problem = None;
        let more = input.read_next_with(|input| {
            record.clear();
            let read = append_record(input, *contig_count, record)?;
            // The inner read succeeds for an invalid record, too; the error is returned below.
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
