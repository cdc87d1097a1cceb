//! The records of a VCF file, contig by contig in the order of the reference.

use std::collections::{HashMap, HashSet};
use std::io::BufReader;
use std::path::{Path, PathBuf};

use godwit_formats::bgzf;
use godwit_formats::vcf_lines::Reader;

use crate::contig_records::ContigRecords;
use crate::error::HaplotypeError;
use crate::output::VcfHeader;
use crate::record::Record;
use crate::regions::Regions;

const READ_BUFFER_BYTES: usize = 1 << 20;

/// A VCF file that is read from its start to its end.
pub(crate) struct VcfSource<'r> {
    path: PathBuf,
    reader: Reader<BufReader<bgzf::Reader>>,
    pub(crate) header: VcfHeader,
    sample_count: usize,
    regions: Option<&'r Regions>,
    /// The first record of the next contig.
    next: Option<(String, Vec<u8>)>,
    /// Complete contigs that precede the requested one in the file, but not in the reference.
    held: HashMap<String, ContigRecords>,
    /// Contigs that were returned or are held.
    seen: HashSet<String>,
}

/// The order of the contigs in a file differs from that of the reference, and a contig was passed over.
#[derive(Debug)]
pub(crate) struct OutOfOrder;

impl<'r> VcfSource<'r> {
    /// Opens a file and reads its header.
    pub(crate) fn open(path: &Path, regions: Option<&'r Regions>, threads: usize) -> Result<Self, HaplotypeError> {
        let failed = |source| HaplotypeError::Vcf { path: path.to_owned(), source };
        let input = BufReader::with_capacity(READ_BUFFER_BYTES, bgzf::open_text(path, threads)?);
        let reader = Reader::new(input).map_err(failed)?;
        let header = VcfHeader::new(reader.header());
        let mut source = Self {
            path: path.to_owned(),
            reader,
            sample_count: header.samples().len(),
            header,
            regions,
            next: None,
            held: HashMap::new(),
            seen: HashSet::new(),
        };
        source.read_first()?;
        Ok(source)
    }

    /// Returns the names of the contigs that were read so far.
    pub(crate) fn seen_contigs(&self) -> &HashSet<String> {
        &self.seen
    }

    /// Reads the first record of the file.
    fn read_first(&mut self) -> Result<(), HaplotypeError> {
        let failed = |source| HaplotypeError::Vcf { path: self.path.clone(), source };
        let Some(found) = self.reader.next_record().map_err(failed)? else { return Ok(()) };
        let invalid = |problem| invalid_record(&self.path, found.contig, found.start + 1, problem);
        Record::parse(found.line).and_then(|record| record.check_samples(self.sample_count)).map_err(invalid)?;
        self.next = Some((found.contig.to_owned(), found.line.to_vec()));
        Ok(())
    }

    /// Reads all records of the contig of the next record.
    fn read_contig(&mut self) -> Result<Option<(String, ContigRecords)>, HaplotypeError> {
        let Some((contig, line)) = self.next.take() else { return Ok(None) };
        if !self.seen.insert(contig.clone()) {
            return Err(invalid_record(
                &self.path,
                &contig,
                0,
                "the records of a contig are not together; sort the file",
            ));
        }
        let mut records = ContigRecords::default();
        let regions = self.regions;
        let mut last_start = i32::MIN;
        let mut push = |record: &Record, line: &[u8]| {
            let is_sorted = record.start >= last_start;
            last_start = record.start;
            if regions.is_none_or(|regions| regions.overlaps(&contig, record.start, record.end())) {
                records.push(line, record);
            }
            is_sorted
        };
        let first = Record::parse(&line).map_err(|problem| invalid_record(&self.path, &contig, 0, problem))?;
        push(&first, &line);
        loop {
            let failed = |source| HaplotypeError::Vcf { path: self.path.clone(), source };
            let Some(found) = self.reader.next_record().map_err(failed)? else { break };
            let invalid = |problem| invalid_record(&self.path, found.contig, found.start + 1, problem);
            let record = Record::parse(found.line).map_err(invalid)?;
            record.check_samples(self.sample_count).map_err(invalid)?;
            if found.contig != contig {
                self.next = Some((found.contig.to_owned(), found.line.to_vec()));
                break;
            }
            if !push(&record, found.line) {
                return Err(invalid("it starts before the record above it; sort the file"));
            }
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
        }
        Ok(Ok(ContigRecords::default()))
    }
}

/// Returns the error of an invalid record; a position of 0 stands for the whole contig.
pub(crate) fn invalid_record(path: &Path, contig: &str, pos_1based: i64, problem: &str) -> HaplotypeError {
    let position = if pos_1based > 0 { format!("{contig}:{pos_1based}") } else { format!("contig {contig}") };
    HaplotypeError::Record { path: path.to_owned(), position, problem: problem.to_owned() }
}
