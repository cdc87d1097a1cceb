//! A reader of VCF and BCF files by means of an index, for lookups and for several simultaneous readers.
//!
//! Flows in: a BGZF file, chunks of the file from an index, and the requested intervals. Flows out: records, in the
//! order of the file.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use godwit_io::bgzf::{IndexedReader, SeekReader, VirtualOffset};
use godwit_io::random_access::RandomAccess;
use godwit_model::IntervalSet;

use super::bcf::{Dictionaries, RecordDecoder};
use super::error::VcfError;
use super::header::Header;
use super::reader::{Reader, read_record_line};
use super::record::Record;
use crate::binning_index::FileChunk;

/// A bgzipped VCF or BCF file whose header has been read, and whose records can be read from any virtual offset.
#[derive(Debug)]
pub struct VcfFile {
    source: Arc<dyn RandomAccess>,
    header: Arc<Header>,
    /// Dictionaries of a BCF file; `None` for VCF.
    dictionaries: Option<Arc<Dictionaries>>,
    first_record_offset: VirtualOffset,
}

impl VcfFile {
    /// Reads the header of a VCF or BCF file that is compressed with BGZF.
    ///
    /// # Errors
    /// [`VcfError`] if the file cannot be read, or its header is invalid.
    pub fn open(source: Arc<dyn RandomAccess>) -> Result<Self, VcfError> {
        let (header, decoder, input) = Reader::new(SeekReader::new(source.clone()))?.into_parts();
        let dictionaries = decoder.map(|decoder| decoder.dictionaries().clone());
        Ok(Self { source, header: Arc::new(header), dictionaries, first_record_offset: input.virtual_offset() })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    /// Returns the length of the compressed file in bytes.
    pub fn byte_len(&self) -> u64 {
        self.source.byte_len()
    }

    /// Returns the header of the file.
    pub fn header(&self) -> &Arc<Header> {
        &self.header
    }

    /// Returns the contig numbers that the index uses, by contig name; `None` for VCF, which does not number contigs.
    pub fn contig_ids(&self) -> Option<HashMap<String, u32>> {
        self.dictionaries.as_ref().map(|dictionaries| dictionaries.contig_ids())
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
    /// use std::sync::Arc;
    ///
    /// use godwit_io::bgzf;
    /// use godwit_io::random_access::LocalFile;
    /// use godwit_formats::vcf::VcfFile;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("a.vcf.gz");
    /// let mut file = bgzf::Writer::new(std::fs::File::create(&path)?, 6);
    /// file.write_bytes(b"##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n")?;
    /// file.write_bytes(b"chr20\t500\t.\tA\tC\t50\tPASS\t.\nchr20\t1000\t.\tG\tT\t50\tPASS\t.\n")?;
    /// file.finish_file()?;
    ///
    /// let file = VcfFile::open(Arc::new(LocalFile::open(&path)?))?;
    /// let mut records = file.records_in_chunks(vec![(file.first_record_offset(), u64::MAX)]);
    /// assert_eq!(records.next_record()?.unwrap().position, 499);
    /// assert_eq!(records.next_record()?.unwrap().position, 999);
    /// assert!(records.next_record()?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn records_in_chunks(&self, chunks: Vec<FileChunk>) -> IndexedRecords {
        IndexedRecords {
            input: IndexedReader::new(self.source.clone(), chunks),
            header: self.header.clone(),
            decoder: self.dictionaries.clone().map(RecordDecoder::new),
            interval_filter: None,
            line: Vec::new(),
        }
    }
}

/// An iterator over the records in chunks of a VCF or BCF file.
#[derive(Debug)]
pub struct IndexedRecords {
    input: IndexedReader,
    header: Arc<Header>,
    decoder: Option<RecordDecoder>,
    interval_filter: Option<IntervalFilter>,
    line: Vec<u8>,
}

/// A filter that selects the records that overlap given intervals. The end of a record is [`Record::end_position`].
#[derive(Debug)]
pub struct IntervalFilter {
    intervals: IntervalSet,
    contig_ids: HashMap<String, u32>,
    /// Name and number of the contig of the previous record. Most records have the same contig as the record before.
    last_contig: (String, u32),
}

impl IndexedRecords {
    /// Restricts the iterator to records that overlap the intervals, as `bcftools view -r` does (bcftools 1.16). The
    /// end of a record follows from `END` if present, otherwise from `REF`. `contig_ids` gives the number of each
    /// contig in `intervals`.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::collections::HashMap;
    /// use std::sync::Arc;
    ///
    /// use godwit_io::bgzf;
    /// use godwit_io::random_access::LocalFile;
    /// use godwit_formats::vcf::VcfFile;
    /// use godwit_model::IntervalSet;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("a.vcf.gz");
    /// # let mut file = bgzf::Writer::new(std::fs::File::create(&path)?, 6);
    /// # file.write_bytes(b"##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n")?;
    /// # file.write_bytes(b"chr20\t500\t.\tA\tC\t50\tPASS\t.\nchr20\t1000\t.\tG\tT\t50\tPASS\t.\n")?;
    /// # file.finish_file()?;
    /// // A file with records at the 0-based positions 499 and 999 of chr20.
    /// let file = VcfFile::open(Arc::new(LocalFile::open(&path)?))?;
    /// let all = vec![(file.first_record_offset(), u64::MAX)];
    /// let contig_ids = HashMap::from([("chr20".to_owned(), 0)]);
    /// let targets = IntervalSet::new([(0, 900, 1100)]);
    /// let mut records = file.records_in_chunks(all).with_intervals(targets, contig_ids);
    /// assert_eq!(records.next_record()?.unwrap().position, 999);
    /// assert!(records.next_record()?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_intervals(mut self, intervals: IntervalSet, contig_ids: HashMap<String, u32>) -> Self {
        self.interval_filter = Some(IntervalFilter::new(intervals, contig_ids));
        self
    }

