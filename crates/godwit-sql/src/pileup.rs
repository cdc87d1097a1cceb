//! The SQL table function `pileup`, which counts the bases of reads at each position. Calls are `pileup('x.bam')` and
//! `pileup('x.bam', 'chr20:1-1000')`.
//!
//! The counts are those of `samtools mpileup -x -A -B -Q 0 -d 0` (1.16): all aligned bases, whatever their quality, and
//! both bases where mates overlap. Reads that do not count are those of `coverage`. A position has a row if a read has
//! a base or a deletion there. The input reads must be sorted by position. Memory grows with the number of positions
//! that the reads over one base cover.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int32Builder, RecordBatch, StringBuilder};
use datafusion::arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use godwit_model::{Region, flags};

use crate::position_blocks::PositionBlocks;
use crate::read_sweep::{EXCLUDED_FLAGS, Sweep, SweepKind, SweepPosition, cigar_operations, read_column};

/// The table function `pileup`.
pub(crate) static PILEUP: SweepKind = SweepKind {
    name: "pileup",
    read_columns: &["flags", "contig", "position", "cigar", "bases"],
    schema: pileup_schema,
    start: |region| Box::new(PileupSweep { region, ..PileupSweep::default() }),
    needs_whole_contigs: false,
};

/// Columns with the number of reads that have a certain base, or any other base.
pub(crate) const BASE_COLUMNS: [&str; 5] = ["A", "C", "G", "T", "N"];
/// Columns with other counts, after those of bases: deletions, insertions directly after the position, and bases of
/// reads on the reverse strand.
const OTHER_COLUMNS: [&str; 3] = ["deletions", "insertions", "reverse"];

fn pileup_schema() -> SchemaRef {
    let counts = ["position", "end_position", "depth"].into_iter().chain(BASE_COLUMNS).chain(OTHER_COLUMNS);
    let fields = counts.map(|name| Field::new(name, DataType::Int32, false));
    Arc::new(Schema::new([Field::new("contig", DataType::Utf8, false)].into_iter().chain(fields).collect::<Vec<_>>()))
}

/// The counts of one position.
#[derive(Clone, Default)]
struct PositionCounts {
    bases: [i32; BASE_COLUMNS.len()],
    deletions: i32,
    insertions: i32,
    reverse: i32,
}

/// The columns of the output batch that is being built.
#[derive(Default)]
struct PileupBuilder {
    row_count: usize,
    contigs: StringBuilder,
    /// All other columns, in the order of the schema.
    counts: [Int32Builder; 3 + BASE_COLUMNS.len() + OTHER_COLUMNS.len()],
}

impl PileupBuilder {
    fn push(&mut self, contig: &str, position: i32, counts: &PositionCounts) {
        self.row_count += 1;
        self.contigs.append_value(contig);
        let place = [position, position + 1, counts.bases.iter().sum()];
        let others = [counts.deletions, counts.insertions, counts.reverse];
        let values = place.into_iter().chain(counts.bases).chain(others);
        self.counts.iter_mut().zip(values).for_each(|(column, value)| column.append_value(value));
    }
}

/// A sweep along the genome that counts bases from sorted reads.
#[derive(Default)]
struct PileupSweep {
    region: Option<Region>,
    position: SweepPosition,
    counts: PositionBlocks<PositionCounts>,
    builder: PileupBuilder,
}

impl Sweep for PileupSweep {
    fn add_batch(&mut self, reads: &RecordBatch) -> Result<(), String> {
        let column = |name: &str, data_type| read_column(reads, name, data_type);
        let (flags, positions) = (column("flags", &DataType::Int32)?, column("position", &DataType::Int32)?);
        let (flags, positions) = (flags.as_primitive::<Int32Type>(), positions.as_primitive::<Int32Type>());
        let (contigs, cigars) = (column("contig", &DataType::Utf8)?, column("cigar", &DataType::Utf8)?);
        let (contigs, cigars) = (contigs.as_string::<i32>(), cigars.as_string::<i32>());
        let bases = column("bases", &DataType::Utf8)?;
        let bases = bases.as_string::<i32>();
        for row in 0..reads.num_rows() {
            let has_place = contigs.is_valid(row) && positions.is_valid(row) && positions.value(row) >= 0;
            let is_placed = has_place && cigars.is_valid(row);
            let flags = flags.value(row) as u16;
            if !is_placed || flags & EXCLUDED_FLAGS != 0 {
                continue;
            }
            let (contig, position) = (contigs.value(row), positions.value(row));
            if self.position.is_new_contig(contig) {
                self.finish();
            }
            self.position.advance(contig, position)?;
            self.emit_before(i64::from(position));
            let bases = if bases.is_valid(row) { bases.value(row) } else { "" };
            self.add_read(position, cigars.value(row), bases.as_bytes(), flags & flags::REVERSE != 0)?;
        }
        Ok(())
    }

