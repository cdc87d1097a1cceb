//! BAM files as datasets.

use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use godwit_flight::{BatchReader, Dataset, DatasetError, Kind, Part, Scan};
use godwit_formats::bam::BamFile;
use godwit_formats::columnar::{ColumnLayout, Columns};
use godwit_formats::sam::Header;
use godwit_model::schema::columnar;
use godwit_model::{Genome, Region, SpanSet};

use crate::batches::{blamed, until_done};
use crate::region_lookup::{Lookup, deal};
use crate::store::{Seen, Store};

/// Endings of its index.
pub(crate) const INDEX_ENDINGS: [&str; 2] = ["bai", "csi"];

/// What files of aligned reads have in common: columns, and what the header says of their rows.
#[derive(Debug)]
pub(crate) struct ReadsTable {
    layout: Arc<ColumnLayout>,
    /// The columns, with metadata: version and header.
    pub(crate) schema: SchemaRef,
    /// The one sample that read groups name.
    pub(crate) sample: Option<String>,
    is_sorted: bool,
}

impl ReadsTable {
    pub(crate) fn new(header: &Header) -> Result<Self, DatasetError> {
        let layout = ColumnLayout::new(header).map_err(|error| DatasetError::Data(error.into()))?;
        let metadata = [(columnar::VERSION_KEY, columnar::VERSION), (columnar::HEADER_KEY, &layout.header)];
        let metadata = metadata.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let schema = Arc::new(Schema::new_with_metadata(layout.schema.fields().clone(), metadata.into()));
        let is_sorted = layout
            .header
            .lines()
            .next()
            .is_some_and(|line| line.starts_with("@HD") && line.split('\t').any(|field| field == "SO:coordinate"));
        let sample = one_sample(&layout.header);
        Ok(Self { layout: Arc::new(layout), schema, sample, is_sorted })
    }

    pub(crate) fn sorted_by(&self) -> &[&'static str] {
        if self.is_sorted { &["contig_id", "position"] } else { &[] }
    }

    /// The columns of a scan, without rows.
    pub(crate) fn columns(&self, scan: &Scan) -> Columns<Arc<ColumnLayout>> {
        match &scan.columns {
            Some(columns) => Columns::some(self.layout.clone(), columns),
            None => Columns::new(self.layout.clone()),
        }
    }
}

/// Aligned reads of a BAM file.
#[derive(Debug)]
pub(crate) struct BamDataset {
    file: BamFile,
    lookup: Lookup,
    table: ReadsTable,
    version: u64,
}

impl BamDataset {
    pub(crate) fn open(store: &Store, seen: &Seen) -> Result<Self, DatasetError> {
        let file = BamFile::open(store.open(seen.file()?)?).map_err(blamed)?;
        let lookup = Lookup::beside(store, seen, "samtools index")?;
        let table = ReadsTable::new(file.header())?;
        Ok(Self { file, lookup, table, version: seen.version })
    }

    fn spans(&self, regions: &[Region]) -> Result<SpanSet, DatasetError> {
        spans_in(self.file.genome(), regions, self.file.path())
    }
}

/// Regions by the numbers of their contigs in a file.
pub(crate) fn spans_in(genome: &Genome, regions: &[Region], path: &Path) -> Result<SpanSet, DatasetError> {
    let span = |region: &Region| {
        let contig = genome.find(&region.contig).ok_or_else(|| DatasetError::Refused {
            problem: format!("there is no contig {:?} in the header of {}", region.contig, path.display()),
        })?;
        Ok((contig.0, region.start, region.end))
    };
    let spans: Result<Vec<_>, DatasetError> = regions.iter().map(span).collect();
    Ok(SpanSet::new(spans?))
}

/// The one sample that a header's read groups name.
fn one_sample(header: &str) -> Option<String> {
    let groups = header.lines().filter(|line| line.starts_with("@RG\t"));
    let mut samples: Vec<&str> =
        groups.filter_map(|line| line.split('\t').find_map(|field| field.strip_prefix("SM:"))).collect();
    samples.sort_unstable();
    samples.dedup();
    match samples[..] {
        [one] => Some(one.to_owned()),
        _ => None,
    }
}

impl Dataset for BamDataset {
    fn kind(&self) -> Kind {
        Kind::Reads
    }

    fn schema(&self) -> SchemaRef {
        self.table.schema.clone()
    }

    fn rows(&self) -> Option<u64> {
        self.lookup.usable().and_then(|index| index.records())
    }

    fn bytes(&self) -> u64 {
        self.file.bytes()
    }

    fn sample(&self) -> Option<&str> {
        self.table.sample.as_deref()
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn has_regions(&self) -> bool {
        true
    }

    fn has_contig(&self, name: &str) -> Option<bool> {
        Some(self.file.genome().find(name).is_some())
    }

    fn sorted_by(&self) -> &[&'static str] {
        self.table.sorted_by()
    }

    fn parts(&self, scan: &Scan, most: usize) -> Result<Vec<Part>, DatasetError> {
        let first = self.file.first_record();
        if let Some(regions) = &scan.regions {
            let spans = self.spans(regions)?;
            if let Some(index) = self.lookup.index()? {
                let chunks = spans.iter().flat_map(|(contig, start, end)| index.chunks(contig as usize, start, end));
                return Ok(deal(chunks.collect(), most));
            }
        }
        Ok(self.lookup.whole_file(first, self.file.bytes(), most))
    }

    fn read(&self, scan: &Scan, part: &Part) -> Result<BatchReader, DatasetError> {
        let mut records = self.file.records(part.stretches.clone());
        if let Some(regions) = &scan.regions {
            records = records.overlapping(self.spans(regions)?, self.lookup.usable().is_some());
        }
        let mut columns = self.table.columns(scan);
        Ok(until_done(move || {
            while !columns.is_full() {
                match records.next_record().map_err(blamed)? {
                    Some(record) => columns.push(record, record.flag()),
                    None => break,
                }
            }
            taken(&mut columns)
        }))
    }
}

/// The rows since the last batch, where there are any.
pub(crate) fn taken(columns: &mut Columns<Arc<ColumnLayout>>) -> Result<Option<RecordBatch>, DatasetError> {
    if columns.rows() == 0 {
        return Ok(None);
    }
    columns.take_batch().map(Some).map_err(|error| DatasetError::Data(error.into()))
}
