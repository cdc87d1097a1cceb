//! SQL table functions that compute rows in one sweep over reads sorted by position, such as `coverage('x.bam')` and
//! `coverage('x.bam', 'chr20:1-1000')`.
//!
//! A [`SweepFunction`] checks the arguments and returns a dataset over the dataset of reads. A [`Sweep`] receives the
//! reads batch by batch and builds the rows.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int32Array, RecordBatch, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, plan_err};
use datafusion::error::DataFusionError;
use godwit_dataset::{BatchReader, Dataset, DatasetError, DatasetKind, Scan, ScanPart, region_error_message};
use godwit_model::{Region, RegionError, flags};

use crate::dataset_table::{TableCatalog, table_provider};
use crate::table_functions::{literal_text, to_datafusion_error};

/// FLAG bits of reads that do not count (samtools 1.16, `depth --help`, "-G"; `mpileup --help`, "--ff").
pub(crate) const EXCLUDED_FLAGS: u16 = flags::UNMAPPED | flags::SECONDARY | flags::QC_FAIL | flags::DUPLICATE;
/// Number of rows in an output batch.
const BATCH_ROWS: usize = 8192;

/// A computation of rows from reads sorted by position.
pub(crate) trait Sweep: Send {
    /// Processes a batch of reads. The error describes why the reads are invalid.
    fn add_batch(&mut self, reads: &RecordBatch) -> Result<(), String>;

    /// Completes the rows of the last contig.
    fn finish(&mut self);

    /// Returns the number of complete rows that are not taken yet.
    fn row_count(&self) -> usize;

    /// Returns the complete rows, and removes them.
    fn take_rows(&mut self, schema: &SchemaRef) -> Result<RecordBatch, ArrowError>;
}

/// The properties of a table function that sweeps over reads.
#[derive(Debug)]
pub(crate) struct SweepKind {
    /// Name of the SQL table function.
    pub(crate) name: &'static str,
    /// The columns of the reads that the sweep needs.
    pub(crate) read_columns: &'static [&'static str],
    /// Returns the schema of the rows, with `contig`, `position` and `end_position`.
    pub(crate) schema: fn() -> SchemaRef,
    /// Starts a sweep; a region limits the rows.
    pub(crate) start: fn(Option<Region>) -> Box<dyn Sweep>,
    /// True if a row depends on reads that do not overlap it, because it may extend beyond the region of a condition.
    pub(crate) needs_whole_contigs: bool,
}

/// A table function that sweeps over the reads of a dataset.
#[derive(Debug)]
pub(crate) struct SweepFunction {
    pub(crate) kind: &'static SweepKind,
    pub(crate) tables: TableCatalog,
}

impl TableFunctionImpl for SweepFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let function = self.kind.name;
        let texts: Option<Vec<&str>> = args.exprs().iter().map(literal_text).collect();
        let (name, region) = match texts.as_deref() {
            Some([name]) => (*name, None),
            Some([name, region]) => (*name, Some(*region)),
            _ => {
                return plan_err!(
                    "{function}() takes the name of a table of reads and optionally a region, each in single quotes, as in \
                     {function}('x.bam', 'chr20:1-1000')"
                );
            }
        };
        let (name, reads) = find_sorted_reads(&self.tables, name, function)?;
        let region = region.map(|text| parse_region(text, &name, &*reads, function)).transpose()?;
        let rows = SweepDataset::new(self.kind, &name, reads, region).map_err(to_datafusion_error)?;
        table_provider(&format!("{function}({name})"), Arc::new(rows))
    }
}

/// Parses the region of a call. Unplaced reads are rejected: they have no positions, and the rows of a sweep have.
fn parse_region(text: &str, name: &str, reads: &dyn Dataset, function: &str) -> Result<Region> {
    let has_contig = |contig: &str| if contig == Region::UNPLACED { Some(false) } else { reads.has_contig(contig) };
    Region::parse(text, has_contig).map_err(|error| {
        let problem = match error {
            RegionError::NoUnplacedReads => format!(
                "\"*\" selects unplaced reads, for which {function}() has no rows, because they have no position; write a \
                 contig or a part of it, such as chr20 or chr20:1-1000"
            ),
            error => region_error_message(&error, reads),
        };
        DataFusionError::Plan(format!("{name}: {problem}"))
    })
}

/// Finds a dataset of reads that is sorted by position, for a table function. Returns its complete name and the dataset.
pub(crate) fn find_sorted_reads(
    tables: &TableCatalog,
    name: &str,
    function: &str,
) -> Result<(String, Arc<dyn Dataset>)> {
    let (name, reads) = tables.find_dataset(name).map_err(to_datafusion_error)?;
    if reads.kind() != DatasetKind::Reads {
        return plan_err!("{name} is not a dataset of reads, so {function}() cannot be computed");
    }
    if reads.sorted_by().is_empty() {
        return plan_err!(
            "{function}() requires reads that are sorted by position, but the header of {name} does not have SO:coordinate; \
             sort the file with `samtools sort`, or build its index with `samtools index` if it is a BAM file that is sorted"
        );
    }
    Ok((name, reads))
}

