//! Rows as people and programs read them.

use std::io::Write;

use datafusion::arrow::array::{Array, RecordBatch};
use datafusion::arrow::csv::writer::{Writer as CsvWriter, WriterBuilder};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::arrow::json::LineDelimitedWriter;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::parquet::arrow::ArrowWriter;

use crate::error::QueryError;

/// Most rows that a table on a terminal is made of: all of it is held, to align it.
const MAX_TABLE_ROWS: usize = 100_000;

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowFormat {
    /// Aligned, for people.
    Table,
    /// Comma-separated values (RFC 4180), with a header.
    Csv,
    /// Tab-separated values, with a header.
    Tsv,
    /// An object in each line.
    Json,
    /// An Arrow IPC stream.
    Arrow,
    /// A Parquet file.
    Parquet,
}

/// Writes rows.
pub struct Printer<W: Write + Send> {
    sink: Sink<W>,
}

enum Sink<W: Write + Send> {
    Table { batches: Vec<RecordBatch>, schema: SchemaRef, rows: usize, out: W },
    Separated(Box<CsvWriter<W>>),
    Json(LineDelimitedWriter<W>),
    Arrow(StreamWriter<W>),
    Parquet(Box<ArrowWriter<W>>),
}

fn failed(error: impl std::error::Error) -> QueryError {
    QueryError::Output { problem: error.to_string() }
}

impl<W: Write + Send> Printer<W> {
    /// Starts.
    ///
    /// # Errors
    /// [`QueryError::Output`].
    pub fn new(format: RowFormat, schema: &SchemaRef, out: W) -> Result<Self, QueryError> {
        let separated = |delimiter, out| {
            let writer = WriterBuilder::new().with_header(true).with_delimiter(delimiter).build(out);
            Sink::Separated(Box::new(writer))
        };
        let sink = match format {
            RowFormat::Table => Sink::Table { batches: Vec::new(), schema: schema.clone(), rows: 0, out },
            RowFormat::Csv => separated(b',', out),
            RowFormat::Tsv => separated(b'\t', out),
            RowFormat::Json => Sink::Json(LineDelimitedWriter::new(out)),
            RowFormat::Arrow => Sink::Arrow(StreamWriter::try_new(out, schema).map_err(failed)?),
            RowFormat::Parquet => {
                Sink::Parquet(Box::new(ArrowWriter::try_new(out, schema.clone(), None).map_err(failed)?))
            }
        };
        let mut printer = Self { sink };
        // A table without rows has its header all the same.
        if let Sink::Separated(writer) = &mut printer.sink {
            writer.write(&as_text(&RecordBatch::new_empty(schema.clone())).map_err(failed)?).map_err(failed)?;
        }
        Ok(printer)
    }

    /// Writes a batch.
    ///
    /// # Errors
    /// [`QueryError::Output`].
    pub fn write(&mut self, batch: RecordBatch) -> Result<(), QueryError> {
        match &mut self.sink {
            Sink::Table { batches, rows, .. } => {
                *rows += batch.num_rows();
                if *rows > MAX_TABLE_ROWS {
                    let problem = format!("a table has at most {MAX_TABLE_ROWS} rows; add LIMIT, or take --format csv");
                    return Err(QueryError::Output { problem });
                }
                batches.push(batch);
                Ok(())
            }
            Sink::Separated(writer) => as_text(&batch).and_then(|batch| writer.write(&batch)).map_err(failed),
            Sink::Json(writer) => writer.write(&batch).map_err(failed),
            Sink::Arrow(writer) => writer.write(&batch).map_err(failed),
            Sink::Parquet(writer) => writer.write(&batch).map_err(failed),
        }
    }

    /// Ends, and gives back what was written to.
    ///
    /// # Errors
    /// [`QueryError::Output`].
    pub fn finish(self) -> Result<W, QueryError> {
        match self.sink {
            Sink::Table { mut batches, schema, rows, mut out } => {
                if batches.is_empty() {
                    batches.push(RecordBatch::new_empty(schema));
                }
                let text = pretty_format_batches(&batches).map_err(failed)?;
                let noun = if rows == 1 { "row" } else { "rows" };
                writeln!(out, "{text}\n{rows} {noun}").map_err(failed)?;
                Ok(out)
            }
            Sink::Separated(writer) => Ok(writer.into_inner()),
            Sink::Json(mut writer) => {
                writer.finish().map_err(failed)?;
                Ok(writer.into_inner())
            }
            Sink::Arrow(writer) => writer.into_inner().map_err(failed),
            Sink::Parquet(writer) => writer.into_inner().map_err(failed),
        }
    }
}

/// Columns of lists and their like, which have no place in separated values, as text.
fn as_text(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    use datafusion::arrow::array::StringArray;
    use datafusion::arrow::datatypes::{Field, Schema};
    use std::sync::Arc;

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
    let rows = datafusion::arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &rows)
}
