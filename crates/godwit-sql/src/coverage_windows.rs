//! The SQL table function `coverage_windows('x.bam', 1000)`, which returns the coverage of each window of a fixed size.
//!
//! Windows begin at the first base of each contig of the header, and the last one ends with the contig. The depth is
//! that of [`crate::coverage`]; its sum over a window is that of `samtools bedcov -j` (1.16). Windows without reads have
//! rows, too.

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::sync::Arc;

use datafusion::arrow::array::{AsArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Int32Type, Int64Type, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::Expr;
use godwit_dataset::{BatchReader, ContigLine, Dataset, DatasetError, DatasetKind, Scan, ScanPart, contig_lines};

use crate::coverage::COVERAGE;
use crate::dataset_table::{TableCatalog, table_provider};
use crate::read_sweep::{SweepDataset, find_sorted_reads};
use crate::region_pushdown::{integer_value, literal_value};
use crate::table_functions::{REGION_ADVICE, literal_text, to_datafusion_error};

/// Name of the SQL table function.
pub(crate) const FUNCTION_NAME: &str = "coverage_windows";
/// Number of rows in an output batch.
const BATCH_ROWS: usize = 8192;

/// The table function `coverage_windows`.
#[derive(Debug)]
pub(crate) struct CoverageWindowsFunction {
    pub(crate) tables: TableCatalog,
}

impl TableFunctionImpl for CoverageWindowsFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let integer = |size: &Expr| literal_value(size).and_then(integer_value);
        let arguments = match args.exprs() {
            [name, size] => literal_text(name).zip(integer(size)),
            _ => None,
        };
        let Some((name, size)) = arguments else {
            return plan_err!(
                "{FUNCTION_NAME}() takes the name of a table of reads in single quotes, and the size of a window in bases; \
                 {REGION_ADVICE}"
            );
        };
        let Some(window_bases) = i32::try_from(size).ok().filter(|size| *size > 0) else {
            return plan_err!("{FUNCTION_NAME}(): a window has at least 1 and at most 2147483647 bases, not {size}");
        };
        let (name, reads) = find_sorted_reads(&self.tables, name, FUNCTION_NAME)?;
        let Some(contigs) = contig_lengths(&reads.schema()) else {
            return plan_err!(
                "the lengths of the contigs of {name} are unknown or hidden, so {FUNCTION_NAME}() cannot be computed"
            );
        };
        let coverage = SweepDataset::new(&COVERAGE, &name, reads, None).map_err(to_datafusion_error)?;
        let table = format!("{FUNCTION_NAME}({name})");
        let windows = WindowDataset { name, coverage, contigs, window_bases, schema: window_schema() };
        table_provider(&table, Arc::new(windows))
    }
}

/// Returns names and lengths of the contigs in the SAM header in the metadata of a schema; `None` if the header is
/// absent, or if a length is invalid.
fn contig_lengths(schema: &Schema) -> Option<Vec<(String, i32)>> {
    let contigs = contig_lines(schema).filter(|line| matches!(line, ContigLine::Sam(_)));
    let contigs =
        contigs.map(|line| Some((line.field("SN:", "ID=")?.to_owned(), line.field("LN:", "length=")?.parse().ok()?)));
    contigs.collect::<Option<Vec<_>>>().filter(|contigs| !contigs.is_empty())
}

fn window_schema() -> SchemaRef {
    let field = |name: &str, data_type| Field::new(name, data_type, false);
    Arc::new(Schema::new(vec![
        field("contig", DataType::Utf8),
        field("position", DataType::Int32),
        field("end_position", DataType::Int32),
        field("covered", DataType::Int64),
        field("depth_sum", DataType::Int64),
        field("mean_depth", DataType::Float64),
    ]))
}

/// A dataset with a row for each window.
#[derive(Debug)]
struct WindowDataset {
    name: String,
    coverage: SweepDataset,
    /// Names and lengths of the contigs, in the order of the header.
    contigs: Vec<(String, i32)>,
    window_bases: i32,
    schema: SchemaRef,
}