/// A dataset whose rows are computed from a dataset of reads.
#[derive(Debug)]
pub(crate) struct SweepDataset {
    kind: &'static SweepKind,
    name: String,
    reads: Arc<dyn Dataset>,
    /// Indexes of the columns that the sweep needs in the schema of the reads.
    columns: Vec<usize>,
    region: Option<Region>,
    schema: SchemaRef,
}

impl SweepDataset {
    /// Creates the dataset of the rows of `reads`, which has this name.
    pub(crate) fn new(
        kind: &'static SweepKind,
        name: &str,
        reads: Arc<dyn Dataset>,
        region: Option<Region>,
    ) -> Result<Self, DatasetError> {
        let of_reads = reads.schema();
        let index = |column: &&str| of_reads.index_of(column).map_err(|error| DatasetError::Data(error.into()));
        let mut columns = kind.read_columns.iter().map(index).collect::<Result<Vec<usize>, _>>()?;
        columns.sort_unstable();
        Ok(Self { kind, name: name.to_owned(), reads, columns, region, schema: (kind.schema)() })
    }

    /// Returns the scan of the reads for a scan of the rows. A region in the call of the function limits the scan.
    /// Conditions select regions, or whole contigs if [`SweepKind::needs_whole_contigs`]. Rows outside the regions of
    /// conditions may be incomplete; DataFusion removes them, because it applies the conditions to every row.
    fn reads_scan(&self, scan: &Scan) -> Scan {
        let whole = |region: &Region| Region { contig: region.contig.clone(), start: 0, end: Region::OPEN_END };
        let regions = match (&self.region, &scan.regions) {
            (Some(region), _) => Some(vec![region.clone()]),
            (None, Some(regions)) if self.kind.needs_whole_contigs => {
                let mut contigs: Vec<Region> = regions.iter().map(whole).collect();
                contigs.sort_unstable();
                contigs.dedup();
                Some(contigs)
            }
            (None, regions) => regions.clone(),
        };
        Scan { columns: Some(self.columns.clone()), regions }
    }
}

impl Dataset for SweepDataset {
    fn kind(&self) -> DatasetKind {
        DatasetKind::Table
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn bytes(&self) -> u64 {
        self.reads.bytes()
    }

    fn version(&self) -> u64 {
        self.reads.version()
    }

    fn has_regions(&self) -> bool {
        true
    }

    fn parts(&self, _scan: &Scan, _most: usize) -> Result<Vec<ScanPart>, DatasetError> {
        Ok(vec![ScanPart { ranges: vec![(0, u64::MAX)] }])
    }

    fn read(&self, scan: &Scan, part: &ScanPart) -> Result<BatchReader, DatasetError> {
        if part.ranges.is_empty() {
            return Ok(Box::new(std::iter::empty()));
        }
        let of_reads = self.reads_scan(scan);
        let mut parts = self.reads.parts(&of_reads, 1)?;
        parts.reverse();
        let reading = SweepReader {
            reads: self.reads.clone(),
            scan: of_reads,
            parts,
            batches: None,
            sweep: (self.kind.start)(self.region.clone()),
            schema: self.schema.clone(),
            columns: scan.columns.clone(),
            name: self.name.clone(),
            is_finished: false,
            has_failed: false,
        };
        Ok(Box::new(reading))
    }
}

/// An iterator over batches of rows, which are computed from batches of reads.
struct SweepReader {
    reads: Arc<dyn Dataset>,
    scan: Scan,
    /// Parts of the reads that are not read yet, in reverse order.
    parts: Vec<ScanPart>,
    batches: Option<BatchReader>,
    sweep: Box<dyn Sweep>,
    schema: SchemaRef,
    columns: Option<Vec<usize>>,
    name: String,
    is_finished: bool,
    has_failed: bool,
}

impl Iterator for SweepReader {
    type Item = Result<RecordBatch, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed || (self.is_finished && self.sweep.row_count() == 0) {
            return None;
        }
        let filled = self.fill_rows().and_then(|()| {
            let batch = self.sweep.take_rows(&self.schema).map_err(|error| DatasetError::Data(error.into()))?;
            match &self.columns {
                Some(columns) => batch.project(columns).map_err(|error| DatasetError::Data(error.into())),
                None => Ok(batch),
            }
        });
        match filled {
            Ok(batch) if batch.num_rows() == 0 => None,
            Ok(batch) => Some(Ok(batch)),
            Err(error) => {
                self.has_failed = true;
                Some(Err(error))
            }
        }
    }
}

