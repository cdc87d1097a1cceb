//! The SQL table function `coverage`, which returns the depth of coverage as intervals of equal depth. Calls are
//! `coverage('x.bam')` and `coverage('x.bam', 'chr20:1-1000')`.
//!
//! The depth is that of `samtools depth` (1.16): the number of read bases that are aligned to a reference base (CIGAR
//! operations M, =, X). Unmapped reads, secondary alignments, duplicates and QC failures do not count. The input reads
//! must be sorted by position. Each output row is an interval `[position, end_position)`; adjacent rows differ in
//! depth, and bases of depth 0 have no row. Memory grows with the range of the reference that the reads over one base
//! cover.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int32Builder, Int64Builder, RecordBatch, StringBuilder};
use datafusion::arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use godwit_model::Region;

use crate::read_sweep::{EXCLUDED_FLAGS, Sweep, SweepKind, SweepPosition, cigar_operations, read_column};

/// The table function `coverage`.
pub(crate) static COVERAGE: SweepKind = SweepKind {
    name: "coverage",
    read_columns: &["flags", "contig", "position", "cigar"],
    schema: coverage_schema,
    start: |region| Box::new(DepthSweep { region, ..DepthSweep::default() }),
    // An interval of equal depth may extend beyond the region of a condition.
    needs_whole_contigs: true,
};

fn coverage_schema() -> SchemaRef {
    let field = |name: &str, data_type| Field::new(name, data_type, false);
    Arc::new(Schema::new(vec![
        field("contig", DataType::Utf8),
        field("position", DataType::Int32),
        field("end_position", DataType::Int32),
        field("depth", DataType::Int64),
    ]))
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
    position: SweepPosition,
    /// Changes of the depth at positions from `depth_start` on, 0-based.
    depth_changes: BTreeMap<i32, i64>,
    depth: i64,
    /// Position from which `depth` is valid, 0-based.
    depth_start: i32,
    builder: CoverageBuilder,
}

impl Sweep for DepthSweep {
    fn add_batch(&mut self, reads: &RecordBatch) -> Result<(), String> {
        let column = |name: &str, data_type| read_column(reads, name, data_type);
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

    fn finish(&mut self) {
        self.emit_before(i32::MAX);
    }

    fn row_count(&self) -> usize {
        self.builder.row_count
    }

    fn take_rows(&mut self, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
        self.builder.finish_batch(schema)
    }
}

impl DepthSweep {
    /// Appends the output rows before this position, which no later read can change.
    fn advance_to(&mut self, contig: &str, position: i32) -> Result<(), String> {
        if self.position.is_new_contig(contig) {
            self.finish();
        }
        self.position.advance(contig, position)?;
        self.emit_before(position);
        Ok(())
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
                    self.builder.push(self.position.contig(), start, end, self.depth);
                }
            }
            (self.depth, self.depth_start) = (self.depth + by, at);
        }
    }

    /// Adds the aligned bases of a read to `depth_changes`.
    fn add_read(&mut self, position: i32, cigar: &str) -> Result<(), String> {
        let mut start = i64::from(position);
        for (bases, letter) in cigar_operations(cigar) {
            let covers = matches!(letter, b'M' | b'=' | b'X');
            let end = if covers || matches!(letter, b'D' | b'N') { start.saturating_add(bases) } else { start };
            let too_far =
                |_| format!("a read at {}:{} ends after base 2147483647", self.position.contig(), position + 1);
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