    /// Returns the next record, or `None` after the last record.
    ///
    /// # Errors
    /// [`VcfError`] if the file cannot be read, or the record is invalid.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, VcfError> {
        while let Some(end) = self.read_next()? {
            if let Some(filter) = &mut self.interval_filter {
                let parsed = Record::parse(&self.line, 0, &self.header, end);
                if !filter.matches(&parsed.map_err(|problem| record_error_at(&self.input, problem))?) {
                    continue;
                }
            }
            // A line that was filtered is parsed again: a loop cannot return the borrowed record on one of its paths.
            let parsed = Record::parse(&self.line, 0, &self.header, end);
            return parsed.map(Some).map_err(|problem| record_error_at(&self.input, problem));
        }
        Ok(None)
    }

    /// Returns an error about the record that was read last, with a description of the problem.
    pub fn record_error(&self, problem: String) -> VcfError {
        record_error_at(&self.input, problem)
    }

    /// Reads the line of the next record. Returns the end position that BCF stores for the record, or `None` if the
    /// chunks contain no further record.
    fn read_next(&mut self) -> Result<Option<Option<i32>>, VcfError> {
        let Self { input, decoder, line, .. } = self;
        let (mut end, mut record_problem) = (None, None);
        let more = input.read_next_with(|input| match decoder {
            None => read_record_line(input, line, &mut 0),
            Some(decoder) => match decoder.decode_next(input, line)? {
                Ok(found) => {
                    end = found.and_then(|found| found.end_position);
                    Ok(found.is_some())
                }
                Err(problem) => {
                    record_problem = Some(problem);
                    Ok(true)
                }
            },
        })?;
        match record_problem {
            Some(problem) => Err(record_error_at(input, problem)),
            None => Ok(more.then_some(end)),
        }
    }
}

fn record_error_at(input: &IndexedReader, problem: String) -> VcfError {
    VcfError::RecordAt { path: input.path().to_owned(), offset: input.record_offset(), problem }
}

impl IntervalFilter {
    /// Creates a filter. `contig_ids` gives the number of each contig in `intervals`.
    pub fn new(intervals: IntervalSet, contig_ids: HashMap<String, u32>) -> Self {
        Self { intervals, contig_ids, last_contig: (String::new(), u32::MAX) }
    }

    /// Returns whether a record overlaps one of the intervals.
    pub fn matches(&mut self, record: &Record) -> bool {
        if self.last_contig.0 != record.contig {
            self.last_contig =
                (record.contig.to_owned(), self.contig_ids.get(record.contig).copied().unwrap_or(u32::MAX));
        }
        let (start, end) = (record.position.max(0) as u32, record.end_position().max(0) as u32);
        self.intervals.overlaps(self.last_contig.1, start, end)
    }
}
