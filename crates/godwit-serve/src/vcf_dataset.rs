//! VCF and BCF files as datasets.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use arrow_schema::SchemaRef;
use godwit_dataset::{BatchReader, Dataset, DatasetError, DatasetKind, Scan, ScanPart, contig_lines};
use godwit_formats::vcf::{
    IndexedRecords, IntervalFilter, Reader, VariantBatchBuilder, VariantLayout, VcfError, VcfFile,
};
use godwit_io::bgzf::BgzfError;
use godwit_model::{IntervalSet, Region};

use crate::batch_reader::{fused_reader, single_part};
use crate::file_index::{FileIndex, parts_of_chunks};
use crate::file_snapshot::{DatasetSnapshot, FileSnapshot};
use crate::file_store::FileStore;
use crate::read_error::dataset_error;

/// File name extensions of VCF and BCF indexes.
pub(crate) const INDEX_EXTENSIONS: [&str; 2] = ["tbi", "csi"];

/// A dataset of the variants in a VCF or BCF file.
#[derive(Debug)]
pub(crate) struct VcfDataset {
    store: FileStore,
    snapshot: FileSnapshot,
    /// Random access to the file; `None` if the file is plain text or gzip and so does not permit it.
    file: Option<VcfFile>,
    index: FileIndex,
    layout: Arc<VariantLayout>,
    sample: Option<String>,
    version: u64,
    /// Names of the contigs of all records, computed on first use; `None` if the file cannot be read.
    record_contigs: OnceLock<Option<HashSet<String>>>,
}

impl VcfDataset {
    pub(crate) fn open(store: &FileStore, seen: &DatasetSnapshot) -> Result<Self, DatasetError> {
        let of = seen.single_file()?;
        let (file, header) = match VcfFile::open(store.open(of)?) {
            Ok(file) => {
                let header = file.header().clone();
                (Some(file), header)
            }
            Err(VcfError::Bgzf(BgzfError::NotBgzf { .. })) => {
                let reader = Reader::new(store.open_text(of)?).map_err(dataset_error)?;
                (None, Arc::new(reader.header().clone()))
            }
            Err(error) => return Err(dataset_error(error)),
        };
        let index = match &file {
            Some(file) if file.contig_ids().is_some() => FileIndex::read_beside(store, seen, "bcftools index")?,
            Some(_) => FileIndex::read_beside(store, seen, "bcftools index -t")?,
            None => FileIndex::Missing,
        };
        let layout = VariantLayout::new(&header).map_err(dataset_error)?;
        let sample = match header.samples() {
            [one] => Some(one.clone()),
            _ => None,
        };
        let (store, snapshot, version) = (store.clone(), of.clone(), seen.version);
        let (layout, record_contigs) = (Arc::new(layout), OnceLock::new());
        Ok(Self { store, snapshot, file, index, layout, sample, version, record_contigs })
    }

    /// Returns whether a record is on a contig that the header does not list; `None` if this is not known. The index of
    /// a VCF lists the contigs with records, and a BCF file has no records on other contigs than those of its header.
    /// Otherwise, the whole file is read.
    fn has_records_on_unlisted(&self, name: &str) -> Option<bool> {
        if let Some(names) = self.index.usable().and_then(|index| index.contig_names()) {
            return Some(names.iter().any(|one| one == name));
        }
        if self.file.as_ref().is_some_and(|file| file.contig_ids().is_some()) {
            return Some(false);
        }
        // A region such as chr20:1-100 is looked up as a name, too. Do not read the file if it is a range of a contig.
        let is_range = name.rsplit_once(':').is_some_and(|(contig, _)| self.layout.has_contig(contig));
        if is_range || !self.lists_contigs() {
            return None;
        }
        let contigs = self.record_contigs.get_or_init(|| self.read_record_contigs().ok());
        Some(contigs.as_ref()?.contains(name))
    }

    /// Reads the whole file and returns the names of the contigs of its records.
    fn read_record_contigs(&self) -> Result<HashSet<String>, DatasetError> {
        let mut reader = Reader::new(self.store.open_text(&self.snapshot)?).map_err(dataset_error)?;
        let (mut contigs, mut last) = (HashSet::new(), Vec::new());
        while let Some(line) = reader.next_line().map_err(dataset_error)? {
            let contig = line.split(|byte| *byte == b'\t').next().unwrap_or_default();
            if contig != last {
                last = contig.to_owned();
                contigs.insert(String::from_utf8_lossy(contig).into_owned());
            }
        }
        Ok(contigs)
    }

    /// Returns whether the header describes contigs.
    fn lists_contigs(&self) -> bool {
        contig_lines(&self.layout.schema).next().is_some()
    }

