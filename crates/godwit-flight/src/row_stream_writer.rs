//! Writes rows in formats that a client can read while they are written: CSV, TSV, JSON Lines, or an Arrow IPC stream.

use std::io::Write;
use std::sync::Arc;

use arrow_array::{Array as _, RecordBatch, RecordBatchOptions, StringArray};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_csv::writer::{Writer as CsvWriter, WriterBuilder};
use arrow_ipc::writer::StreamWriter;
use arrow_json::LineDelimitedWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};

/// A format in which rows are written one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowStreamFormat {
    /// Comma-separated values (RFC 4180), with a header.
    Csv,
    /// Tab-separated values, with a header.
    Tsv,
    /// JSON Lines, with one object per line. Null values are left out.
    Json,
    /// An Arrow IPC stream.
    Arrow,
}

/// A writer of rows in a [`RowStreamFormat`].
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
///
/// use arrow_array::{ArrayRef, Int32Array, RecordBatch};
/// use godwit_flight::{RowStreamFormat, RowStreamWriter};
///
/// let positions: ArrayRef = Arc::new(Int32Array::from(vec![100, 200]));
/// let batch = RecordBatch::try_from_iter([("position", positions)])?;
/// let mut writer = RowStreamWriter::new(RowStreamFormat::Csv, &batch.schema(), Vec::new())?;
/// writer.write(&batch)?;
/// assert_eq!(writer.finish()?, b"position\n100\n200\n");
/// # Ok(())
/// # }
/// ```
pub struct RowStreamWriter<W: Write> {
    writer: FormatWriter<W>,
}

enum FormatWriter<W: Write> {
    Separated(Box<CsvWriter<W>>),
    Json(LineDelimitedWriter<W>),
    Arrow(StreamWriter<W>),
}

impl<W: Write> RowStreamWriter<W> {
    /// Creates a writer of rows with this schema to `out`, and writes the header of the format, so that output without
    /// rows has a header too.
    ///
    /// # Errors
    /// [`ArrowError`] if the header cannot be written.
    pub fn new(format: RowStreamFormat, schema: &SchemaRef, out: W) -> Result<Self, ArrowError> {
        let separated = |delimiter, out| {
            let mut writer = WriterBuilder::new().with_header(true).with_delimiter(delimiter).build(out);
            writer.write(&nested_columns_as_text(&RecordBatch::new_empty(schema.clone()))?)?;
            Ok::<_, ArrowError>(FormatWriter::Separated(Box::new(writer)))
        };
        let writer = match format {
            RowStreamFormat::Csv => separated(b',', out)?,
            RowStreamFormat::Tsv => separated(b'\t', out)?,
            RowStreamFormat::Json => FormatWriter::Json(LineDelimitedWriter::new(out)),
            RowStreamFormat::Arrow => FormatWriter::Arrow(StreamWriter::try_new(out, schema)?),
        };
        Ok(Self { writer })
    }

    /// Writes a batch.
    ///
    /// # Errors
    /// [`ArrowError`] if writing fails, or the format cannot represent a value.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), ArrowError> {
        match &mut self.writer {
            FormatWriter::Separated(writer) => writer.write(&nested_columns_as_text(batch)?),
            FormatWriter::Json(writer) => writer.write(batch),
            FormatWriter::Arrow(writer) => writer.write(batch),
        }
    }

    /// Completes the output, and returns the underlying writer.
    ///
    /// # Errors
    /// [`ArrowError`] if writing fails.
    pub fn finish(self) -> Result<W, ArrowError> {
        match self.writer {
            FormatWriter::Separated(writer) => Ok(writer.into_inner()),
            FormatWriter::Json(mut writer) => {
                writer.finish()?;
                Ok(writer.into_inner())
            }
            FormatWriter::Arrow(writer) => writer.into_inner(),
        }
    }
}

/// Converts nested columns, such as lists, to text, because CSV and TSV cannot represent nested values.
fn nested_columns_as_text(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let options = FormatOptions::default().with_null("");
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        if !column.data_type().is_nested() {
            fields.push(field.clone());
            columns.push(column.clone());
            continue;
        }
        let formatter = ArrayFormatter::try_new(column, &options)?;
        let text = |row| (!column.is_null(row)).then(|| formatter.value(row).to_string());
        let values: StringArray = (0..column.len()).map(text).collect();
        fields.push(Arc::new(Field::new(field.name(), DataType::Utf8, true)));
        columns.push(Arc::new(values));
    }
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &rows)
}
