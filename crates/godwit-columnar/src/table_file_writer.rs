//! A writer of one table as a Parquet file or an Arrow IPC file.

use std::io::Write;
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::arrow_file_writer::ArrowFileWriter;
use super::error::ColumnarError;
use super::table_parquet_writer::{PageCompression, TableParquetWriter};

/// A file format of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableFormat {
    /// The Parquet format.
    Parquet,
    /// The Arrow IPC file format.
    Arrow,
}

impl TableFormat {
    /// Returns the format that the suffix of a path means: `.parquet` or `.arrow`.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::path::Path;
    ///
    /// use godwit_columnar::TableFormat;
    ///
    /// assert_eq!(TableFormat::from_path(Path::new("calls.parquet")), Some(TableFormat::Parquet));
    /// assert_eq!(TableFormat::from_path(Path::new("calls.csv")), None);
    /// ```
    pub fn from_path(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "parquet" => Some(Self::Parquet),
            "arrow" => Some(Self::Arrow),
            _ => None,
        }
    }
}

/// A writer of one table file. If the writer is dropped before [`TableFileWriter::finish`], every reader rejects the
/// file as incomplete.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::fs::File;
/// use std::sync::Arc;
///
/// use arrow_array::{ArrayRef, RecordBatch, StringArray};
/// use godwit_columnar::{ParquetFiles, TableFileWriter, TableFormat};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("samples.parquet");
/// let samples: ArrayRef = Arc::new(StringArray::from(vec!["NA12878", "NA12891"]));
/// let batch = RecordBatch::try_from_iter([("sample", samples)])?;
/// let mut writer = TableFileWriter::new(TableFormat::Parquet, batch.schema(), File::create(&path)?)?;
/// writer.write(&batch)?;
/// writer.finish()?;
/// assert_eq!(ParquetFiles::open(&[path])?.row_count(), 2);
/// # Ok(())
/// # }
/// ```
pub enum TableFileWriter<W: Write + Send> {
    /// A writer of a Parquet file.
    Parquet(Box<TableParquetWriter<W>>),
    /// A writer of an Arrow IPC file.
    Arrow(Box<ArrowFileWriter<W>>),
}

impl<W: Write + Send> TableFileWriter<W> {
    /// Creates a writer and starts a file with the columns of this schema.
    ///
    /// # Errors
    /// [`ColumnarError`] if the Parquet or Arrow writer fails.
    pub fn new(format: TableFormat, schema: SchemaRef, out: W) -> Result<Self, ColumnarError> {
        Ok(match format {
            TableFormat::Parquet => {
                Self::Parquet(Box::new(TableParquetWriter::new(schema, PageCompression::Zstd, out)?))
            }
            TableFormat::Arrow => Self::Arrow(Box::new(ArrowFileWriter::with_schema(&schema, out)?)),
        })
    }

    /// Writes a record batch.
    ///
    /// # Errors
    /// [`ColumnarError`] if the Parquet or Arrow writer fails.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), ColumnarError> {
        match self {
            Self::Parquet(file) => file.write(batch),
            Self::Arrow(file) => file.write(batch),
        }
    }

    /// Completes the file and returns the inner writer.
    ///
    /// # Errors
    /// [`ColumnarError`] if the Parquet or Arrow writer fails.
    pub fn finish(self) -> Result<W, ColumnarError> {
        match self {
            Self::Parquet(file) => file.finish(),
            Self::Arrow(file) => file.finish(),
        }
    }
}
