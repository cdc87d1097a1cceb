//! The records of a VCF file, contig by contig in the order of the reference.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use godwit_formats::vcf::{Reader, VcfError};

use crate::contig_records::ContigRecords;
use crate::error::HaplotypeError;
use crate::output::VcfHeader;
use crate::record::Record;
use crate::regions::Regions;

/// A VCF file that is read from its start to its end.
pub(crate) struct VcfSource<'r> {
    reader: Reader,
    pub(crate) header: VcfHeader,
    sample_count: usize,
    regions: Option<&'r Regions>,
    /// The first record of the next contig.
    next: Option<(String, Vec<u8>)>,
    /// Complete contigs that precede the requested one in the file, but not in the reference.
    held: HashMap<String, ContigRecords>,
    /// Contigs that were returned or are held.
    seen: HashSet<String>,
    /// Number of records on contigs that the reference does not have.
    unknown_contig_records: u64,
}

/// The order of the contigs in a file differs from that of the reference, and a contig was passed over.
#[derive(Debug)]
pub(crate) struct OutOfOrder;

impl<'r> VcfSource<'r> {
    /// Opens a file and reads its header.
    pub(crate) fn open(path: &Path, regions: Option<&'r Regions>, threads: usize) -> Result<Self, HaplotypeError> {
        let reader = Reader::open(path, threads)?;
        let header = VcfHeader::new(reader.header());
        let mut source = Self {
            reader,
            sample_count: header.samples().len(),
            header,
            regions,
            next: None,
            held: HashMap::new(),
            seen: HashSet::new(),
            unknown_contig_records: 0,
        };
        source.next = source.read_first()?;
        Ok(source)
    }

    /// Returns the number of records, in the regions, on contigs that the reference does not have. It is complete after
    /// [`VcfSource::finish`].
    pub(crate) fn unknown_contig_records(&self) -> u64 {
        self.unknown_contig_records
    }

    /// Returns the names of the contigs that were read so far.
    pub(crate) fn seen_contigs(&self) -> &HashSet<String> {
        &self.seen
    }

    /// Reads the first record of the file: its contig and its line.
    fn read_first(&mut self) -> Result<Option<(String, Vec<u8>)>, HaplotypeError> {
        let Some(line) = self.reader.next_line()?.map(<[u8]>::to_vec) else { return Ok(None) };
        let record = self.parse(&line)?;
        Ok(Some((contig_name(&record), line)))
    }

    fn parse<'l>(&self, line: &'l [u8]) -> Result<Record<'l>, VcfError> {
        let record = Record::parse(line).and_then(|record| {
            record.check_samples(self.sample_count)?;
            Ok(record)
        });
        record.map_err(|problem| self.reader.record_error(problem.to_owned()))
    }

    /// Reads all records of the contig of the next record.
    fn read_contig(&mut self) -> Result<Option<(String, ContigRecords)>, HaplotypeError> {
        let Some((contig, mut line)) = self.next.take() else { return Ok(None) };
        if !self.seen.insert(contig.clone()) {
            let problem = format!("records of other contigs lie between the records of {contig}; sort the file");
            return Err(self.reader.record_error(problem).into());
        }
        let mut records = ContigRecords::default();
        let mut last_start = i32::MIN;
        loop {
            let record = self.parse(&line)?;
            if record.contig != contig.as_bytes() {
                self.next = Some((contig_name(&record), line));
                break;
            }
            if record.start < last_start {
                let problem = "it starts before the previous record; sort the file".to_owned();
                return Err(self.reader.record_error(problem).into());
            }
            last_start = record.start;
            if self.regions.is_none_or(|regions| regions.overlaps(&contig, record.start, record.end())) {
                records.push(&line, &record);
            }
            let Some(next) = self.reader.next_line()? else { break };
            line.clear();
            line.extend_from_slice(next);
        }
        records.finish_start();
        Ok(Some((contig, records)))
    }

    /// Reads the whole file into memory, for a file whose contigs are not in the order of the reference.
    pub(crate) fn hold_all(&mut self) -> Result<(), HaplotypeError> {
        while let Some((contig, records)) = self.read_contig()? {
            self.held.insert(contig, records);
        }
        Ok(())
    }

    /// Returns the records of a contig. `order` is the number of each contig in the reference; contigs must be
    /// requested in that order. Records of contigs that the reference does not have are dropped.
    ///
    /// # Errors
    /// `Ok(Err(OutOfOrder))` if the contig of the next record was requested before.
    pub(crate) fn take(
        &mut self,
        contig: &str,
        order: &HashMap<String, usize>,
    ) -> Result<Result<ContigRecords, OutOfOrder>, HaplotypeError> {
        if let Some(records) = self.held.remove(contig) {
            return Ok(Ok(records));
        }
        let wanted = order.get(contig).copied().unwrap_or(usize::MAX);
        while let Some((next, _)) = &self.next {
            match order.get(next) {
                Some(number) if *number > wanted => break,
                Some(number) if *number < wanted => return Ok(Err(OutOfOrder)),
                _ => {}
            }
            let Some((found, records)) = self.read_contig()? else { break };
            if found == contig {
                return Ok(Ok(records));
            }
            self.unknown_contig_records += records.len() as u64;
        }
        Ok(Ok(ContigRecords::default()))
    }

    /// Reads the rest of the file after the last contig of the reference was requested.
    ///
    /// # Errors
    /// `Ok(Err(OutOfOrder))` if the rest has a contig of the reference.
    pub(crate) fn finish(&mut self, order: &HashMap<String, usize>) -> Result<Result<(), OutOfOrder>, HaplotypeError> {
        while let Some((next, _)) = &self.next {
            if order.contains_key(next) {
                return Ok(Err(OutOfOrder));
            }
            let records = self.read_contig()?.map_or(0, |(_, records)| records.len());
            self.unknown_contig_records += records as u64;
        }
        self.unknown_contig_records += self.held.values().map(|records| records.len() as u64).sum::<u64>();
        Ok(Ok(()))
    }
}

fn contig_name(record: &Record) -> String {
    String::from_utf8_lossy(record.contig).into_owned()
}
