//! Columns made packed records again.
//!
//! Flows in: batches of [`columnar::plain_alignments`], as somebody changed them. Flows out: packed records. A row that nobody changed
//! becomes the bytes it was made of. Columns that follow from others (`end_position`) are not looked at; `contig` has to agree
//! with `contig_id`. Where a row stands among others is not judged here.

use std::collections::HashSet;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, UInt8Type, UInt16Type};
use arrow_array::{Array, BinaryArray, Int32Array, RecordBatch, StringArray, UInt8Array, UInt16Array};
use godwit_model::schema::columnar;
use godwit_model::{Genome, RawRecord, packed_tags};

use super::tags::{INTEGERS, OF_TAGS, TEXTS, column_of};
use super::text::print_number;
use crate::sam::{LineEncoder, SamError, append_value};

/// Greatest quality that SAM can print.
const MAX_QUALITY: u8 = b'~' - b'!';

/// Why a batch or one of its rows is no record.
#[derive(Debug, thiserror::Error)]
pub enum RowError {
    /// A column is missing or of another type.
    #[error("{problem}")]
    Schema {
        /// Which, and what it should be.
        problem: String,
    },
    /// A row contradicts itself or the header.
    #[error("{problem}")]
    Row {
        /// 0-based index in the batch.
        row: usize,
        /// What is wrong with which column.
        problem: String,
    },
}

/// Turns rows into packed records. Keeps its buffers from row to row.
pub struct RowEncoder<'g> {
    lines: LineEncoder,
    genome: &'g Genome,
    /// IDs of read groups in the header.
    read_groups: HashSet<String>,
    line: Vec<u8>,
    record: Vec<u8>,
}

