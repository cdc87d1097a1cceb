//! Conversion of rows of variant columns back into lines of VCF text.
//!
//! Flows in: batches with the columns of a [`VariantLayout`], found by their names. Flows out: lines of VCF without a
//! line end, which pass the same checks as the lines of a file. The derived columns `contig_id`, `end_position`,
//! `genotype_alleles` and `genotype_phased` are not read. INFO and FORMAT keys are in the order of the header.

use std::fmt::Write as _;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int32Type};
use arrow_array::{Array, Float32Array, Int32Array, ListArray, RecordBatch, StringArray};
use arrow_schema::{DataType, FieldRef};
use godwit_model::schema::variant_columns::{DERIVED_COLUMNS, FieldDefinition, ValueType};

use super::field_builder::MISSING_VALUE;
use super::variant_layout::VariantLayout;

/// The columns of a batch of variants, with checked types.
#[derive(Debug)]
pub struct VariantRows<'b> {
    contig: &'b StringArray,
    position: &'b Int32Array,
    identifiers: &'b ListArray,
    reference: &'b StringArray,
    alternates: &'b ListArray,
    quality: &'b Float32Array,
    filters: &'b ListArray,
    info: Vec<&'b dyn Array>,
    other_info: &'b StringArray,
    /// A list with the values of the samples for each FORMAT field; GT is the first.
    formats: Vec<&'b ListArray>,
    other_formats: Option<&'b ListArray>,
}

/// An encoder of rows into lines of VCF, which reuses its buffer.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_formats::vcf::{
///     Header, Record, VariantBatchBuilder, VariantLayout, VariantRowEncoder, VariantRows,
/// };
///
/// let columns = "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO";
/// let header = Header::from_text(&format!("##fileformat=VCFv4.2\n{columns}\n"))?;
/// let layout = VariantLayout::new(&header)?;
/// let line = "chr20\t1000\trs1;rs2\tA\tC,G\t50.5\tPASS\tDP=7";
/// let mut builder = VariantBatchBuilder::new(&layout);
/// builder.push(&Record::from_line(line, &header)?)?;
/// let batch = builder.take_batch()?;
/// let mut encoder = VariantRowEncoder::new(&layout);
/// assert_eq!(encoder.encode(&VariantRows::from_batch(&layout, &batch)?, 0)?, line);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct VariantRowEncoder<'l> {
    layout: &'l VariantLayout,
    line: String,
}

impl<'b> VariantRows<'b> {
    /// Finds the columns of a batch by their names.
    ///
    /// # Errors
    /// A description of the problem if a column is missing, has another type, or contains a null where VCF has no missing
    /// value.
    pub fn from_batch(layout: &VariantLayout, batch: &'b RecordBatch) -> Result<Self, String> {
        let mut columns = Vec::new();
        for field in layout.schema.fields().iter().filter(|field| !DERIVED_COLUMNS.contains(&field.name().as_str())) {
            columns.push(find_column(batch, field)?);
        }
        let mut columns = columns.into_iter();
        let mut next = || columns.next().ok_or_else(|| "the layout has too few columns".to_owned());
        let contig = next()?.as_string();
        let position = next()?.as_primitive::<Int32Type>();
        let identifiers = next()?.as_list();
        let reference = next()?.as_string();
        let alternates = next()?.as_list();
        let quality = next()?.as_primitive::<Float32Type>();
        let filters = next()?.as_list();
        let info = layout.info.iter().map(|_| next()).collect::<Result<_, _>>()?;
        let other_info = next()?.as_string();
        let formats = layout.formats.iter().map(|_| Ok(next()?.as_list())).collect::<Result<_, String>>()?;
        let other_formats = if layout.sample_count > 0 { Some(next()?.as_list()) } else { None };
        Ok(Self {
            contig,
            position,
            identifiers,
            reference,
            alternates,
            quality,
            filters,
            info,
            other_info,
            formats,
            other_formats,
        })
    }
}