    fn finish(&mut self) {
        self.emit_before(i64::MAX);
    }

    fn row_count(&self) -> usize {
        self.builder.row_count
    }

    fn take_rows(&mut self, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
        self.builder.row_count = 0;
        let counts = self.builder.counts.iter_mut().map(|column| Arc::new(column.finish()) as ArrayRef);
        let columns = [Arc::new(self.builder.contigs.finish()) as ArrayRef].into_iter().chain(counts).collect();
        RecordBatch::try_new(schema.clone(), columns)
    }
}

impl PileupSweep {
    /// Appends the rows of the blocks before this position, which no later read can change.
    fn emit_before(&mut self, position: i64) {
        while let Some((first, counts)) = self.counts.take_before(position) {
            for (offset, counts) in counts.iter().enumerate() {
                let position = first + offset as i32;
                let is_requested =
                    self.region.as_ref().is_none_or(|region| (region.start..region.end).contains(&(position as u32)));
                if is_requested && (counts.deletions > 0 || counts.bases.iter().any(|count| *count > 0)) {
                    self.builder.push(self.position.contig(), position, counts);
                }
            }
        }
    }

    /// Adds the bases, deletions and insertions of a read.
    fn add_read(&mut self, start: i32, cigar: &str, bases: &[u8], is_reverse: bool) -> Result<(), String> {
        let operations: Vec<(i64, u8)> = cigar_operations(cigar).filter(|(length, _)| *length > 0).collect();
        let (mut position, mut base) = (i64::from(start), 0i64);
        for (at, (length, letter)) in operations.iter().copied().enumerate() {
            let (on_reference, on_read) = match letter {
                b'M' | b'=' | b'X' => (true, true),
                b'D' | b'N' => (true, false),
                b'I' | b'S' => (false, true),
                _ => (false, false),
            };
            let end = if on_reference { position.saturating_add(length) } else { position };
            if end >= i64::from(i32::MAX) {
                let contig = self.position.contig();
                return Err(format!("a read at {contig}:{} ends after base 2147483646", i64::from(start) + 1));
            }
            if on_reference && letter != b'N' {
                for offset in 0..length {
                    let counts = self.counts.at((position + offset) as i32);
                    match on_read {
                        true => {
                            let letter = usize::try_from(base + offset).ok().and_then(|at| bases.get(at));
                            counts.bases[base_index(letter)] += 1;
                            counts.reverse += i32::from(is_reverse);
                        }
                        false => counts.deletions += 1,
                    }
                }
                if is_insertion_next(&operations[at + 1..]) {
                    self.counts.at((end - 1) as i32).insertions += 1;
                }
            }
            position = end;
            base = if on_read { base.saturating_add(length) } else { base };
        }
        Ok(())
    }
}

/// Returns the index of the column of a base.
pub(crate) fn base_index(letter: Option<&u8>) -> usize {
    match letter {
        Some(b'A') => 0,
        Some(b'C') => 1,
        Some(b'G') => 2,
        Some(b'T') => 3,
        _ => 4,
    }
}

/// Returns whether an insertion precedes the next reference base, as in htslib's `resolve_cigar2` (1.16, `sam.c`).
fn is_insertion_next(operations: &[(i64, u8)]) -> bool {
    match operations {
        [(_, b'I'), ..] => true,
        [(_, b'P'), rest @ ..] => {
            let on_reference = |letter: u8| matches!(letter, b'M' | b'D' | b'N' | b'=' | b'X');
            let mut between = rest.iter().take_while(|(_, letter)| !on_reference(*letter));
            between.any(|(_, letter)| *letter == b'I')
        }
        _ => false,
    }
}
