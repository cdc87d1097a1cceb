//! Tables of any columns as Parquet files.

use std::io::Write;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use super::error::ColumnarError;

/// Bytes of a row group in the making, at which it is ended: what a table takes of memory while it is written.
const ROW_GROUP_BYTES: usize = 64 << 20;
/// Rows of a batch that are taken in one go, so that a large batch is seen to fill a row group before it has filled ten.
const ROWS_AT_A_TIME: usize = 64 << 10;

/// How the pages of a table are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// As they are: for files in memory.
    Plain,
    /// Dictionaries, and zstd at its quickest level.
    Zstd,
}

/// One Parquet file of a table in the making. Dropping it leaves a file that no reader takes for whole.
pub struct ParquetTable<W: Write + Send> {
    writer: ArrowWriter<W>,
}

impl<W: Write + Send> ParquetTable<W> {
    /// Starts a file. Types that Parquet does not have are kept as Arrow's, beside it.
    ///
    /// # Errors
    /// [`ColumnarError::Parquet`] where a column cannot be kept at all, such as a union.
    pub fn new(schema: SchemaRef, packing: Packing, out: W) -> Result<Self, ColumnarError> {
        let properties = WriterProperties::builder().set_created_by("godwit".to_owned());
        let properties = match packing {
            Packing::Plain => properties.set_compression(Compression::UNCOMPRESSED).set_dictionary_enabled(false),
            Packing::Zstd => properties.set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?)),
        };
        let options = ArrowWriterOptions::new().with_properties(properties.build());
        Ok(Self { writer: ArrowWriter::try_new_with_options(out, schema, options)? })
    }

    /// Appends a batch.
    ///
    /// # Errors
    /// [`ColumnarError::Parquet`].
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), ColumnarError> {
        for start in (0..batch.num_rows()).step_by(ROWS_AT_A_TIME) {
            self.writer.write(&batch.slice(start, ROWS_AT_A_TIME.min(batch.num_rows() - start)))?;
            if self.writer.in_progress_size() >= ROW_GROUP_BYTES {
                self.writer.flush()?;
            }
        }
        Ok(())
    }

    /// Ends the file and returns what it was written to.
    ///
    /// # Errors
    /// [`ColumnarError::Parquet`].
    pub fn finish(self) -> Result<W, ColumnarError> {
        Ok(self.writer.into_inner()?)
    }
}
