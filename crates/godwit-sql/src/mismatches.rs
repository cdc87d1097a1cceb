//! The SQL table function `mismatches`, which returns the positions at which bases of reads differ from the reference.
//! Calls are `mismatches('x.bam')` and `mismatches('x.bam', 'chr20:1-1000')`.
//!
//! The reference bases are those of the tag MD (SAMtags §1.2), so a read that counts must have it. Reads and bases that
//! count are those of `pileup`, but for reads without bases. The input reads must be sorted by position. Memory grows with the number of positions
//! that the reads over one base cover.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int32Builder, RecordBatch, StringBuilder};
use datafusion::arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use godwit_model::{Region, flags};

use crate::pileup::{BASE_COLUMNS, base_index};
use crate::position_blocks::PositionBlocks;
use crate::read_sweep::{EXCLUDED_FLAGS, Sweep, SweepKind, SweepPosition, cigar_operations, read_column};

/// The table function `mismatches`.
pub(crate) static MISMATCHES: SweepKind = SweepKind {
    name: "mismatches",
    read_columns: &["flags", "contig", "position", "cigar", "bases", "tag_MD"],
    schema: mismatch_schema,
    start: |region| Box::new(MismatchSweep { region, ..MismatchSweep::default() }),
    needs_whole_contigs: false,
};

/// The columns before and after those of bases.
const FIRST_COLUMNS: [&str; 2] = ["depth", "mismatches"];
const REVERSE_COLUMN: &str = "reverse";

fn mismatch_schema() -> SchemaRef {
    let integer = |name: &str| Field::new(name, DataType::Int32, false);
    let text = |name: &str| Field::new(name, DataType::Utf8, false);
    let fields = [text("contig"), integer("position"), integer("end_position"), text("reference")];
    let counts = FIRST_COLUMNS.into_iter().chain(BASE_COLUMNS).chain([REVERSE_COLUMN]).map(integer);
    Arc::new(Schema::new(fields.into_iter().chain(counts).collect::<Vec<_>>()))
}

/// The counts of one position.
#[derive(Clone, Default)]
struct MismatchCounts {
    /// The reference base; 0 as long as no base differs from it.
    reference: u8,
    depth: i32,
    /// Number of bases that differ from the reference, by base.
    bases: [i32; BASE_COLUMNS.len()],
    /// Number of them in reads on the reverse strand.
    reverse: i32,
}

/// The columns of the output batch that is being built.
#[derive(Default)]
struct MismatchBuilder {
    row_count: usize,
    contigs: StringBuilder,
    starts: Int32Builder,
    ends: Int32Builder,
    references: StringBuilder,
    counts: [Int32Builder; FIRST_COLUMNS.len() + BASE_COLUMNS.len() + 1],
}

impl MismatchBuilder {
    fn push(&mut self, contig: &str, position: i32, counts: &MismatchCounts) {
        self.row_count += 1;
        self.contigs.append_value(contig);
        self.starts.append_value(position);
        self.ends.append_value(position + 1);
        self.references.append_value(char::from(counts.reference).to_string());
        let first = [counts.depth, counts.bases.iter().sum()];
        let values = first.into_iter().chain(counts.bases).chain([counts.reverse]);
        self.counts.iter_mut().zip(values).for_each(|(column, value)| column.append_value(value));
    }
}

/// A sweep along the genome that counts mismatches of sorted reads.
#[derive(Default)]
struct MismatchSweep {
    region: Option<Region>,
    position: SweepPosition,
    counts: PositionBlocks<MismatchCounts>,
    builder: MismatchBuilder,
}

impl Sweep for MismatchSweep {
    fn add_batch(&mut self, reads: &RecordBatch) -> Result<(), String> {
        let column = |name: &str, data_type| read_column(reads, name, data_type);
        let (flags, positions) = (column("flags", &DataType::Int32)?, column("position", &DataType::Int32)?);
        let (flags, positions) = (flags.as_primitive::<Int32Type>(), positions.as_primitive::<Int32Type>());
        let [contigs, cigars, bases, descriptions] =
            ["contig", "cigar", "bases", "tag_MD"].map(|name| column(name, &DataType::Utf8));
        let (contigs, cigars, bases, descriptions) = (contigs?, cigars?, bases?, descriptions?);
        let [contigs, cigars, bases, descriptions] =
            [&contigs, &cigars, &bases, &descriptions].map(|texts| texts.as_string::<i32>());
        for row in 0..reads.num_rows() {
            let has_place = contigs.is_valid(row) && positions.is_valid(row) && positions.value(row) >= 0;
            let is_placed = has_place && cigars.is_valid(row);
            let flags = flags.value(row) as u16;
            // Without bases nothing can differ.
            if !is_placed || flags & EXCLUDED_FLAGS != 0 || bases.is_null(row) {
                continue;
            }
            let (contig, position) = (contigs.value(row), positions.value(row));
            if self.position.is_new_contig(contig) {
                self.finish();
            }
            self.position.advance(contig, position)?;
            self.emit_before(i64::from(position));
            let place = || format!("a read at {contig}:{}", i64::from(position) + 1);
            if descriptions.is_null(row) {
                return Err(format!("{} has no tag MD; add it, for example with `samtools calmd`", place()));
            }
            let read = AlignedRead {
                start: position,
                cigar: cigars.value(row),
                bases: bases.value(row).as_bytes(),
                is_reverse: flags & flags::REVERSE != 0,
            };
            let added = self.add_read(&read, descriptions.value(row));
            added.map_err(|problem| format!("{} {problem}", place()))?;
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
        let builder = std::mem::take(&mut self.builder);
        let MismatchBuilder { mut contigs, mut starts, mut ends, mut references, counts, .. } = builder;
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(contigs.finish()),
            Arc::new(starts.finish()),
            Arc::new(ends.finish()),
            Arc::new(references.finish()),
        ];
        columns.extend(counts.map(|mut column| Arc::new(column.finish()) as ArrayRef));
        RecordBatch::try_new(schema.clone(), columns)
    }
}