fn find_column<'b>(batch: &'b RecordBatch, field: &FieldRef) -> Result<&'b dyn Array, String> {
    let name = field.name();
    let column = batch.column_by_name(name).ok_or_else(|| format!("column {name} is missing"))?;
    if column.data_type() != field.data_type() {
        return Err(format!("column {name} is of type {}, but should be of {}", column.data_type(), field.data_type()));
    }
    if !field.is_nullable() && column.null_count() > 0 {
        return Err(format!("column {name} has nulls, which it must not have"));
    }
    Ok(column.as_ref())
}

impl<'l> VariantRowEncoder<'l> {
    /// Creates an encoder of rows with the columns of a layout.
    pub fn new(layout: &'l VariantLayout) -> Self {
        Self { layout, line: String::new() }
    }

    /// Converts a row to a line of VCF without a line end.
    ///
    /// # Errors
    /// A description of the problem, with the name of the column, if VCF cannot represent a value of the row.
    pub fn encode(&mut self, rows: &VariantRows, row: usize) -> Result<&str, String> {
        let Self { layout, line } = self;
        line.clear();
        line.push_str(rows.contig.value(row));
        end_field(line, 0, "contig")?;
        let pos_1based = i64::from(rows.position.value(row)) + 1;
        append_display(line, pos_1based);
        line.push('\t');
        append_list_field(line, rows.identifiers, row, ';', "identifiers")?;
        let start = line.len();
        line.push_str(rows.reference.value(row));
        end_field(line, start, "reference")?;
        append_list_field(line, rows.alternates, row, ',', "alternates")?;
        append_value(line, rows.quality, row);
        line.push('\t');
        append_list_field(line, rows.filters, row, ';', "filters")?;
        append_info(line, layout, rows, row)?;
        if let Some(others) = rows.other_formats {
            append_samples(line, layout, rows, others, row)?;
        }
        Ok(line.as_str())
    }
}

/// Ends a field of the line that begins at `start`: checks that its text is valid, and appends a tab.
fn end_field(line: &mut String, start: usize, column: &str) -> Result<(), String> {
    if line[start..].is_empty() {
        line.push_str(MISSING_VALUE);
    }
    check_text(&line[start..], column, &[])?;
    line.push('\t');
    Ok(())
}

/// Rejects text with a character that would end the line, the field, or a part of it.
fn check_text(text: &str, column: &str, separators: &[char]) -> Result<(), String> {
    match text.find(['\t', '\n', '\r']).or_else(|| text.find(separators)) {
        None => Ok(()),
        Some(at) => Err(format!(
            "column {column} has the character {:?}, which VCF reserves",
            text[at..].chars().next().unwrap_or_default()
        )),
    }
}

fn append_list_field(
    line: &mut String,
    lists: &ListArray,
    row: usize,
    separator: char,
    column: &str,
) -> Result<(), String> {
    let start = line.len();
    append_list(line, lists, row, separator);
    end_field(line, start, column)
}

/// Appends the values of a list; a missing value if the list is null or empty.
fn append_list(line: &mut String, lists: &ListArray, row: usize, separator: char) {
    let (start, end) = (lists.value_offsets()[row] as usize, lists.value_offsets()[row + 1] as usize);
    if lists.is_null(row) || start == end {
        return line.push_str(MISSING_VALUE);
    }
    for at in start..end {
        if at > start {
            line.push(separator);
        }
        append_value(line, lists.values().as_ref(), at);
    }
}

/// Appends a value of a column of numbers, texts or lists of these.
fn append_value(line: &mut String, values: &dyn Array, at: usize) {
    match values.data_type() {
        _ if values.is_null(at) => line.push_str(MISSING_VALUE),
        DataType::Int32 => append_display(line, values.as_primitive::<Int32Type>().value(at)),
        DataType::Float32 => append_display(line, values.as_primitive::<Float32Type>().value(at)),
        DataType::List(_) => append_list(line, values.as_list(), at, ','),
        _ => match values.as_string::<i32>().value(at) {
            "" => line.push_str(MISSING_VALUE),
            text => line.push_str(text),
        },
    }
}

fn append_display(line: &mut String, value: impl std::fmt::Display) {
    write!(line, "{value}").expect("memory takes what is written");
}

