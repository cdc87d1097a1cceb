//! A writer of tables with any columns as Parquet files.

use std::io::Write;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use super::error::ColumnarError;

/// Number of bytes at which a row group ends. It limits the memory needed for writing a table.
const MAX_ROW_GROUP_BYTES: usize = 64 << 20;
/// Maximum rows written at once. Without this limit, a large batch could exceed the limit of a row group many times.
const MAX_SLICE_ROWS: usize = 64 << 10;

/// The compression of the pages of a Parquet file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageCompression {
    /// No compression and no dictionaries, for files in memory.
    Uncompressed,
    /// Dictionaries without compression.
    Dictionaries,
    /// Dictionaries, and zstd at its level 1.
    Zstd,
}

/// A writer of one table as a Parquet file. If the writer is dropped before [`TableParquetWriter::finish`], every
/// reader rejects the file as incomplete.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
///
/// use arrow_array::{ArrayRef, RecordBatch, StringArray};
/// use godwit_columnar::{PageCompression, TableParquetWriter};
///
/// let samples: ArrayRef = Arc::new(StringArray::from(vec!["NA12878", "NA12891"]));
/// let batch = RecordBatch::try_from_iter([("sample", samples)])?;
/// let mut writer = TableParquetWriter::new(batch.schema(), PageCompression::Uncompressed, Vec::new())?;
/// writer.write(&batch)?;
/// let bytes = writer.finish()?;
/// assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
/// # Ok(())
/// # }
/// ```
pub struct TableParquetWriter<W: Write + Send> {
    writer: ArrowWriter<W>,
}

impl<W: Write + Send> TableParquetWriter<W> {
    /// Creates a writer and starts the file. The metadata of the file contains the Arrow schema, including types that
    /// Parquet does not have.
    ///
    /// # Errors
    /// [`ColumnarError::Parquet`] if Parquet cannot store a column, such as a union.
    pub fn new(schema: SchemaRef, compression: PageCompression, out: W) -> Result<Self, ColumnarError> {
        let properties = WriterProperties::builder().set_created_by("godwit".to_owned());
        let properties = match compression {
            PageCompression::Uncompressed => {
                properties.set_compression(Compression::UNCOMPRESSED).set_dictionary_enabled(false)
            }
            PageCompression::Dictionaries => properties.set_compression(Compression::UNCOMPRESSED),
            PageCompression::Zstd => properties.set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?)),
        };
        let options = ArrowWriterOptions::new().with_properties(properties.build());
        Ok(Self { writer: ArrowWriter::try_new_with_options(out, schema, options)? })
    }

    /// Writes a record batch.
    ///
    /// # Errors
    /// [`ColumnarError::Parquet`] if the Parquet writer fails.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), ColumnarError> {
        for start in (0..batch.num_rows()).step_by(MAX_SLICE_ROWS) {
            self.writer.write(&batch.slice(start, MAX_SLICE_ROWS.min(batch.num_rows() - start)))?;
            if self.writer.in_progress_size() >= MAX_ROW_GROUP_BYTES {
                self.writer.flush()?;
            }
        }
        Ok(())
    }

    /// Completes the file and returns the inner writer.
    ///
    /// # Errors
    /// [`ColumnarError::Parquet`] if the Parquet writer fails.
    pub fn finish(self) -> Result<W, ColumnarError> {
        Ok(self.writer.into_inner()?)
    }
}