/// The columns of a batch.
pub struct Rows<'b> {
    name: &'b StringArray,
    flags: &'b UInt16Array,
    contig: &'b StringArray,
    contig_id: &'b Int32Array,
    position: &'b Int32Array,
    mapping_quality: &'b UInt8Array,
    cigar: &'b StringArray,
    mate_contig: &'b StringArray,
    mate_position: &'b Int32Array,
    template_length: &'b Int32Array,
    bases: &'b StringArray,
    qualities: &'b BinaryArray,
    read_group: &'b StringArray,
    integers: [&'b Int32Array; INTEGERS],
    texts: [&'b StringArray; TEXTS],
    layout: &'b StringArray,
    others: &'b BinaryArray,
}

impl<'b> Rows<'b> {
    /// The columns of a batch, after checking that all are there, in their order and types, and without nulls where there can be
    /// none.
    ///
    /// # Errors
    /// [`RowError::Schema`].
    pub fn of(batch: &'b RecordBatch) -> Result<Self, RowError> {
        let (wanted, found) = (columnar::plain_alignments(), batch.schema());
        let schema_error = |problem| Err(RowError::Schema { problem });
        for (at, field) in wanted.fields().iter().enumerate() {
            let name = field.name();
            match found.fields().get(at) {
                Some(there) if there.name() != name => {
                    return schema_error(format!("column {} should be {name}, but is {}", at + 1, there.name()));
                }
                Some(there) if there.data_type() != field.data_type() => {
                    let (is, should) = (there.data_type(), field.data_type());
                    return schema_error(format!("column {name} is of type {is}, but should be of {should}"));
                }
                Some(_) if !field.is_nullable() && batch.column(at).null_count() > 0 => {
                    return schema_error(format!("column {name} has nulls, which it must not have"));
                }
                Some(_) => {}
                None => return schema_error(format!("column {name} is missing")),
            }
        }
        let (text, integer) = (|at| batch.column(at).as_string(), |at| batch.column(at).as_primitive::<Int32Type>());
        let first_tag = wanted.fields().len() - OF_TAGS;
        Ok(Self {
            name: text(0),
            flags: batch.column(1).as_primitive::<UInt16Type>(),
            contig: text(2),
            contig_id: integer(3),
            position: integer(4),
            mapping_quality: batch.column(6).as_primitive::<UInt8Type>(),
            cigar: text(7),
            mate_contig: text(8),
            mate_position: integer(9),
            template_length: integer(10),
            bases: text(11),
            qualities: batch.column(12).as_binary(),
            read_group: text(first_tag - 1),
            integers: std::array::from_fn(|at| integer(first_tag + at)),
            texts: std::array::from_fn(|at| text(first_tag + INTEGERS + at)),
            layout: text(first_tag + INTEGERS + TEXTS),
            others: batch.column(first_tag + INTEGERS + TEXTS + 1).as_binary(),
        })
    }

    /// Text of a row; `None` for null.
    fn text(column: &'b StringArray, row: usize) -> Option<&'b str> {
        column.is_valid(row).then(|| column.value(row))
    }
}

impl<'g> RowEncoder<'g> {
    /// An encoder for records under a header with these contigs and IDs of read groups.
    pub fn new<'r>(genome: &'g Genome, read_groups: impl IntoIterator<Item = &'r str>) -> Self {
        let read_groups = read_groups.into_iter().map(str::to_owned).collect();
        Self { lines: LineEncoder::new(genome), genome, read_groups, line: Vec::new(), record: Vec::new() }
    }

    /// The packed record of a row.
    ///
    /// # Errors
    /// [`RowError::Row`].
    pub fn encode(&mut self, rows: &Rows, row: usize) -> Result<RawRecord<'_>, RowError> {
        let wrong = |problem| RowError::Row { row, problem };
        self.print(rows, row).map_err(wrong)?;
        self.record.clear();
        self.lines.encode(&self.line, &mut self.record).map_err(|error: SamError| wrong(error.to_string()))?;
        self.put_qualities(rows, row).map_err(wrong)?;
        let flag = RawRecord::trusted(&self.record).flag();
        if flag != rows.flags.value(row) {
            let problem = "it has no contig, position or cigar, so that flags must have 4 (unmapped)";
            return Err(wrong(problem.to_owned()));
        }
        self.put_tags(rows, row).map_err(wrong)?;
        Ok(RawRecord::trusted(&self.record))
    }

    /// Prints the mandatory fields but for the qualities as SAM does, so that they go through the checks of every other record.
    fn print(&mut self, rows: &Rows, row: usize) -> Result<(), String> {
        let line = &mut self.line;
        line.clear();
        put_field(line, "name", Rows::text(rows.name, row))?;
        print_number(u32::from(rows.flags.value(row)), line);
        line.push(b'\t');
        let contig = self.genome.contigs().get(contig_index(rows, row)?);
        let name = contig.map(|contig| contig.name.as_str());
        if rows.contig_id.is_valid(row) && contig.is_none() {
            return Err(format!("contig_id is {}, which the header does not have", rows.contig_id.value(row)));
        }
        if Rows::text(rows.contig, row) != name {
            let (told, id) = (Rows::text(rows.contig, row).unwrap_or("null"), name.unwrap_or("null"));
            return Err(format!("contig is {told}, but contig_id says {id}; change both"));
        }
        put_field(line, "contig", Some(name.unwrap_or("*")))?;
        let position = rows.position.value(row);
        if contig.is_some_and(|contig| position < 0 || position.unsigned_abs() >= contig.length) {
            return Err(format!("position is {position}, which is not on {}", name.unwrap_or("*")));
        }
        put_position(line, "position", position)?;
        print_number(u32::from(rows.mapping_quality.value(row)), line);
        line.push(b'\t');
        put_field(line, "cigar", Some(text_or_star(Rows::text(rows.cigar, row))))?;
        put_field(line, "mate_contig", Some(Rows::text(rows.mate_contig, row).unwrap_or("*")))?;
        put_position(line, "mate_position", rows.mate_position.value(row))?;
        line.extend_from_slice(rows.template_length.value(row).to_string().as_bytes());
        line.push(b'\t');
        put_field(line, "bases", Some(text_or_star(Rows::text(rows.bases, row))))?;
        line.push(b'*');
        Ok(())
    }

    /// Puts the qualities where the record has none yet.
    fn put_qualities(&mut self, rows: &Rows, row: usize) -> Result<(), String> {
        if rows.qualities.is_null(row) {
            return Ok(());
        }
        let qualities = rows.qualities.value(row);
        let record = RawRecord::trusted(&self.record);
        let place = record.qualities();
        if qualities.len() != place.len() {
            return Err(format!("it has {} bases but {} qualities", place.len(), qualities.len()));
        }
        if let Some(quality) = qualities.iter().find(|quality| **quality > MAX_QUALITY) {
            return Err(format!("a quality is {quality}; the greatest is {MAX_QUALITY}"));
        }
        let end = self.record.len() - record.tags().len();
        self.record[end - qualities.len()..end].copy_from_slice(qualities);
        Ok(())
    }

    /// Appends the tags: in the order of `tag_layout`, behind them those that it does not name. A tag whose column is null and that is not
    /// among `other_tags` is gone. A CIGAR that is kept as a tag stays the last one.
    fn put_tags(&mut self, rows: &Rows, row: usize) -> Result<(), String> {
        let tags_bytes = RawRecord::trusted(&self.record).tags().len();
        let long_cigar = self.record.split_off(self.record.len() - tags_bytes);
        let layout = rows.layout.value(row).as_bytes();
        let others = if rows.others.is_null(row) { &[][..] } else { rows.others.value(row) };
        let mut left: Vec<&[u8]> = packed_tags(others).map(|tag| &others[tag.start..tag.end]).collect();
        if left.iter().map(|tag| tag.len()).sum::<usize>() != others.len() {
            return Err("other_tags are not tags as BAM has them".to_owned());
        }
        let (entries, rest) = layout.as_chunks::<3>();
        if !rest.is_empty() {
            return Err("tag_layout is not three characters for each tag".to_owned());
        }
        let mut seen = 0u32;
        for [a, b, kind] in entries.iter().copied() {
            let column = column_of([a, b], kind).filter(|column| seen >> column & 1 == 0);
            let of_column = column.is_some_and(|column| {
                seen |= 1 << column;
                rows.has_tag(column, row)
            });
            if let Some(column) = column.filter(|_| of_column) {
                self.put_column(rows, row, column, kind)?;
            } else if let Some(at) = left.iter().position(|tag| tag.starts_with(&[a, b, kind])) {
                self.record.extend_from_slice(left.remove(at));
            }
        }
        for column in (0..=columnar::TAG_COLUMNS.len()).filter(|column| seen >> column & 1 == 0) {
            if rows.has_tag(column, row) {
                self.put_column(rows, row, column, b'C')?;
            }
        }
        left.into_iter().for_each(|tag| self.record.extend_from_slice(tag));
        self.record.extend_from_slice(&long_cigar);
        Ok(())
    }

    /// Appends the tag of a column. An integer keeps its type where it fits.
    fn put_column(&mut self, rows: &Rows, row: usize, column: usize, kind: u8) -> Result<(), String> {
        let name = columnar::TAG_COLUMNS.get(column).map_or(*b"RG", |(name, _)| *name);
        self.record.extend_from_slice(&name);
        if column < INTEGERS {
            append_kept(rows.integers[column].value(row), kind, &mut self.record);
            return Ok(());
        }
        let text = match rows.texts.get(column - INTEGERS) {
            Some(texts) => texts.value(row),
            None => rows.read_group.value(row),
        };
        if column == columnar::TAG_COLUMNS.len() && !self.read_groups.contains(text) {
            return Err(format!("read_group is {text:?}, which the header does not have"));
        }
        if text.contains(['\0', '\t', '\n', '\r']) {
            return Err(format!("tag_{} has a character that SAM cannot print", String::from_utf8_lossy(&name)));
        }
        self.record.push(b'Z');
        self.record.extend_from_slice(text.as_bytes());
        self.record.push(0);
        Ok(())
    }
}

