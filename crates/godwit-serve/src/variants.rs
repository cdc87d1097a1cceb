//! VCF and BCF files as datasets.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use godwit_flight::{BatchReader, Dataset, DatasetError, Kind, Part, Scan};
use godwit_formats::bgzf::BgzfError;
use godwit_formats::vcf::{Columns, Reader, Record, Records, VariantLayout, VcfError, VcfFile};
use godwit_model::{Region, SpanSet};

use crate::batches::{blamed, one_part, until_done};
use crate::region_lookup::{Lookup, deal};
use crate::store::{Seen, SeenFile, Store};

/// Endings of its index.
pub(crate) const INDEX_ENDINGS: [&str; 2] = ["tbi", "csi"];

/// Variants of a VCF or BCF file.
#[derive(Debug)]
pub(crate) struct VcfDataset {
    store: Store,
    of: SeenFile,
    /// `None` where the file cannot be entered in the middle: it is plain text, or gzip.
    file: Option<VcfFile>,
    lookup: Lookup,
    layout: Arc<VariantLayout>,
    sample: Option<String>,
    version: u64,
}

impl VcfDataset {
    pub(crate) fn open(store: &Store, seen: &Seen) -> Result<Self, DatasetError> {
        let of = seen.file()?;
        let (file, header) = match VcfFile::open(store.open(of)?) {
            Ok(file) => {
                let header = file.header().clone();
                (Some(file), header)
            }
            Err(VcfError::Bgzf(BgzfError::NotBgzf { .. })) => {
                let reader = Reader::new(store.open_text(of)?).map_err(blamed)?;
                (None, Arc::new(reader.header().clone()))
            }
            Err(error) => return Err(blamed(error)),
        };
        let lookup = match &file {
            Some(file) if file.contig_numbers().is_some() => Lookup::beside(store, seen, "bcftools index")?,
            Some(_) => Lookup::beside(store, seen, "bcftools index -t")?,
            None => Lookup::Missing,
        };
        let layout = VariantLayout::new(&header).map_err(blamed)?;
        let sample = match header.samples() {
            [one] => Some(one.clone()),
            _ => None,
        };
        let (store, of, version) = (store.clone(), of.clone(), seen.version);
        Ok(Self { store, of, file, lookup, layout: Arc::new(layout), sample, version })
    }

    /// Contigs by name, numbered as in the index, or where there is none as they are asked for.
    fn contigs(&self, regions: &[Region]) -> HashMap<String, u32> {
        if let Some(numbers) = self.file.as_ref().and_then(VcfFile::contig_numbers) {
            return numbers;
        }
        match self.lookup.usable().and_then(|index| index.names()) {
            Some(names) => names.iter().cloned().zip(0..).collect(),
            None => regions.iter().map(|region| region.contig.clone()).zip(0..).collect(),
        }
    }

    /// A contig without variants is in no index, and is none that is missing.
    fn spans(regions: &[Region], contigs: &HashMap<String, u32>) -> SpanSet {
        let known = |region: &Region| Some((*contigs.get(&region.contig)?, region.start, region.end));
        SpanSet::new(regions.iter().filter_map(known))
    }
}

impl Dataset for VcfDataset {
    fn kind(&self) -> Kind {
        Kind::Variants
    }

    fn schema(&self) -> SchemaRef {
        self.layout.schema.clone()
    }

    fn rows(&self) -> Option<u64> {
        self.lookup.usable().and_then(|index| index.records())
    }

    fn bytes(&self) -> u64 {
        self.of.bytes
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

    /// The index may have contigs that the header does not describe.
    fn has_contig(&self, name: &str) -> Option<bool> {
        let is_listed = self.layout.has_contig(name)
            || self
                .lookup
                .usable()
                .and_then(|index| index.names())
                .is_some_and(|names| names.iter().any(|one| one == name));
        is_listed.then_some(true)
    }

    fn parts(&self, scan: &Scan, most: usize) -> Result<Vec<Part>, DatasetError> {
        let Some(file) = &self.file else { return Ok(one_part()) };
        if let Some(regions) = &scan.regions
            && let Some(index) = self.lookup.index()?
            && (index.names().is_some() || file.contig_numbers().is_some())
        {
            let spans = Self::spans(regions, &self.contigs(regions));
            let chunks = spans.iter().flat_map(|(contig, start, end)| index.chunks(contig as usize, start, end));
            return Ok(deal(chunks.collect(), most));
        }
        Ok(self.lookup.whole_file(file.first_record(), file.bytes(), most))
    }

    fn read(&self, scan: &Scan, part: &Part) -> Result<BatchReader, DatasetError> {
        let contigs = scan.regions.as_ref().map(|regions| self.contigs(regions)).unwrap_or_default();
        let spans = scan.regions.as_ref().map(|regions| Self::spans(regions, &contigs));
        let mut source = match &self.file {
            Some(file) => {
                let mut records = file.records(part.stretches.clone());
                if let Some(spans) = spans {
                    records = records.overlapping(spans, contigs);
                }
                Source::Stretches(Box::new(records))
            }
            None => {
                let reader = Reader::new(self.store.open_text(&self.of)?).map_err(blamed)?;
                Source::Whole(Box::new(reader), spans.map(|spans| (spans, contigs)))
            }
        };
        let (layout, wanted) = (self.layout.clone(), scan.columns.clone());
        Ok(until_done(move || {
            let mut columns = match &wanted {
                Some(wanted) => Columns::some(&layout, wanted),
                None => Columns::new(&layout),
            };
            while !columns.is_full() && source.push_next(&mut columns).map_err(blamed)? {}
            if columns.rows() == 0 { Ok(None) } else { columns.take_batch().map(Some).map_err(blamed) }
        }))
    }
}

enum Source {
    Stretches(Box<Records>),
    Whole(Box<Reader>, Option<(SpanSet, HashMap<String, u32>)>),
}

fn is_wanted(record: &Record, wanted: Option<&(SpanSet, HashMap<String, u32>)>) -> bool {
    wanted.is_none_or(|(spans, contigs)| {
        let (start, end) = (record.position.max(0) as u32, record.end_position().max(0) as u32);
        contigs.get(record.contig).is_some_and(|contig| spans.overlaps(*contig, start, end))
    })
}

impl Source {
    /// Appends the next record, if it is wanted; false at the end.
    fn push_next(&mut self, columns: &mut Columns) -> Result<bool, VcfError> {
        match self {
            Self::Stretches(records) => match records.next_record()? {
                Some(record) => columns.push(&record).map_err(|problem| records.record_error(problem))?,
                None => return Ok(false),
            },
            Self::Whole(reader, wanted) => match reader.next_record()? {
                Some(record) if is_wanted(&record, wanted.as_ref()) => {
                    columns.push(&record).map_err(|problem| reader.record_error(problem))?;
                }
                Some(_) => {}
                None => return Ok(false),
            },
        }
        Ok(true)
    }
}
