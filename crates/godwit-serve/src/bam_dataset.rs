//! BAM files as datasets.

use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use godwit_columnar::{AlignmentBatchBuilder, AlignmentLayout};
use godwit_dataset::{BatchReader, Dataset, DatasetError, DatasetKind, Scan, ScanPart, suggest_contig};
use godwit_formats::bam::BamFile;
use godwit_formats::sam::Header;
use godwit_model::schema::alignment_columns;
use godwit_model::{Genome, IntervalSet, Region};

use crate::batch_reader::fused_reader;
use crate::file_index::{FileIndex, parts_of_chunks};
use crate::file_snapshot::DatasetSnapshot;
use crate::file_store::FileStore;
use crate::read_error::dataset_error;

/// File name extensions of BAM indexes.
pub(crate) const INDEX_EXTENSIONS: [&str; 2] = ["bai", "csi"];
/// Columns by which the rows of reads are sorted in a file with `SO:coordinate`.
const COORDINATE_ORDER: [&str; 2] = ["contig_id", "position"];

/// The columns, the sample and the sort order of a file of aligned reads.
#[derive(Debug)]
pub(crate) struct ReadsTable {
    layout: Arc<AlignmentLayout>,
    /// The Arrow schema; its metadata contains the version of the schema and the SAM header.
    pub(crate) schema: SchemaRef,
    /// Name of the sample if all read groups have the same one; `None` otherwise.
    pub(crate) sample: Option<String>,
    is_sorted: bool,
}

impl ReadsTable {
    pub(crate) fn new(header: &Header) -> Result<Self, DatasetError> {
        let layout = AlignmentLayout::new(header).map_err(|error| DatasetError::Data(error.into()))?;
        let metadata = [
            (alignment_columns::VERSION_KEY, alignment_columns::VERSION),
            (alignment_columns::HEADER_KEY, &layout.header),
        ];
        let metadata = metadata.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let schema = Arc::new(Schema::new_with_metadata(layout.schema.fields().clone(), metadata.into()));
        let is_sorted = layout
            .header
            .lines()
            .next()
            .is_some_and(|line| line.starts_with("@HD") && line.split('\t').any(|field| field == "SO:coordinate"));
        let sample = single_sample(&layout.header);
        Ok(Self { layout: Arc::new(layout), schema, sample, is_sorted })
    }

    pub(crate) fn sorted_by(&self) -> &[&'static str] {
        if self.is_sorted { &COORDINATE_ORDER } else { &[] }
    }

    /// Returns an empty builder for the batches of a scan.
    pub(crate) fn columns(&self, scan: &Scan) -> AlignmentBatchBuilder<Arc<AlignmentLayout>> {
        match &scan.columns {
            Some(columns) => AlignmentBatchBuilder::with_projection(self.layout.clone(), columns),
            None => AlignmentBatchBuilder::new(self.layout.clone()),
        }
    }
}

/// A dataset of the aligned reads in a BAM file.
#[derive(Debug)]
pub(crate) struct BamDataset {
    file: BamFile,
    /// False if the file is in a bucket.
    is_local: bool,
    index: FileIndex,
    table: ReadsTable,
    version: u64,
}

impl BamDataset {
    pub(crate) fn open(store: &FileStore, seen: &DatasetSnapshot) -> Result<Self, DatasetError> {
        let file = BamFile::open(store.open(seen.single_file()?)?).map_err(dataset_error)?;
        let index = FileIndex::read_beside(store, seen, "samtools index")?;
        let table = ReadsTable::new(file.header())?;
        Ok(Self { file, is_local: store.is_local(), index, table, version: seen.version })
    }

    fn intervals(&self, regions: &[Region]) -> Result<IntervalSet, DatasetError> {
        intervals_in(self.file.genome(), regions, self.file.path())
    }
}

/// Converts regions with contig names to intervals with the contig ids of a file.
pub(crate) fn intervals_in(genome: &Genome, regions: &[Region], path: &Path) -> Result<IntervalSet, DatasetError> {
    let span = |region: &Region| {
        if region.is_unplaced() {
            return Ok((IntervalSet::UNPLACED, region.start, region.end));
        }
        let contig = genome.contig_id(&region.contig).ok_or_else(|| {
            let near = suggest_contig(&region.contig, genome.contigs().iter().map(|contig| contig.name.as_str()));
            let problem = format!("there is no contig {:?} in the header of {}{near}", region.contig, path.display());
            DatasetError::InvalidRequest { problem }
        })?;
        Ok((contig.0, region.start, region.end))
    };
    let spans: Result<Vec<_>, DatasetError> = regions.iter().map(span).collect();
    Ok(IntervalSet::new(spans?))
}

/// Returns the sample name that all read groups of a SAM header have; `None` if there is not exactly one sample.
fn single_sample(header: &str) -> Option<String> {
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
    fn kind(&self) -> DatasetKind {
        DatasetKind::Reads
    }

    fn schema(&self) -> SchemaRef {
        self.table.schema.clone()
    }

    fn rows(&self) -> Option<u64> {
        self.index.usable().and_then(|index| index.record_count())
    }

    fn bytes(&self) -> u64 {
        self.file.byte_len()
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
        Some(self.file.genome().contig_id(name).is_some())
    }

    /// Returns the sort order of the header. A BAM with an index is sorted by coordinate, also without an `@HD` line.
    fn sorted_by(&self) -> &[&'static str] {
        if self.index.usable().is_some() { &COORDINATE_ORDER } else { self.table.sorted_by() }
    }

    fn parts(&self, scan: &Scan, most: usize) -> Result<Vec<ScanPart>, DatasetError> {
        let first = self.file.first_record_offset();
        if let Some(regions) = &scan.regions {
            let spans = self.intervals(regions)?;
            if let Some(index) = self.index.usable_or_error()? {
                let chunks = spans.iter().flat_map(|(contig, start, end)| match contig {
                    IntervalSet::UNPLACED => {
                        vec![(index.end_of_placed_records().unwrap_or(first), self.file.byte_len() << 16)]
                    }
                    contig => index.chunks(contig as usize, start, end),
                });
                return Ok(parts_of_chunks(chunks.collect(), most));
            }
        }
        Ok(self.index.whole_file_parts(first, self.file.byte_len(), most))
    }

    fn pieces(&self, part: &ScanPart) -> Vec<ScanPart> {
        // Each piece begins with small requests, which are slow in a bucket.
        if self.is_local { self.index.pieces(part, self.file.byte_len()) } else { vec![part.clone()] }
    }

    fn read(&self, scan: &Scan, part: &ScanPart) -> Result<BatchReader, DatasetError> {
        let mut records = self.file.records_in_chunks(part.ranges.clone());
        if let Some(regions) = &scan.regions {
            records = records.with_intervals(self.intervals(regions)?, self.index.usable().is_some());
        }
        let mut columns = self.table.columns(scan);
        Ok(fused_reader(move || {
            while !columns.is_full() {
                match records.next_record().map_err(dataset_error)? {
                    Some(record) => columns.push(record, record.flag()),
                    None => break,
                }
            }
            take_rows(&mut columns)
        }))
    }
}

/// Returns the rows that were added to the builder since the last batch; `None` if there are none.
pub(crate) fn take_rows(
    columns: &mut AlignmentBatchBuilder<Arc<AlignmentLayout>>,
) -> Result<Option<RecordBatch>, DatasetError> {
    if columns.row_count() == 0 {
        return Ok(None);
    }
    columns.take_batch().map(Some).map_err(|error| DatasetError::Data(error.into()))
}