impl Rows<'_> {
    /// Whether a column of tags has a value, by its place among [`columnar::TAG_COLUMNS`]; one past them is the read group.
    fn has_tag(&self, column: usize, row: usize) -> bool {
        match self.integers.get(column) {
            Some(integers) => integers.is_valid(row),
            None => self.texts.get(column - INTEGERS).unwrap_or(&self.read_group).is_valid(row),
        }
    }
}

/// Index of the contig; beyond all contigs where there is none.
fn contig_index(rows: &Rows, row: usize) -> Result<usize, String> {
    if rows.contig_id.is_null(row) {
        return Ok(usize::MAX);
    }
    let id = rows.contig_id.value(row);
    usize::try_from(id).map_err(|_| format!("contig_id is {id}; it is null where there is no contig"))
}

/// Empty text is none, as SAM prints it.
fn text_or_star(text: Option<&str>) -> &str {
    text.filter(|text| !text.is_empty()).unwrap_or("*")
}

/// Prints text and a tab. What would end the field is refused, so that each column stays its own.
fn put_field(line: &mut Vec<u8>, column: &str, text: Option<&str>) -> Result<(), String> {
    let text = text.unwrap_or_default();
    if text.is_empty() || text.contains(['\t', '\n', '\r', '\0']) {
        return Err(format!("{column} is {text:?}, which SAM cannot print"));
    }
    line.extend_from_slice(text.as_bytes());
    line.push(b'\t');
    Ok(())
}

/// Prints a 0-based position, -1 for none, as SAM does, and a tab.
fn put_position(line: &mut Vec<u8>, column: &str, position: i32) -> Result<(), String> {
    let pos_1based = u32::try_from(i64::from(position) + 1);
    print_number(pos_1based.map_err(|_| format!("{column} is {position}; it is -1 where there is none"))?, line);
    line.push(b'\t');
    Ok(())
}

/// Appends type and value of an integer tag: as `kind` where that holds it, else as SAM text of it would be read.
fn append_kept(value: i32, kind: u8, out: &mut Vec<u8>) {
    let bytes = value.to_le_bytes();
    let (fits, count) = match kind {
        b'c' => (i8::try_from(value).is_ok(), 1),
        b'C' => (u8::try_from(value).is_ok(), 1),
        b's' => (i16::try_from(value).is_ok(), 2),
        b'S' => (u16::try_from(value).is_ok(), 2),
        b'i' => (true, 4),
        _ => (kind == b'I' && value >= 0, 4),
    };
    if fits {
        out.push(kind);
        out.extend_from_slice(&bytes[..count]);
    } else {
        append_value(value, out);
    }
}