/// Appends the INFO field, without the tab that follows it.
fn append_info(line: &mut String, layout: &VariantLayout, rows: &VariantRows, row: usize) -> Result<(), String> {
    let first = line.len();
    for (field, column) in layout.info.iter().zip(&rows.info) {
        let is_absent = match field.value_type {
            ValueType::Flag => !column.as_boolean().value(row),
            _ => column.is_null(row),
        };
        if is_absent {
            continue;
        }
        if line.len() > first {
            line.push(';');
        }
        line.push_str(&field.id);
        if field.value_type != ValueType::Flag {
            line.push('=');
            let start = line.len();
            append_value(line, *column, row);
            check_text(&line[start..], &format!("info_{}", field.id), &[';'])?;
        }
    }
    if rows.other_info.is_valid(row) {
        if line.len() > first {
            line.push(';');
        }
        check_text(rows.other_info.value(row), "other_info", &[])?;
        line.push_str(rows.other_info.value(row));
    }
    if line.len() == first {
        line.push_str(MISSING_VALUE);
    }
    Ok(())
}

/// Appends FORMAT and the fields of all samples.
fn append_samples(
    line: &mut String,
    layout: &VariantLayout,
    rows: &VariantRows,
    others: &ListArray,
    row: usize,
) -> Result<(), String> {
    let fields: Vec<(&FieldDefinition, &ListArray)> =
        layout.formats.iter().zip(rows.formats.iter().copied()).filter(|(_, lists)| lists.is_valid(row)).collect();
    for (field, lists) in &fields {
        let values = lists.value_length(row) as usize;
        if values != layout.sample_count {
            let samples = layout.sample_count;
            return Err(format!("column format_{} has {values} values for {samples} samples", field.id));
        }
    }
    let others = other_values(others, row, layout.sample_count)?;
    let mut keys: Vec<&str> = fields.iter().map(|(field, _)| field.id.as_str()).collect();
    for (key, _) in others.iter().flatten() {
        if !keys.contains(key) {
            keys.push(key);
        }
    }
    line.push('\t');
    line.push_str(if keys.is_empty() { MISSING_VALUE } else { "" });
    line.push_str(&keys.join(":"));
    for (sample, others) in others.iter().enumerate() {
        line.push('\t');
        if keys.is_empty() {
            line.push_str(MISSING_VALUE);
        }
        for (at, key) in keys.iter().enumerate() {
            if at > 0 {
                line.push(':');
            }
            let column =
                fields.get(at).map(|(_, lists)| (lists.values(), lists.value_offsets()[row] as usize + sample));
            let mut other = others.iter().filter(|(found, _)| found == key).map(|(_, value)| *value);
            match (column.filter(|(values, at)| values.is_valid(*at)), other.next()) {
                (Some(_), Some(_)) => {
                    return Err(format!("other_formats and format_{key} both have a value of a sample"));
                }
                (Some((values, at)), None) => {
                    let start = line.len();
                    append_value(line, values.as_ref(), at);
                    check_text(&line[start..], &format!("format_{key}"), &[':'])?;
                }
                (None, Some(value)) => line.push_str(value),
                (None, None) => line.push_str(MISSING_VALUE),
            }
        }
    }
    Ok(())
}

/// Parses the values in `other_formats` of a row: keys and values for each sample.
fn other_values(lists: &ListArray, row: usize, samples: usize) -> Result<Vec<Vec<(&str, &str)>>, String> {
    let mut others = vec![Vec::new(); samples];
    if lists.is_null(row) {
        return Ok(others);
    }
    let values = lists.values().as_string::<i32>();
    let range = lists.value_offsets()[row] as usize..lists.value_offsets()[row + 1] as usize;
    if range.len() != samples {
        return Err(format!("column other_formats has {} values for {samples} samples", range.len()));
    }
    for (sample, at) in others.iter_mut().zip(range).filter(|(_, at)| values.is_valid(*at)) {
        let text = values.value(at);
        check_text(text, "other_formats", &[])?;
        for entry in text.split(':') {
            match entry.split_once('=').filter(|(key, _)| !key.is_empty()) {
                Some(pair) => sample.push(pair),
                None => return Err(format!("column other_formats has {entry:?}, which is not KEY=VALUE")),
            }
        }
    }
    Ok(others)
}