impl Dataset for WindowDataset {
    fn kind(&self) -> DatasetKind {
        DatasetKind::Table
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn bytes(&self) -> u64 {
        self.coverage.bytes()
    }

    fn version(&self) -> u64 {
        self.coverage.version()
    }

    fn has_regions(&self) -> bool {
        true
    }

    fn has_contig(&self, name: &str) -> Option<bool> {
        Some(self.contigs.iter().any(|(contig, _)| contig == name))
    }

    fn parts(&self, scan: &Scan, max_parts: usize) -> Result<Vec<ScanPart>, DatasetError> {
        self.coverage.parts(scan, max_parts)
    }

    /// Conditions select whole contigs.
    fn read(&self, scan: &Scan, part: &ScanPart) -> Result<BatchReader, DatasetError> {
        if part.ranges.is_empty() {
            return Ok(Box::new(std::iter::empty()));
        }
        let of_coverage = Scan { columns: None, regions: scan.regions.clone() };
        let intervals = self.coverage.read(&of_coverage, part)?.flat_map(|batch| match batch {
            Ok(batch) => intervals_of_batch(&batch).into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        });
        let named: Option<BTreeSet<&str>> =
            scan.regions.as_ref().map(|regions| regions.iter().map(|region| region.contig.as_str()).collect());
        let is_named = |contig: &str| named.as_ref().is_none_or(|named| named.contains(contig));
        let mut contigs: Vec<_> = self.contigs.iter().filter(|(contig, _)| is_named(contig)).cloned().collect();
        contigs.reverse();
        let reading = WindowReader {
            contigs,
            start: 0,
            window_bases: self.window_bases,
            intervals: (Box::new(intervals) as IntervalIterator).peekable(),
            name: self.name.clone(),
            schema: self.schema.clone(),
            columns: scan.columns.clone(),
        };
        Ok(Box::new(reading))
    }
}

/// An interval of equal depth.
struct DepthInterval {
    contig: String,
    start: i32,
    end: i32,
    depth: i64,
}

type IntervalIterator = Box<dyn Iterator<Item = Result<DepthInterval, DatasetError>> + Send>;

/// Returns the rows of a batch of coverage.
fn intervals_of_batch(batch: &RecordBatch) -> Vec<DepthInterval> {
    let contigs = batch.column(0).as_string::<i32>();
    let [starts, ends] = [1, 2].map(|column| batch.column(column).as_primitive::<Int32Type>());
    let depths = batch.column(3).as_primitive::<Int64Type>();
    let interval = |row| DepthInterval {
        contig: contigs.value(row).to_owned(),
        start: starts.value(row),
        end: ends.value(row),
        depth: depths.value(row),
    };
    (0..batch.num_rows()).map(interval).collect()
}

/// An iterator over batches of windows, which are computed from intervals of equal depth.
struct WindowReader {
    /// Contigs that are not complete, in reverse order.
    contigs: Vec<(String, i32)>,
    /// Start of the next window on the current contig, 0-based.
    start: i32,
    window_bases: i32,
    intervals: Peekable<IntervalIterator>,
    name: String,
    schema: SchemaRef,
    columns: Option<Vec<usize>>,
}

/// The coverage of a window.
struct Window {
    contig: String,
    start: i32,
    end: i32,
    covered: i64,
    depth_sum: i64,
}

impl WindowReader {
    /// Returns the next window; `None` at the end.
    fn next_window(&mut self) -> Result<Option<Window>, DatasetError> {
        while self.contigs.last().is_some_and(|(_, length)| self.start >= *length) {
            let finished = self.contigs.pop().map(|(contig, _)| contig);
            self.start = 0;
            // Reads may extend beyond the end of a contig.
            let is_on_it = |next: &Result<DepthInterval, DatasetError>| {
                next.as_ref().is_ok_and(|interval| Some(&interval.contig) == finished.as_ref())
            };
            while self.intervals.next_if(is_on_it).is_some() {}
        }
        let Some((contig, length)) = self.contigs.last() else {
            return match self.intervals.next().transpose()? {
                None => Ok(None),
                Some(DepthInterval { contig, .. }) => {
                    let problem = format!("{}: its reads on {contig} are not in the order of its header", self.name);
                    Err(DatasetError::Data(problem.into()))
                }
            };
        };
        let end = self.start.saturating_add(self.window_bases).min(*length);
        let mut window = Window { contig: contig.clone(), start: self.start, end, covered: 0, depth_sum: 0 };
        self.start = end;
        while let Some(next) = self.intervals.peek_mut() {
            let is_within = match next {
                Ok(interval) => interval.contig == window.contig && interval.start < end,
                Err(_) => true,
            };
            if !is_within {
                break;
            }
            if let Ok(interval) = next
                && interval.end > end
            {
                window.add(interval.start, end, interval.depth);
                interval.start = end;
                break;
            }
            if let Some(interval) = self.intervals.next().transpose()? {
                window.add(interval.start, interval.end, interval.depth);
            }
        }
        Ok(Some(window))
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>, DatasetError> {
        let mut windows = Vec::new();
        while windows.len() < BATCH_ROWS {
            match self.next_window()? {
                Some(window) => windows.push(window),
                None => break,
            }
        }
        if windows.is_empty() {
            return Ok(None);
        }
        let batch = batch_of_windows(&windows, &self.schema).and_then(|batch| match &self.columns {
            Some(columns) => batch.project(columns),
            None => Ok(batch),
        });
        batch.map(Some).map_err(|error| DatasetError::Data(error.into()))
    }
}

impl Window {
    fn add(&mut self, start: i32, end: i32, depth: i64) {
        let bases = i64::from(end - start);
        self.covered += bases;
        self.depth_sum += depth * bases;
    }
}

fn batch_of_windows(windows: &[Window], schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let contigs: StringArray = windows.iter().map(|window| Some(window.contig.as_str())).collect();
    let starts: Int32Array = windows.iter().map(|window| window.start).collect();
    let ends: Int32Array = windows.iter().map(|window| window.end).collect();
    let covered: Int64Array = windows.iter().map(|window| window.covered).collect();
    let sums: Int64Array = windows.iter().map(|window| window.depth_sum).collect();
    let mean = |window: &Window| window.depth_sum as f64 / f64::from(window.end - window.start);
    let means: Float64Array = windows.iter().map(mean).collect();
    let (starts, ends, covered) = (Arc::new(starts), Arc::new(ends), Arc::new(covered));
    RecordBatch::try_new(
        schema.clone(),
        vec![Arc::new(contigs), starts, ends, covered, Arc::new(sums), Arc::new(means)],
    )
}

impl Iterator for WindowReader {
    type Item = Result<RecordBatch, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.next_batch().transpose();
        if matches!(batch, Some(Err(_))) {
            self.contigs.clear();
        }
        batch
    }
}
