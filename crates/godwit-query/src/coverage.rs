//! `coverage('x.bam')` and `coverage('x.bam', 'chr20:1-1000')`: how many reads cover each base, in stretches of one depth.
//!
//! What counts is what counts for `samtools depth` (1.16): reads that are not unmapped, secondary, duplicates or of bad quality,
//! and of those the bases that are aligned to one of the reference (M, =, X). Bases without reads are left out. Flows in: reads
//! in their order. Flows out: rows `[position, end_position)`, each apart from the next or of another depth. Memory goes by
//! how far the reads reach that cover one base.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int32Builder, Int64Builder, RecordBatch, StringBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, plan_err};
use datafusion::error::DataFusionError;
use godwit_flight::{BatchReader, Dataset, DatasetError, Kind, Part, Scan};
use godwit_model::{Region, flags};

use crate::table::{Tables, provider};
use crate::table_functions::{external, literal_text};

/// The function.
pub(crate) const NAME: &str = "coverage";
/// What is read of reads.
const COLUMNS: [&str; 4] = ["flags", "contig", "position", "cigar"];
/// Reads that do not count (samtools 1.16, `depth --help`, "-G").
const LEFT_OUT: u16 = flags::UNMAPPED | flags::SECONDARY | flags::QC_FAIL | flags::DUPLICATE;
/// Rows of a batch.
const BATCH_ROWS: usize = 8192;

/// The function that gives a table.
#[derive(Debug)]
pub(crate) struct CoverageOf {
    pub(crate) tables: Tables,
}

impl TableFunctionImpl for CoverageOf {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let texts: Option<Vec<&str>> = args.exprs().iter().map(literal_text).collect();
        let (name, region) = match texts.as_deref() {
            Some([name]) => (*name, None),
            Some([name, region]) => (*name, Some(*region)),
            _ => return plan_err!("{NAME}() takes the name of a table of reads, and a region, each in single quotes"),
        };
        let (name, reads) = self.tables.find(name).map_err(external)?;
        if reads.kind() != Kind::Reads {
            return plan_err!("{name} holds no reads, so nothing is covered");
        }
        if reads.sorted_by().is_empty() {
            return plan_err!("{name} is not sorted by place, as {NAME}() needs it; sort it, as with `samtools sort`");
        }
        let region = region.map(|text| Region::parse(text, |contig| reads.has_contig(contig))).transpose();
        let region = region.map_err(|error| DataFusionError::Plan(format!("{name}: {error}")))?;
        let coverage = Coverage::new(&name, reads, region).map_err(external)?;
        provider(&format!("{NAME}({name})"), Arc::new(coverage))
    }
}

/// Depths as a dataset.
#[derive(Debug)]
struct Coverage {
    name: String,
    reads: Arc<dyn Dataset>,
    /// Indices of [`COLUMNS`].
    columns: Vec<usize>,
    region: Option<Region>,
    schema: SchemaRef,
}

impl Coverage {
    fn new(name: &str, reads: Arc<dyn Dataset>, region: Option<Region>) -> Result<Self, DatasetError> {
        let of_reads = reads.schema();
        let index = |column: &str| of_reads.index_of(column).map_err(|error| DatasetError::Data(error.into()));
        let mut columns = COLUMNS.into_iter().map(index).collect::<Result<Vec<usize>, _>>()?;
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

    /// The reads that are looked at. A stretch of one depth may reach beyond a region that is asked for, so conditions choose whole
    /// contigs only.
    fn scan_of_reads(&self, scan: &Scan) -> Scan {
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

impl Dataset for Coverage {
    fn kind(&self) -> Kind {
        Kind::Table
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

    fn parts(&self, _scan: &Scan, _most: usize) -> Result<Vec<Part>, DatasetError> {
        Ok(vec![Part { stretches: vec![(0, u64::MAX)] }])
    }

    fn read(&self, scan: &Scan, part: &Part) -> Result<BatchReader, DatasetError> {
        if part.stretches.is_empty() {
            return Ok(Box::new(std::iter::empty()));
        }
        let of_reads = self.scan_of_reads(scan);
        let mut parts = self.reads.parts(&of_reads, 1)?;
        parts.reverse();
        let reading = Reading {
            reads: self.reads.clone(),
            scan: of_reads,
            parts,
            batches: None,
            sweep: Sweep::new(self.region.clone()),
            schema: self.schema.clone(),
            columns: scan.columns.clone(),
            name: self.name.clone(),
            is_over: false,
        };
        Ok(Box::new(reading))
    }
}

/// Depths on their way out of reads.
struct Reading {
    reads: Arc<dyn Dataset>,
    scan: Scan,
    /// Parts that are still to be read, last first.
    parts: Vec<Part>,
    batches: Option<BatchReader>,
    sweep: Sweep,
    schema: SchemaRef,
    columns: Option<Vec<usize>>,
    name: String,
    is_over: bool,
}

impl Iterator for Reading {
    type Item = Result<RecordBatch, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over && self.sweep.runs.rows == 0 {
            return None;
        }
        let filled = self.fill().and_then(|()| {
            let batch = self.sweep.runs.take(&self.schema).map_err(|error| DatasetError::Data(error.into()))?;
            match &self.columns {
                Some(columns) => batch.project(columns).map_err(|error| DatasetError::Data(error.into())),
                None => Ok(batch),
            }
        });
        match filled {
            Ok(batch) if batch.num_rows() == 0 => None,
            Ok(batch) => Some(Ok(batch)),
            Err(error) => {
                self.is_over = true;
                self.sweep.runs = Runs::default();
                Some(Err(error))
            }
        }
    }
}

impl Reading {
    /// Reads until there are enough rows, or no more reads.
    fn fill(&mut self) -> Result<(), DatasetError> {
        while !self.is_over && self.sweep.runs.rows < BATCH_ROWS {
            let next = self.batches.as_mut().and_then(Iterator::next);
            match (next, self.parts.is_empty()) {
                (Some(batch), _) => {
                    let taken = self.sweep.take(&batch?);
                    taken.map_err(|problem| DatasetError::Data(format!("{}: {problem}", self.name).into()))?;
                }
                (None, false) => {
                    let part = self.parts.pop().unwrap_or_default();
                    self.batches = Some(self.reads.read(&self.scan, &part)?);
                }
                (None, true) => {
                    self.sweep.end_contig();
                    self.is_over = true;
                }
            }
        }
        Ok(())
    }
}

/// Rows in the making.
#[derive(Default)]
struct Runs {
    rows: usize,
    contigs: StringBuilder,
    starts: Int32Builder,
    ends: Int32Builder,
    depths: Int64Builder,
}

impl Runs {
    fn push(&mut self, contig: &str, start: i32, end: i32, depth: i64) {
        self.rows += 1;
        self.contigs.append_value(contig);
        self.starts.append_value(start);
        self.ends.append_value(end);
        self.depths.append_value(depth);
    }

    fn take(&mut self, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
        self.rows = 0;
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.contigs.finish()),
            Arc::new(self.starts.finish()),
            Arc::new(self.ends.finish()),
            Arc::new(self.depths.finish()),
        ];
        RecordBatch::try_new(schema.clone(), columns)
    }
}

/// Goes along the genome.
#[derive(Default)]
struct Sweep {
    region: Option<Region>,
    contig: String,
    /// Contigs that are behind.
    seen: HashSet<String>,
    /// Where the last read began.
    position: i32,
    /// By how much the depth changes where, from here on.
    changes: BTreeMap<i32, i64>,
    depth: i64,
    /// Since where it is that.
    since: i32,
    runs: Runs,
}

impl Sweep {
    fn new(region: Option<Region>) -> Self {
        Self { region, ..Self::default() }
    }

