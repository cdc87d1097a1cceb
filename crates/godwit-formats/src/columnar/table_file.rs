//! One table as a file of either kind of columns.

use std::io::Write;
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::arrow_file::ArrowPart;
use super::error::ColumnarError;
use super::table_writer::{Packing, ParquetTable};

/// What columns are written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableFormat {
    /// Parquet.
    Parquet,
    /// Arrow IPC file.
    Arrow,
}

impl TableFormat {
    /// The format that a file's name ends in: `.parquet` or `.arrow`.
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "parquet" => Some(Self::Parquet),
            "arrow" => Some(Self::Arrow),
            _ => None,
        }
    }
}

/// A file in the making. Dropping it leaves a file that no reader takes for whole.
pub enum TableFile<W: Write + Send> {
    /// Parquet.
    Parquet(Box<ParquetTable<W>>),
    /// Arrow IPC file.
    Arrow(Box<ArrowPart<W>>),
}

impl<W: Write + Send> TableFile<W> {
    /// Starts a file of these columns.
    ///
    /// # Errors
    /// [`ColumnarError`].
    pub fn new(format: TableFormat, schema: SchemaRef, out: W) -> Result<Self, ColumnarError> {
        Ok(match format {
            TableFormat::Parquet => Self::Parquet(Box::new(ParquetTable::new(schema, Packing::Zstd, out)?)),
            TableFormat::Arrow => Self::Arrow(Box::new(ArrowPart::with_schema(&schema, out)?)),
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

    /// Ends the file and returns what it was written to.
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
