//! Writes rows in text formats (table, CSV, TSV, JSON) or binary formats (Arrow, Parquet).

use std::io::Write;

use arrow_array::RecordBatch;
use arrow_cast::pretty::pretty_format_batches;
use arrow_schema::SchemaRef;
use godwit_columnar::{ColumnarError, PageCompression, TableParquetWriter};
use godwit_flight::{RowStreamFormat, RowStreamWriter};

use crate::error::StatementError;

/// Maximum number of rows in the format [`RowFormat::Table`], which keeps all rows in memory to align the columns.
const MAX_TABLE_ROWS: usize = 100_000;

/// The format in which rows are written.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # use arrow_array::{ArrayRef, Int32Array, RecordBatch, StringArray};
/// use godwit_query::{RowFormat, RowWriter};
///
/// # let contigs: ArrayRef = Arc::new(StringArray::from(vec!["chr20"]));
/// # let positions: ArrayRef = Arc::new(Int32Array::from(vec![7]));
/// # let batch = RecordBatch::try_from_iter([("contig", contigs), ("position", positions)])?;
/// for (format, expected) in [
///     (RowFormat::Csv, "contig,position\nchr20,7\n"),
///     (RowFormat::Tsv, "contig\tposition\nchr20\t7\n"),
///     (RowFormat::Json, "{\"contig\":\"chr20\",\"position\":7}\n"),
/// ] {
///     let mut writer = RowWriter::new(format, &batch.schema(), Vec::new())?;
///     writer.write(batch.clone())?;
///     assert_eq!(String::from_utf8(writer.finish()?)?, expected);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowFormat {
    /// A text table with aligned columns.
    Table,
    /// Comma-separated values (RFC 4180), with a header.
    Csv,
    /// Tab-separated values, with a header.
    Tsv,
    /// JSON Lines, with one object per line.
    Json,
    /// An Arrow IPC stream.
    Arrow,
    /// A Parquet file.
    Parquet,
}

/// A writer of rows in a [`RowFormat`].
pub struct RowWriter<W: Write + Send> {
    writer: FormatWriter<W>,
}

enum FormatWriter<W: Write + Send> {
    Table { batches: Vec<RecordBatch>, schema: SchemaRef, rows: usize, out: W },
    Stream(Box<RowStreamWriter<W>>),
    Parquet(Box<TableParquetWriter<W>>),
}

fn parquet_error(error: ColumnarError) -> StatementError {
    let problem = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
    StatementError::Output { problem }
}

fn output_error(error: impl std::error::Error) -> StatementError {
    StatementError::Output { problem: error.to_string() }
}

impl<W: Write + Send> RowWriter<W> {
    /// Creates a writer of rows with this schema to `out`.
    ///
    /// # Errors
    /// [`StatementError::Output`] if the header of the format cannot be written.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    ///
    /// use arrow_schema::{DataType, Field, Schema};
    /// use godwit_query::{RowFormat, RowWriter};
    ///
    /// let field = |name: &str, data_type| Field::new(name, data_type, false);
    /// let schema = Arc::new(Schema::new(vec![field("contig", DataType::Utf8), field("position", DataType::Int32)]));
    /// // Output without rows has a header.
    /// let writer = RowWriter::new(RowFormat::Csv, &schema, Vec::new())?;
    /// assert_eq!(writer.finish()?, b"contig,position\n");
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(format: RowFormat, schema: &SchemaRef, out: W) -> Result<Self, StatementError> {
        let stream = |format, out| {
            let writer = RowStreamWriter::new(format, schema, out).map_err(output_error)?;
            Ok::<_, StatementError>(FormatWriter::Stream(Box::new(writer)))
        };
        let writer = match format {
            RowFormat::Table => FormatWriter::Table { batches: Vec::new(), schema: schema.clone(), rows: 0, out },
            RowFormat::Csv => stream(RowStreamFormat::Csv, out)?,
            RowFormat::Tsv => stream(RowStreamFormat::Tsv, out)?,
            RowFormat::Json => stream(RowStreamFormat::Json, out)?,
            RowFormat::Arrow => stream(RowStreamFormat::Arrow, out)?,
            RowFormat::Parquet => {
                let writer = TableParquetWriter::new(schema.clone(), PageCompression::Dictionaries, out);
                FormatWriter::Parquet(Box::new(writer.map_err(parquet_error)?))
            }
        };
        Ok(Self { writer })
    }

