//! The SQL table function `coverage`, which returns the depth of coverage as intervals of equal depth. Calls are
//! `coverage('x.bam')` and `coverage('x.bam', 'chr20:1-1000')`.
//!
//! The depth is that of `samtools depth` (1.16): the number of read bases that are aligned to a reference base (CIGAR
//! operations M, =, X). Unmapped reads, secondary alignments, duplicates and QC failures do not count. The input reads
//! must be sorted by position. Each output row is an interval `[position, end_position)`; adjacent rows differ in
//! depth, and bases of depth 0 have no row. Memory grows with the range of the reference that the reads over one base
//! cover.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int32Builder, Int64Builder, RecordBatch, StringBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, plan_err};
use datafusion::error::DataFusionError;
use godwit_dataset::{BatchReader, Dataset, DatasetError, DatasetKind, Scan, ScanPart};
use godwit_model::{Region, flags};

use crate::dataset_table::{TableCatalog, table_provider};
use crate::table_functions::{literal_text, to_datafusion_error};

/// Name of the SQL table function.
pub(crate) const FUNCTION_NAME: &str = "coverage";
/// Columns of the reads from which the depth is computed.
const READ_COLUMNS: [&str; 4] = ["flags", "contig", "position", "cigar"];
/// FLAG bits of reads that do not count (samtools 1.16, `depth --help`, "-G").
const EXCLUDED_FLAGS: u16 = flags::UNMAPPED | flags::SECONDARY | flags::QC_FAIL | flags::DUPLICATE;
/// Number of rows in an output batch.
const BATCH_ROWS: usize = 8192;

/// The table function `coverage`.
#[derive(Debug)]
pub(crate) struct CoverageFunction {
    pub(crate) tables: TableCatalog,
}

impl TableFunctionImpl for CoverageFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let texts: Option<Vec<&str>> = args.exprs().iter().map(literal_text).collect();
        let (name, region) = match texts.as_deref() {
            Some([name]) => (*name, None),
            Some([name, region]) => (*name, Some(*region)),
            _ => {
                return plan_err!(
                    "{FUNCTION_NAME}() takes the name of a table of reads, and a region, each in single quotes"
                );
            }
        };
        let (name, reads) = self.tables.find_dataset(name).map_err(to_datafusion_error)?;
        if reads.kind() != DatasetKind::Reads {
            return plan_err!("{name} is not a dataset of reads, so its coverage cannot be computed");
        }
        if reads.sorted_by().is_empty() {
            return plan_err!(
                "{name} is not sorted by position, as {FUNCTION_NAME}() requires; sort it, for example with `samtools \
                 sort`"
            );
        }
        let region = region.map(|text| Region::parse(text, |contig| reads.has_contig(contig))).transpose();
        let region = region.map_err(|error| DataFusionError::Plan(format!("{name}: {error}")))?;
        let coverage = CoverageDataset::new(&name, reads, region).map_err(to_datafusion_error)?;
        table_provider(&format!("{FUNCTION_NAME}({name})"), Arc::new(coverage))
    }
}

/// A dataset whose rows are the depths of coverage of a dataset of reads.
#[derive(Debug)]
struct CoverageDataset {
    name: String,
    reads: Arc<dyn Dataset>,
    /// Indexes of [`READ_COLUMNS`] in the schema of the reads.
    columns: Vec<usize>,
    region: Option<Region>,
    schema: SchemaRef,
}

impl CoverageDataset {
    fn new(name: &str, reads: Arc<dyn Dataset>, region: Option<Region>) -> Result<Self, DatasetError> {
        let of_reads = reads.schema();
        let index = |column: &str| of_reads.index_of(column).map_err(|error| DatasetError::Data(error.into()));
        let mut columns = READ_COLUMNS.into_iter().map(index).collect::<Result<Vec<usize>, _>>()?;
        columns.sort_unstable();
        let field = |name: &str, data_type| Field::new(name, data_type, false);
        let schema = Schema::new(vec![
            field("contig", DataType::Utf8),
            field("position", DataType::Int32),
            field("end_position", DataType::Int32),
            field("depth", DataType::Int64),
        ]);
        Ok(Self { name: name.to_owned(), reads, columns, region, schema: Arc::new(schema) })
    }