    /// Takes reads. The error is what is wrong with them.
    fn take(&mut self, reads: &RecordBatch) -> Result<(), String> {
        // Names of contigs are dictionaries in some files.
        let column = |name: &str, data_type| {
            let found = reads.column_by_name(name).ok_or_else(|| format!("it has no column {name}"))?;
            cast(found, data_type).map_err(|error| format!("its column {name} is another one: {error}"))
        };
        let (flags, positions) = (column("flags", &DataType::Int32)?, column("position", &DataType::Int32)?);
        let (flags, positions) = (flags.as_primitive::<Int32Type>(), positions.as_primitive::<Int32Type>());
        let (contigs, cigars) = (column("contig", &DataType::Utf8)?, column("cigar", &DataType::Utf8)?);
        let (contigs, cigars) = (contigs.as_string::<i32>(), cigars.as_string::<i32>());
        for row in 0..reads.num_rows() {
            let is_placed = contigs.is_valid(row) && positions.is_valid(row) && cigars.is_valid(row);
            if !is_placed || flags.value(row) as u16 & LEFT_OUT != 0 {
                continue;
            }
            self.go_to(contigs.value(row), positions.value(row))?;
            self.add(positions.value(row), cigars.value(row))?;
        }
        Ok(())
    }

    /// Gives what no later read can change.
    fn go_to(&mut self, contig: &str, position: i32) -> Result<(), String> {
        let unsorted = || format!("its reads are not sorted at {contig}:{}, whatever its header says", position + 1);
        if contig != self.contig {
            self.end_contig();
            if !self.seen.insert(contig.to_owned()) {
                return Err(unsorted());
            }
            contig.clone_into(&mut self.contig);
            self.position = 0;
        }
        if position < self.position {
            return Err(unsorted());
        }
        self.position = position;
        self.give_before(position);
        Ok(())
    }

    fn end_contig(&mut self) {
        self.give_before(i32::MAX);
    }

    fn give_before(&mut self, position: i32) {
        while let Some(change) = self.changes.first_entry().filter(|change| *change.key() < position) {
            let (at, by) = change.remove_entry();
            if by == 0 {
                continue;
            }
            if self.depth > 0 {
                let (start, end) = match &self.region {
                    Some(region) => {
                        (self.since.max(region.start as i32), at.min(region.end.min(i32::MAX as u32) as i32))
                    }
                    None => (self.since, at),
                };
                if start < end {
                    self.runs.push(&self.contig, start, end, self.depth);
                }
            }
            (self.depth, self.since) = (self.depth + by, at);
        }
    }

    /// Adds the aligned bases of a read.
    fn add(&mut self, position: i32, cigar: &str) -> Result<(), String> {
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
            let too_far = |_| format!("a read at {}:{} reaches beyond base 2147483647", self.contig, position + 1);
            let (from, to) = (i32::try_from(start).map_err(too_far)?, i32::try_from(end).map_err(too_far)?);
            if covers && from < to {
                *self.changes.entry(from).or_default() += 1;
                *self.changes.entry(to).or_default() -= 1;
            }
            start = end;
        }
        Ok(())
    }
}