    /// Writes a batch.
    ///
    /// # Errors
    /// [`StatementError::Output`] if writing fails, or if the format is [`RowFormat::Table`] and there are too many rows.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::sync::Arc;
    /// # use arrow_array::{ArrayRef, Int32Array, RecordBatch, StringArray};
    /// use godwit_query::{RowFormat, RowWriter};
    ///
    /// # let contigs: ArrayRef = Arc::new(StringArray::from(vec!["chr20"]));
    /// # let positions: ArrayRef = Arc::new(Int32Array::from(vec![7]));
    /// # let batch = RecordBatch::try_from_iter([("contig", contigs), ("position", positions)])?;
    /// let mut writer = RowWriter::new(RowFormat::Table, &batch.schema(), Vec::new())?;
    /// writer.write(batch.clone())?;
    /// writer.write(batch)?;
    /// let table = String::from_utf8(writer.finish()?)?;
    /// assert!(table.contains("| chr20  | 7        |"));
    /// assert!(table.ends_with("2 rows\n"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn write(&mut self, batch: RecordBatch) -> Result<(), StatementError> {
        match &mut self.writer {
            FormatWriter::Table { batches, rows, .. } => {
                *rows += batch.num_rows();
                if *rows > MAX_TABLE_ROWS {
                    let problem = format!("a table has at most {MAX_TABLE_ROWS} rows; add LIMIT, or use --format csv");
                    return Err(StatementError::Output { problem });
                }
                batches.push(batch);
                Ok(())
            }
            FormatWriter::Stream(writer) => writer.write(&batch).map_err(output_error),
            FormatWriter::Parquet(writer) => writer.write(&batch).map_err(parquet_error),
        }
    }

    /// Completes the output, and returns the underlying writer.
    ///
    /// # Errors
    /// [`StatementError::Output`] if writing fails.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::sync::Arc;
    /// # use arrow_array::{ArrayRef, Int32Array, RecordBatch, StringArray};
    /// use arrow_ipc::reader::StreamReader;
    /// use godwit_query::{RowFormat, RowWriter};
    ///
    /// # let contigs: ArrayRef = Arc::new(StringArray::from(vec!["chr20"]));
    /// # let positions: ArrayRef = Arc::new(Int32Array::from(vec![7]));
    /// # let batch = RecordBatch::try_from_iter([("contig", contigs), ("position", positions)])?;
    /// let mut writer = RowWriter::new(RowFormat::Arrow, &batch.schema(), Vec::new())?;
    /// writer.write(batch.clone())?;
    /// let stream = writer.finish()?;
    /// let batches = StreamReader::try_new(&stream[..], None)?.collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(batches, [batch]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn finish(self) -> Result<W, StatementError> {
        match self.writer {
            FormatWriter::Table { mut batches, schema, rows, mut out } => {
                if batches.is_empty() {
                    batches.push(RecordBatch::new_empty(schema));
                }
                let text = pretty_format_batches(&batches).map_err(output_error)?;
                let noun = if rows == 1 { "row" } else { "rows" };
                writeln!(out, "{text}\n{rows} {noun}").map_err(output_error)?;
                Ok(out)
            }
            FormatWriter::Stream(writer) => writer.finish().map_err(output_error),
            FormatWriter::Parquet(writer) => writer.finish().map_err(parquet_error),
        }
    }
}
