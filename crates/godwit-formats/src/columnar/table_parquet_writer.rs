//! Tables of any columns as Parquet files.

use std::io::Write;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use super::error::ColumnarError;

/// Bytes at which a row group ends: the memory of a table while it is written.
const MAX_ROW_GROUP_BYTES: usize = 64 << 20;
/// Maximum rows written at once, so that a large batch cannot exceed the limit of a row group tenfold.
const MAX_SLICE_ROWS: usize = 64 << 10;

/// The compression of the pages of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageCompression {
    /// None: for files in memory.
    Uncompressed,
    /// Dictionaries, and zstd at its fastest level.
    Zstd,
}

/// A writer of a table as one Parquet file. Dropping it leaves a file that every reader rejects as incomplete.
pub struct TableParquetWriter<W: Write + Send> {
    writer: ArrowWriter<W>,
}

impl<W: Write + Send> TableParquetWriter<W> {
    /// Starts a file. The metadata keeps the Arrow types that Parquet lacks.
    ///
    /// # Errors
    /// [`ColumnarError::Parquet`] where a column cannot be stored at all, such as a union.
    pub fn new(schema: SchemaRef, compression: PageCompression, out: W) -> Result<Self, ColumnarError> {
        let properties = WriterProperties::builder().set_created_by("godwit".to_owned());
        let properties = match compression {
            PageCompression::Uncompressed => {
                properties.set_compression(Compression::UNCOMPRESSED).set_dictionary_enabled(false)
            }
            PageCompression::Zstd => properties.set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?)),
        };
        let options = ArrowWriterOptions::new().with_properties(properties.build());
        Ok(Self { writer: ArrowWriter::try_new_with_options(out, schema, options)? })
    }

    /// Appends a batch.
    ///
    /// # Errors
    /// [`ColumnarError::Parquet`].
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), ColumnarError> {
        for start in (0..batch.num_rows()).step_by(MAX_SLICE_ROWS) {
            self.writer.write(&batch.slice(start, MAX_SLICE_ROWS.min(batch.num_rows() - start)))?;
            if self.writer.in_progress_size() >= MAX_ROW_GROUP_BYTES {
                self.writer.flush()?;
            }
        }
        Ok(())
    }

    /// Ends the file and returns the inner writer.
    ///
    /// # Errors
    /// [`ColumnarError::Parquet`].
    pub fn finish(self) -> Result<W, ColumnarError> {
        Ok(self.writer.into_inner()?)
    }
}