    /// Returns contig ids by contig name: those of a BCF file, or else those of the index. Without an index, numbers
    /// the contigs of the regions.
    fn contig_ids(&self, regions: &[Region]) -> HashMap<String, u32> {
        if let Some(numbers) = self.file.as_ref().and_then(VcfFile::contig_ids) {
            return numbers;
        }
        match self.index.usable().and_then(|index| index.contig_names()) {
            Some(names) => names.iter().cloned().zip(0..).collect(),
            None => regions.iter().map(|region| region.contig.clone()).zip(0..).collect(),
        }
    }

    /// Converts regions to intervals. The index lacks contigs without variants, so regions on unknown contigs are
    /// skipped without an error.
    fn intervals(regions: &[Region], contigs: &HashMap<String, u32>) -> IntervalSet {
        let known = |region: &Region| Some((*contigs.get(&region.contig)?, region.start, region.end));
        IntervalSet::new(regions.iter().filter_map(known))
    }
}

impl Dataset for VcfDataset {
    fn kind(&self) -> DatasetKind {
        DatasetKind::Variants
    }

    fn schema(&self) -> SchemaRef {
        self.layout.schema.clone()
    }

    fn rows(&self) -> Option<u64> {
        self.index.usable().and_then(|index| index.record_count())
    }

    fn bytes(&self) -> u64 {
        self.snapshot.bytes
    }

    fn sample(&self) -> Option<&str> {
        self.sample.as_deref()
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn has_regions(&self) -> bool {
        true
    }

    /// Returns whether a contig exists: in the header, which may not list all contigs, or in a record. Contigs without
    /// variants are in the header only, so without its list they are not known.
    fn has_contig(&self, name: &str) -> Option<bool> {
        if self.layout.has_contig(name) {
            return Some(true);
        }
        self.has_records_on_unlisted(name).filter(|has_records| *has_records || self.lists_contigs())
    }

    fn parts(&self, scan: &Scan, most: usize) -> Result<Vec<ScanPart>, DatasetError> {
        let Some(file) = &self.file else { return Ok(single_part()) };
        if let Some(regions) = &scan.regions
            && let Some(index) = self.index.usable_or_error()?
            && (index.contig_names().is_some() || file.contig_ids().is_some())
        {
            let spans = Self::intervals(regions, &self.contig_ids(regions));
            let chunks = spans.iter().flat_map(|(contig, start, end)| index.chunks(contig as usize, start, end));
            return Ok(parts_of_chunks(chunks.collect(), most));
        }
        Ok(self.index.whole_file_parts(file.first_record_offset(), file.byte_len(), most))
    }

    fn pieces(&self, part: &ScanPart) -> Vec<ScanPart> {
        // Each piece begins with small requests, which are slow in a bucket.
        if self.store.is_local() { self.index.pieces(part, self.snapshot.bytes) } else { vec![part.clone()] }
    }

    fn read(&self, scan: &Scan, part: &ScanPart) -> Result<BatchReader, DatasetError> {
        let contigs = scan.regions.as_ref().map(|regions| self.contig_ids(regions)).unwrap_or_default();
        let spans = scan.regions.as_ref().map(|regions| Self::intervals(regions, &contigs));
        let mut source = match &self.file {
            Some(file) => {
                let mut records = file.records_in_chunks(part.ranges.clone());
                if let Some(spans) = spans {
                    records = records.with_intervals(spans, contigs);
                }
                VariantSource::Chunks(Box::new(records))
            }
            None => {
                let reader = Reader::new(self.store.open_text(&self.snapshot)?).map_err(dataset_error)?;
                VariantSource::Sequential(Box::new(reader), spans.map(|spans| IntervalFilter::new(spans, contigs)))
            }
        };
        let (layout, wanted) = (self.layout.clone(), scan.columns.clone());
        Ok(fused_reader(move || {
            let mut columns = match &wanted {
                Some(wanted) => VariantBatchBuilder::with_projection(&layout, wanted),
                None => VariantBatchBuilder::new(&layout),
            };
            while !columns.is_full() && source.push_next(&mut columns).map_err(dataset_error)? {}
            if columns.row_count() == 0 { Ok(None) } else { columns.take_batch().map(Some).map_err(dataset_error) }
        }))
    }
}

enum VariantSource {
    Chunks(Box<IndexedRecords>),
    Sequential(Box<Reader>, Option<IntervalFilter>),
}

impl VariantSource {
    /// Reads the next record, and appends it to `columns` if it overlaps the requested intervals. Returns false if
    /// there are no more records.
    fn push_next(&mut self, columns: &mut VariantBatchBuilder) -> Result<bool, VcfError> {
        match self {
            Self::Chunks(records) => match records.next_record()? {
                Some(record) => columns.push(&record).map_err(|problem| records.record_error(problem))?,
                None => return Ok(false),
            },
            Self::Sequential(reader, filter) => match reader.next_record()? {
                Some(record) if filter.as_mut().is_none_or(|filter| filter.matches(&record)) => {
                    columns.push(&record).map_err(|problem| reader.record_error(problem))?;
                }
                Some(_) => {}
                None => return Ok(false),
            },
        }
        Ok(true)
    }
}
