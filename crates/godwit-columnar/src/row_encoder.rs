//! Conversion of rows of columns back into packed records.
//!
//! Flows in: batches with the schema [`alignment_columns::alignments_without_dictionaries`], which another process may
//! have changed. Flows out: packed records. A row that was not changed gives the same bytes as the record from which it
//! was made. The derived column `end_position` is ignored; `contig` has to agree with `contig_id`. The order of the
//! rows is not checked.

use std::collections::HashSet;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, UInt8Type, UInt16Type};
use arrow_array::{Array, BinaryArray, Int32Array, RecordBatch, StringArray, UInt8Array, UInt16Array};
use godwit_model::schema::alignment_columns;
use godwit_model::{Genome, RawRecord, iter_packed_tags};

use super::bytes_builder::append_decimal;
use super::tag_columns::{INTEGER_TAG_COUNT, TEXT_TAG_COUNT, tag_column_index};
use godwit_formats::sam::{LineEncoder, SamError, append_integer_value};

/// The greatest base quality that SAM can express.
const MAX_QUALITY: u8 = b'~' - b'!';

/// A reason why a batch, or one of its rows, cannot be converted into records.
#[derive(Debug, thiserror::Error)]
pub enum RowError {
    /// A column is missing, has another type, or contains a null that is not allowed.
    #[error("{problem}")]
    Schema {
        /// Description of the problem, with the name of the column and the expected name or type.
        problem: String,
    },
    /// The values of a row contradict each other or the header.
    #[error("{problem}")]
    Row {
        /// 0-based index of the row in the batch.
        row: usize,
        /// Description of the problem, with the name of the column.
        problem: String,
    },
}

/// An encoder of rows into packed records, which reuses its buffers for every row.
pub struct RowEncoder<'g> {
    line_encoder: LineEncoder,
    genome: &'g Genome,
    /// IDs of the read groups in the header.
    read_groups: HashSet<String>,
    line: Vec<u8>,
    record: Vec<u8>,
}