    /// Returns the scan of the reads for a scan of depths. A region in the call of `coverage` limits the scan.
    /// Conditions select only whole contigs, because an interval of equal depth may extend beyond the region of a
    /// condition.
    fn reads_scan(&self, scan: &Scan) -> Scan {
        let whole = |region: &Region| Region { contig: region.contig.clone(), start: 0, end: Region::OPEN_END };
        let regions = match (&self.region, &scan.regions) {
            (Some(region), _) => Some(vec![region.clone()]),
            (None, Some(regions)) => {
                let mut contigs: Vec<Region> = regions.iter().map(whole).collect();
                contigs.sort_unstable();
                contigs.dedup();
                Some(contigs)
            }
            (None, None) => None,
        };
        Scan { columns: Some(self.columns.clone()), regions }
    }
}

impl Dataset for CoverageDataset {
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
        let reading = CoverageReader {
            reads: self.reads.clone(),
            scan: of_reads,
            parts,
            batches: None,
            sweep: DepthSweep::new(self.region.clone()),
            schema: self.schema.clone(),
            columns: scan.columns.clone(),
            name: self.name.clone(),
            is_finished: false,
        };
        Ok(Box::new(reading))
    }
}

/// An iterator over batches of depths, which are computed from batches of reads.
struct CoverageReader {
    reads: Arc<dyn Dataset>,
    scan: Scan,
    /// Parts of the reads that are not read yet, in reverse order.
    parts: Vec<ScanPart>,
    batches: Option<BatchReader>,
    sweep: DepthSweep,
    schema: SchemaRef,
    columns: Option<Vec<usize>>,
    name: String,
    is_finished: bool,
}

impl Iterator for CoverageReader {
    type Item = Result<RecordBatch, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_finished && self.sweep.builder.row_count == 0 {
            return None;
        }
        let filled = self.fill_rows().and_then(|()| {
            let batch =
                self.sweep.builder.finish_batch(&self.schema).map_err(|error| DatasetError::Data(error.into()))?;
            match &self.columns {
                Some(columns) => batch.project(columns).map_err(|error| DatasetError::Data(error.into())),
                None => Ok(batch),
            }
        });
        match filled {
            Ok(batch) if batch.num_rows() == 0 => None,
            Ok(batch) => Some(Ok(batch)),
            Err(error) => {
                self.is_finished = true;
                self.sweep.builder = CoverageBuilder::default();
                Some(Err(error))
            }
        }
    }
}

impl CoverageReader {
    /// Reads batches of reads until a batch of depths is complete or the reads end.
    fn fill_rows(&mut self) -> Result<(), DatasetError> {
        while !self.is_finished && self.sweep.builder.row_count < BATCH_ROWS {
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
                    self.sweep.finish_contig();
                    self.is_finished = true;
                }
            }
        }
        Ok(())
    }
}

/// The columns of the output batch that is being built.
#[derive(Default)]
struct CoverageBuilder {
    row_count: usize,
    contigs: StringBuilder,
    starts: Int32Builder,
    ends: Int32Builder,
    depths: Int64Builder,
}

impl CoverageBuilder {
    fn push(&mut self, contig: &str, start: i32, end: i32, depth: i64) {
        self.row_count += 1;
        self.contigs.append_value(contig);
        self.starts.append_value(start);
        self.ends.append_value(end);
        self.depths.append_value(depth);
    }

    fn finish_batch(&mut self, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
        self.row_count = 0;
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.contigs.finish()),
            Arc::new(self.starts.finish()),
            Arc::new(self.ends.finish()),
            Arc::new(self.depths.finish()),
        ];
        RecordBatch::try_new(schema.clone(), columns)
    }
}

/// A sweep along the genome that computes the depth from sorted reads.
#[derive(Default)]
struct DepthSweep {
    region: Option<Region>,
    contig: String,
    /// Contigs whose reads have all been processed. A later read on one of them means that the input is not sorted.
    finished_contigs: HashSet<String>,
    /// Start of the last processed read, 0-based.
    last_position: i32,
    /// Changes of the depth at positions from `depth_start` on, 0-based.
    depth_changes: BTreeMap<i32, i64>,
    depth: i64,
    /// Position from which `depth` is valid, 0-based.
    depth_start: i32,
    builder: CoverageBuilder,
}

