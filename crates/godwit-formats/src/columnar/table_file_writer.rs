//! Writers of one table as a Parquet or Arrow file.

use std::io::Write;
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::arrow_file_writer::ArrowFileWriter;
use super::error::ColumnarError;
use super::table_parquet_writer::{PageCompression, TableParquetWriter};

/// A file format for tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableFormat {
    /// Parquet.
    Parquet,
    /// Arrow IPC file.
    Arrow,
}

impl TableFormat {
    /// Returns the format by the suffix of a path: `.parquet` or `.arrow`.
    pub fn from_path(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "parquet" => Some(Self::Parquet),
            "arrow" => Some(Self::Arrow),
            _ => None,
        }
    }
}

/// A writer of one file. Dropping it leaves a file that every reader rejects as incomplete.
pub enum TableFileWriter<W: Write + Send> {
    /// Parquet.
    Parquet(Box<TableParquetWriter<W>>),
    /// Arrow IPC file.
    Arrow(Box<ArrowFileWriter<W>>),
}

impl<W: Write + Send> TableFileWriter<W> {
    /// Starts a file of these columns.
    ///
    /// # Errors
    /// [`ColumnarError`].
    pub fn new(format: TableFormat, schema: SchemaRef, out: W) -> Result<Self, ColumnarError> {
        Ok(match format {
            TableFormat::Parquet => {
                Self::Parquet(Box::new(TableParquetWriter::new(schema, PageCompression::Zstd, out)?))
            }
            TableFormat::Arrow => Self::Arrow(Box::new(ArrowFileWriter::with_schema(&schema, out)?)),
        })
    }

    /// Appends a batch.
    ///
    /// # Errors
    /// [`ColumnarError`].
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), ColumnarError> {
        match self {
            Self::Parquet(file) => file.write(batch),
            Self::Arrow(file) => file.write(batch),
        }
    }

    /// Ends the file and returns the inner writer.
    ///
    /// # Errors
    /// [`ColumnarError`].
    pub fn finish(self) -> Result<W, ColumnarError> {
        match self {
            Self::Parquet(file) => file.finish(),
            Self::Arrow(file) => file.finish(),
        }
    }
}