/// The columns of a batch of alignments, with checked types.
pub struct AlignmentRows<'b> {
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
    integers: [&'b Int32Array; INTEGER_TAG_COUNT],
    texts: [&'b StringArray; TEXT_TAG_COUNT],
    tag_layout: &'b StringArray,
    other_tags: &'b BinaryArray,
}

impl<'b> AlignmentRows<'b> {
    /// Returns the columns of a batch, after checking that all columns are present with the right order and types, and
    /// without nulls that are not allowed.
    ///
    /// # Errors
    /// [`RowError::Schema`] if a column is missing, has another type, or contains a null that is not allowed.
    pub fn from_batch(batch: &'b RecordBatch) -> Result<Self, RowError> {
        let (expected, found) = (alignment_columns::alignments_without_dictionaries(), batch.schema());
        let schema_error = |problem| Err(RowError::Schema { problem });
        for (at, field) in expected.fields().iter().enumerate() {
            let name = field.name();
            match found.fields().get(at) {
                Some(found_field) if found_field.name() != name => {
                    return schema_error(format!("column {} should be {name}, but is {}", at + 1, found_field.name()));
                }
                Some(found_field) if found_field.data_type() != field.data_type() => {
                    let (is, should) = (found_field.data_type(), field.data_type());
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
        let first_text = alignment_columns::FIRST_TAG_COLUMN + INTEGER_TAG_COUNT;
        Ok(Self {
            name: text(alignment_columns::NAME_COLUMN),
            flags: batch.column(alignment_columns::FLAGS_COLUMN).as_primitive::<UInt16Type>(),
            contig: text(alignment_columns::CONTIG_COLUMN),
            contig_id: integer(alignment_columns::CONTIG_ID_COLUMN),
            position: integer(alignment_columns::POSITION_COLUMN),
            mapping_quality: batch.column(alignment_columns::MAPPING_QUALITY_COLUMN).as_primitive::<UInt8Type>(),
            cigar: text(alignment_columns::CIGAR_COLUMN),
            mate_contig: text(alignment_columns::MATE_CONTIG_COLUMN),
            mate_position: integer(alignment_columns::MATE_POSITION_COLUMN),
            template_length: integer(alignment_columns::TEMPLATE_LENGTH_COLUMN),
            bases: text(alignment_columns::BASES_COLUMN),
            qualities: batch.column(alignment_columns::QUALITIES_COLUMN).as_binary(),
            read_group: text(alignment_columns::READ_GROUP_COLUMN),
            integers: std::array::from_fn(|at| integer(alignment_columns::FIRST_TAG_COLUMN + at)),
            texts: std::array::from_fn(|at| text(first_text + at)),
            tag_layout: text(alignment_columns::TAG_LAYOUT_COLUMN),
            other_tags: batch.column(alignment_columns::OTHER_TAGS_COLUMN).as_binary(),
        })
    }

    /// Returns the text of a row of a column; `None` for null.
    fn text_value(column: &'b StringArray, row: usize) -> Option<&'b str> {
        column.is_valid(row).then(|| column.value(row))
    }
}

impl<'g> RowEncoder<'g> {
    /// Creates an encoder for the records of a file whose header has these contigs and read group IDs.
    pub fn new<'r>(genome: &'g Genome, read_groups: impl IntoIterator<Item = &'r str>) -> Self {
        let read_groups = read_groups.into_iter().map(str::to_owned).collect();
        Self { line_encoder: LineEncoder::new(genome), genome, read_groups, line: Vec::new(), record: Vec::new() }
    }

    /// Converts a row into a packed record.
    ///
    /// # Errors
    /// [`RowError::Row`] if the values of the row contradict each other or the header.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use godwit_formats::sam::{Header, LineEncoder};
    /// # use godwit_model::RawRecord;
    /// use std::fs::File;
    ///
    /// use godwit_columnar::{AlignmentBatchBuilder, AlignmentLayout, AlignmentParquetWriter};
    /// use godwit_columnar::{AlignmentRows, ParquetFiles, RowEncoder};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("a.parquet");
    /// # let header = Header::parse(b"@SQ\tSN:chr1\tLN:1000\n")?;
    /// # let mut bytes = Vec::new();
    /// # let line = b"r1\t16\tchr1\t7\t60\t3M1S\t*\t0\t0\tACGT\tIIII\tNM:i:1";
    /// # LineEncoder::new(&header.genome()?).encode(line, &mut bytes)?;
    /// # let record = RawRecord::from_bytes(&bytes, 1)?;
    /// # let layout = AlignmentLayout::new(&header)?;
    /// let mut builder = AlignmentBatchBuilder::new(&layout);
    /// builder.push(record, record.flag());
    /// let mut writer = AlignmentParquetWriter::new(&layout, File::create(&path)?)?;
    /// writer.write(&builder.take_batch()?)?;
    /// writer.finish()?;
    ///
    /// // Contigs are plain text in batches from Parquet.
    /// let batch = ParquetFiles::open(&[path])?.batches(0..1, None).next().unwrap()?;
    /// let genome = header.genome()?;
    /// let mut encoder = RowEncoder::new(&genome, []);
    /// assert_eq!(encoder.encode(&AlignmentRows::from_batch(&batch)?, 0)?.bytes(), record.bytes());
    /// # Ok(())
    /// # }
    /// ```
    pub fn encode(&mut self, rows: &AlignmentRows, row: usize) -> Result<RawRecord<'_>, RowError> {
        let row_error = |problem| RowError::Row { row, problem };
        self.format_line(rows, row).map_err(row_error)?;
        self.record.clear();
        self.line_encoder
            .encode(&self.line, &mut self.record)
            .map_err(|error: SamError| row_error(error.to_string()))?;
        self.set_qualities(rows, row).map_err(row_error)?;
        let flag = RawRecord::from_trusted_bytes(&self.record).flag();
        if flag != rows.flags.value(row) {
            let problem = "it has no contig, position or cigar, so flags must contain 4 (unmapped)";
            return Err(row_error(problem.to_owned()));
        }
        self.append_tags(rows, row).map_err(row_error)?;
        Ok(RawRecord::from_trusted_bytes(&self.record))
    }

    /// Writes the mandatory fields of a row, except the qualities, as a SAM line. The line then passes the same checks
    /// as the line of any other record.
    fn format_line(&mut self, rows: &AlignmentRows, row: usize) -> Result<(), String> {
        let line = &mut self.line;
        line.clear();
        append_field(line, "name", AlignmentRows::text_value(rows.name, row))?;
        append_decimal(u32::from(rows.flags.value(row)), line);
        line.push(b'\t');
        let contig = self.genome.contigs().get(contig_index(rows, row)?);
        let name = contig.map(|contig| contig.name.as_str());
        if rows.contig_id.is_valid(row) && contig.is_none() {
            return Err(format!("contig_id is {}, which the header does not have", rows.contig_id.value(row)));
        }
        if AlignmentRows::text_value(rows.contig, row) != name {
            let (contig_name, id) =
                (AlignmentRows::text_value(rows.contig, row).unwrap_or("null"), name.unwrap_or("null"));
            return Err(format!("contig is {contig_name}, but contig_id is {id}; change both"));
        }
        append_field(line, "contig", Some(name.unwrap_or("*")))?;
        let position = rows.position.value(row);
        if contig.is_some_and(|contig| position < 0 || position.unsigned_abs() >= contig.length) {
            return Err(format!("position is {position}, outside contig {}", name.unwrap_or("*")));
        }
        append_position(line, "position", position)?;
        append_decimal(u32::from(rows.mapping_quality.value(row)), line);
        line.push(b'\t');
        append_field(line, "cigar", Some(text_or_star(AlignmentRows::text_value(rows.cigar, row))))?;
        append_field(line, "mate_contig", Some(AlignmentRows::text_value(rows.mate_contig, row).unwrap_or("*")))?;
        append_position(line, "mate_position", rows.mate_position.value(row))?;
        line.extend_from_slice(rows.template_length.value(row).to_string().as_bytes());
        line.push(b'\t');
        append_field(line, "bases", Some(text_or_star(AlignmentRows::text_value(rows.bases, row))))?;
        line.push(b'*');
        Ok(())
    }

    /// Writes the qualities into the packed record, which was encoded without qualities.
    fn set_qualities(&mut self, rows: &AlignmentRows, row: usize) -> Result<(), String> {
        if rows.qualities.is_null(row) {
            return Ok(());
        }
        let qualities = rows.qualities.value(row);
        let record = RawRecord::from_trusted_bytes(&self.record);
        let qualities_slot = record.qualities();
        if qualities.len() != qualities_slot.len() {
            return Err(format!("it has {} bases but {} qualities", qualities_slot.len(), qualities.len()));
        }
        if let Some(quality) = qualities.iter().find(|quality| **quality > MAX_QUALITY) {
            return Err(format!("a quality is {quality}; the greatest is {MAX_QUALITY}"));
        }
        let end = self.record.len() - record.tag_bytes().len();
        self.record[end - qualities.len()..end].copy_from_slice(qualities);
        Ok(())
    }

    /// Appends the tags to the packed record: first the tags that `tag_layout` names, in its order, then all other
    /// tags. A tag that `tag_layout` names is dropped if its column is null and `other_tags` does not contain it. A
    /// CIGAR stored as a tag remains the last tag.
    fn append_tags(&mut self, rows: &AlignmentRows, row: usize) -> Result<(), String> {
        let tags_bytes = RawRecord::from_trusted_bytes(&self.record).tag_bytes().len();
        let long_cigar = self.record.split_off(self.record.len() - tags_bytes);
        let layout = rows.tag_layout.value(row).as_bytes();
        let others = if rows.other_tags.is_null(row) { &[][..] } else { rows.other_tags.value(row) };
        let mut left: Vec<&[u8]> = iter_packed_tags(others).map(|tag| &others[tag.start..tag.end]).collect();
        if left.iter().map(|tag| tag.len()).sum::<usize>() != others.len() {
            return Err("other_tags are not tags in BAM encoding".to_owned());
        }
        let (entries, rest) = layout.as_chunks::<3>();
        if !rest.is_empty() {
            return Err("tag_layout is not three characters for each tag".to_owned());
        }
        let mut seen = 0u32;
        for [a, b, kind] in entries.iter().copied() {
            let column = tag_column_index([a, b], kind).filter(|column| seen >> column & 1 == 0);
            let has_value = column.is_some_and(|column| {
                seen |= 1 << column;
                rows.has_tag(column, row)
            });
            if let Some(column) = column.filter(|_| has_value) {
                self.append_tag_column(rows, row, column, kind)?;
            } else if let Some(at) = left.iter().position(|tag| tag.starts_with(&[a, b, kind])) {
                self.record.extend_from_slice(left.remove(at));
            }
        }
        for column in (0..=alignment_columns::TAG_COLUMNS.len()).filter(|column| seen >> column & 1 == 0) {
            if rows.has_tag(column, row) {
                self.append_tag_column(rows, row, column, b'C')?;
            }
        }
        left.into_iter().for_each(|tag| self.record.extend_from_slice(tag));
        self.record.extend_from_slice(&long_cigar);
        Ok(())
    }

    /// Appends the tag of a tag column. An integer keeps the type `kind` if its value fits.
    fn append_tag_column(&mut self, rows: &AlignmentRows, row: usize, column: usize, kind: u8) -> Result<(), String> {
        let name = alignment_columns::TAG_COLUMNS.get(column).map_or(*b"RG", |column| column.tag);
        self.record.extend_from_slice(&name);
        if column < INTEGER_TAG_COUNT {
            append_integer_as(rows.integers[column].value(row), kind, &mut self.record);
            return Ok(());
        }
        let text = match rows.texts.get(column - INTEGER_TAG_COUNT) {
            Some(texts) => texts.value(row),
            None => rows.read_group.value(row),
        };
        if column == alignment_columns::TAG_COLUMNS.len() && !self.read_groups.contains(text) {
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

impl AlignmentRows<'_> {
    /// Returns whether a tag column has a value in a row. `column` is an index in [`alignment_columns::TAG_COLUMNS`];
    /// the index after the last means the read group.
    fn has_tag(&self, column: usize, row: usize) -> bool {
        match self.integers.get(column) {
            Some(integers) => integers.is_valid(row),
            None => self.texts.get(column - INTEGER_TAG_COUNT).unwrap_or(&self.read_group).is_valid(row),
        }
    }
}

/// Returns the index of the contig of a row; `usize::MAX` if the row has no contig.
fn contig_index(rows: &AlignmentRows, row: usize) -> Result<usize, String> {
    if rows.contig_id.is_null(row) {
        return Ok(usize::MAX);
    }
    let id = rows.contig_id.value(row);
    usize::try_from(id).map_err(|_| format!("contig_id is {id}; use null for no contig"))
}

/// Returns the text, or `*` if it is null or empty, as in SAM.
fn text_or_star(text: Option<&str>) -> &str {
    text.filter(|text| !text.is_empty()).unwrap_or("*")
}

/// Appends text and a tab to a line. Text with a character that would end the field is rejected, so that it cannot
/// change the other columns.
fn append_field(line: &mut Vec<u8>, column: &str, text: Option<&str>) -> Result<(), String> {
    let text = text.unwrap_or_default();
    if text.is_empty() || text.contains(['\t', '\n', '\r', '\0']) {
        return Err(format!("{column} is {text:?}, which SAM cannot print"));
    }
    line.extend_from_slice(text.as_bytes());
    line.push(b'\t');
    Ok(())
}

/// Appends a 0-based position (-1 for no position) as the 1-based number of SAM, and a tab.
fn append_position(line: &mut Vec<u8>, column: &str, position: i32) -> Result<(), String> {
    let pos_1based = u32::try_from(i64::from(position) + 1);
    append_decimal(pos_1based.map_err(|_| format!("{column} is {position}; use -1 for no position"))?, line);
    line.push(b'\t');
    Ok(())
}

/// Appends the type and value of an integer tag: in the type `kind` if the value fits, otherwise in the type that its
/// SAM text would get.
fn append_integer_as(value: i32, kind: u8, out: &mut Vec<u8>) {
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
        append_integer_value(value, out);
    }
}