/// The alignment of a read.
struct AlignedRead<'r> {
    /// Start on the contig, 0-based.
    start: i32,
    cigar: &'r str,
    bases: &'r [u8],
    is_reverse: bool,
}

impl MismatchSweep {
    /// Appends the rows of the blocks before this position, which no later read can change.
    fn emit_before(&mut self, position: i64) {
        while let Some((first, counts)) = self.counts.take_before(position) {
            for (offset, counts) in counts.iter().enumerate() {
                let position = first + offset as i32;
                let is_requested =
                    self.region.as_ref().is_none_or(|region| (region.start..region.end).contains(&(position as u32)));
                if is_requested && counts.reference != 0 {
                    self.builder.push(self.position.contig(), position, counts);
                }
            }
        }
    }

    /// Adds the bases of a read. The error describes why its tag MD is not valid.
    fn add_read(&mut self, read: &AlignedRead, description: &str) -> Result<(), String> {
        let contradiction = || format!("has the tag MD {description}, which does not fit its CIGAR {}", read.cigar);
        let mut references = ReferenceBases::new(description);
        let (mut position, mut base) = (i64::from(read.start), 0);
        for (length, letter) in cigar_operations(read.cigar) {
            let on_reference = matches!(letter, b'M' | b'=' | b'X' | b'D' | b'N');
            let end = if on_reference { position.saturating_add(length) } else { position };
            if end >= i64::from(i32::MAX) {
                return Err("ends after base 2147483646".to_owned());
            }
            match letter {
                b'M' | b'=' | b'X' => {
                    for offset in 0..length {
                        let reference = references.next_base().ok_or_else(contradiction)?;
                        let counts = self.counts.at((position + offset) as i32);
                        counts.depth += 1;
                        if let ReferenceBase::Differs(reference) = reference {
                            counts.reference = reference;
                            let letter = usize::try_from(base + offset).ok().and_then(|at| read.bases.get(at));
                            counts.bases[base_index(letter)] += 1;
                            counts.reverse += i32::from(read.is_reverse);
                        }
                    }
                    base += length;
                }
                b'D' => references.skip_deletion(length).ok_or_else(contradiction)?,
                b'I' | b'S' => base += length,
                _ => {}
            }
            position = end;
        }
        if references.is_finished() { Ok(()) } else { Err(contradiction()) }
    }
}

/// A reference base at a base of a read.
enum ReferenceBase {
    Equals,
    Differs(u8),
}

/// The reference bases of a tag MD.
struct ReferenceBases<'d> {
    rest: &'d [u8],
    /// Number of bases that are equal before the rest.
    equal: i64,
}

impl<'d> ReferenceBases<'d> {
    fn new(description: &'d str) -> Self {
        let mut bases = Self { rest: description.as_bytes(), equal: 0 };
        bases.read_number();
        bases
    }

    fn read_number(&mut self) {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = self.rest.split_at(digits);
        let append = |number: i64, digit: &u8| number.saturating_mul(10).saturating_add(i64::from(digit - b'0'));
        (self.equal, self.rest) = (number.iter().fold(0, append), rest);
    }

    /// Returns the reference base at the next base of the read; `None` if the tag has no such base.
    fn next_base(&mut self) -> Option<ReferenceBase> {
        if self.equal > 0 {
            self.equal -= 1;
            return Some(ReferenceBase::Equals);
        }
        let (reference, rest) = self.rest.split_first().filter(|(letter, _)| letter.is_ascii_alphabetic())?;
        self.rest = rest;
        self.read_number();
        Some(ReferenceBase::Differs(reference.to_ascii_uppercase()))
    }

    /// Reads the bases of a deletion; `None` if the tag has no deletion of this length here.
    fn skip_deletion(&mut self, length: i64) -> Option<()> {
        let deleted = self.rest.strip_prefix(b"^").filter(|_| self.equal == 0)?;
        let count = deleted.iter().take_while(|letter| letter.is_ascii_alphabetic()).count();
        // A deletion may be followed by a mismatch without a 0 between them, although it should not.
        let length = usize::try_from(length).ok().filter(|length| *length <= count)?;
        self.rest = &deleted[length..];
        self.read_number();
        Some(())
    }

    fn is_finished(&self) -> bool {
        self.equal == 0 && self.rest.is_empty()
    }
}