impl SweepReader {
    /// Reads batches of reads until a batch of rows is complete or the reads end.
    fn fill_rows(&mut self) -> Result<(), DatasetError> {
        while !self.is_finished && self.sweep.row_count() < BATCH_ROWS {
            let next = self.batches.as_mut().and_then(Iterator::next);
            match (next, self.parts.is_empty()) {
                (Some(batch), _) => {
                    let taken = self.sweep.add_batch(&batch?);
                    taken.map_err(|problem| DatasetError::Data(format!("{}: {problem}", self.name).into()))?;
                }
                (None, false) => {
                    let part = self.parts.pop().unwrap_or_default();
                    self.batches = Some(self.reads.read(&self.scan, &part)?);
                }
                (None, true) => {
                    self.sweep.finish();
                    self.is_finished = true;
                }
            }
        }
        Ok(())
    }
}

/// Returns a column of a batch of reads in this type. In some files, the column of contig names is dictionary-encoded.
pub(crate) fn read_column(reads: &RecordBatch, name: &str, data_type: &DataType) -> Result<ArrayRef, String> {
    let found = reads.column_by_name(name).ok_or_else(|| format!("it has no column {name}"))?;
    cast(found, data_type).map_err(|error| format!("its column {name} has an unsupported type: {error}"))
}

/// The columns of a batch of reads that have their alignments.
pub(crate) struct AlignmentColumns {
    flags: Int32Array,
    contigs: StringArray,
    positions: Int32Array,
    cigars: StringArray,
    bases: StringArray,
}

/// The alignment of a read that counts.
pub(crate) struct AlignedRead<'b> {
    pub(crate) contig: &'b str,
    /// Start on the contig, 0-based.
    pub(crate) position: i32,
    pub(crate) cigar: &'b str,
    /// `None` if the read has no bases.
    pub(crate) bases: Option<&'b [u8]>,
    pub(crate) is_reverse: bool,
}

impl AlignmentColumns {
    pub(crate) fn new(reads: &RecordBatch) -> Result<Self, String> {
        let integers = |name| read_column(reads, name, &DataType::Int32).map(|found| found.as_primitive().clone());
        let texts = |name| read_column(reads, name, &DataType::Utf8).map(|found| found.as_string().clone());
        Ok(Self {
            flags: integers("flags")?,
            contigs: texts("contig")?,
            positions: integers("position")?,
            cigars: texts("cigar")?,
            bases: texts("bases")?,
        })
    }

    /// Returns the read in a row; `None` if it does not count, because of its flags or because it is not aligned.
    pub(crate) fn read(&self, row: usize) -> Option<AlignedRead<'_>> {
        let Self { flags, contigs, positions, cigars, bases } = self;
        let has_place = contigs.is_valid(row) && positions.is_valid(row) && positions.value(row) >= 0;
        let flags = flags.value(row) as u16;
        (has_place && cigars.is_valid(row) && flags & EXCLUDED_FLAGS == 0).then(|| AlignedRead {
            contig: contigs.value(row),
            position: positions.value(row),
            cigar: cigars.value(row),
            bases: bases.is_valid(row).then(|| bases.value(row).as_bytes()),
            is_reverse: flags & flags::REVERSE != 0,
        })
    }
}

/// The position of a sweep along the genome.
#[derive(Default)]
pub(crate) struct SweepPosition {
    contig: String,
    /// Contigs whose reads have all been processed. A later read on one of them means that the input is not sorted.
    finished_contigs: HashSet<String>,
    /// Start of the last processed read, 0-based.
    last_position: i32,
}

impl SweepPosition {
    /// Returns the contig of the last read.
    pub(crate) fn contig(&self) -> &str {
        &self.contig
    }

    /// Returns whether a read is on another contig than the last one.
    pub(crate) fn is_new_contig(&self, contig: &str) -> bool {
        contig != self.contig
    }

    /// Moves to the next read. The error describes that the reads are not sorted.
    pub(crate) fn advance(&mut self, contig: &str, position: i32) -> Result<(), String> {
        let is_new = self.is_new_contig(contig);
        let is_sorted = match is_new {
            true => self.finished_contigs.insert(contig.to_owned()),
            false => position >= self.last_position,
        };
        if !is_sorted {
            return Err(format!(
                "its reads are not sorted at {contig}:{}, although its header or its index declares them as sorted",
                position + 1
            ));
        }
        if is_new {
            contig.clone_into(&mut self.contig);
        }
        self.last_position = position;
        Ok(())
    }
}

/// Returns the operations of a CIGAR as lengths and letters.
pub(crate) fn cigar_operations(cigar: &str) -> impl Iterator<Item = (i64, u8)> {
    let mut length = 0i64;
    cigar.bytes().filter_map(move |letter| {
        if letter.is_ascii_digit() {
            length = length.saturating_mul(10).saturating_add(i64::from(letter - b'0'));
            return None;
        }
        Some((std::mem::take(&mut length), letter))
    })
}