impl DepthSweep {
    fn new(region: Option<Region>) -> Self {
        Self { region, ..Self::default() }
    }

    /// Processes a batch of reads. The error describes why the reads are invalid.
    fn add_batch(&mut self, reads: &RecordBatch) -> Result<(), String> {
        // In some files, the column of contig names is dictionary-encoded.
        let column = |name: &str, data_type| {
            let found = reads.column_by_name(name).ok_or_else(|| format!("it has no column {name}"))?;
            cast(found, data_type).map_err(|error| format!("its column {name} has an unsupported type: {error}"))
        };
        let (flags, positions) = (column("flags", &DataType::Int32)?, column("position", &DataType::Int32)?);
        let (flags, positions) = (flags.as_primitive::<Int32Type>(), positions.as_primitive::<Int32Type>());
        let (contigs, cigars) = (column("contig", &DataType::Utf8)?, column("cigar", &DataType::Utf8)?);
        let (contigs, cigars) = (contigs.as_string::<i32>(), cigars.as_string::<i32>());
        for row in 0..reads.num_rows() {
            let is_placed = contigs.is_valid(row) && positions.is_valid(row) && cigars.is_valid(row);
            if !is_placed || flags.value(row) as u16 & EXCLUDED_FLAGS != 0 {
                continue;
            }
            self.advance_to(contigs.value(row), positions.value(row))?;
            self.add_read(positions.value(row), cigars.value(row))?;
        }
        Ok(())
    }

    /// Appends the output rows before this position, which no later read can change.
    fn advance_to(&mut self, contig: &str, position: i32) -> Result<(), String> {
        let unsorted = || {
            format!(
                "its reads are not sorted at {contig}:{}, although its header declares them as sorted",
                position + 1
            )
        };
        if contig != self.contig {
            self.finish_contig();
            if !self.finished_contigs.insert(contig.to_owned()) {
                return Err(unsorted());
            }
            contig.clone_into(&mut self.contig);
            self.last_position = 0;
        }
        if position < self.last_position {
            return Err(unsorted());
        }
        self.last_position = position;
        self.emit_before(position);
        Ok(())
    }

    fn finish_contig(&mut self) {
        self.emit_before(i32::MAX);
    }

    fn emit_before(&mut self, position: i32) {
        while let Some(change) = self.depth_changes.first_entry().filter(|change| *change.key() < position) {
            let (at, by) = change.remove_entry();
            if by == 0 {
                continue;
            }
            if self.depth > 0 {
                let (start, end) = match &self.region {
                    Some(region) => {
                        (self.depth_start.max(region.start as i32), at.min(region.end.min(i32::MAX as u32) as i32))
                    }
                    None => (self.depth_start, at),
                };
                if start < end {
                    self.builder.push(&self.contig, start, end, self.depth);
                }
            }
            (self.depth, self.depth_start) = (self.depth + by, at);
        }
    }

    /// Adds the aligned bases of a read to `depth_changes`.
    fn add_read(&mut self, position: i32, cigar: &str) -> Result<(), String> {
        let mut start = i64::from(position);
        let mut length = 0i64;
        for letter in cigar.bytes() {
            if letter.is_ascii_digit() {
                length = length.saturating_mul(10).saturating_add(i64::from(letter - b'0'));
                continue;
            }
            let bases = std::mem::take(&mut length);
            let covers = matches!(letter, b'M' | b'=' | b'X');
            let end = if covers || matches!(letter, b'D' | b'N') { start.saturating_add(bases) } else { start };
            let too_far = |_| format!("a read at {}:{} ends after base 2147483647", self.contig, position + 1);
            let (from, to) = (i32::try_from(start).map_err(too_far)?, i32::try_from(end).map_err(too_far)?);
            if covers && from < to {
                *self.depth_changes.entry(from).or_default() += 1;
                *self.depth_changes.entry(to).or_default() -= 1;
            }
            start = end;
        }
        Ok(())
    }
}
