//! VCF and BCF files as datasets.

use std::collections::HashMap;
use std::sync::Arc;

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
        Ok(Self { store, snapshot, file, index, layout: Arc::new(layout), sample, version })
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

    /// Returns whether a contig exists. The index of a VCF lists the contigs with variants, of which the header may not
    /// describe all. Contigs without variants are in the header only, and the header of a BCF lists all contigs.
    fn has_contig(&self, name: &str) -> Option<bool> {
        let indexed = self.index.usable().and_then(|index| index.contig_names());
        let is_listed =
            self.layout.has_contig(name) || indexed.is_some_and(|names| names.iter().any(|one| one == name));
        let has_all_variants = indexed.is_some() || self.file.as_ref().is_some_and(|file| file.contig_ids().is_some());
        let is_complete = has_all_variants && contig_lines(&self.layout.schema).next().is_some();
        (is_listed || is_complete).then_some(is_listed)
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
