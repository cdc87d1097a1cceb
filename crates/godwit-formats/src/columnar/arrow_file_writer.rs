//! Arrow IPC files, which programs map into memory; each buffer is compressed separately.

use std::io::Write;

use arrow_array::RecordBatch;
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_schema::Schema;

use super::alignment_layout::AlignmentLayout;
use super::error::ColumnarError;

/// A writer of one Arrow file. Dropping it leaves a file that every reader rejects as incomplete.
pub struct ArrowFileWriter<W: Write> {
    writer: FileWriter<W>,
}

impl<W: Write> ArrowFileWriter<W> {
    /// Starts a file.
    ///
    /// # Errors
    /// [`ColumnarError::Arrow`].
    pub fn new(layout: &AlignmentLayout, out: W) -> Result<Self, ColumnarError> {
        Self::with_schema(&Schema::new_with_metadata(layout.schema.fields().clone(), layout.owned_metadata()), out)
    }

    /// Starts a file of any columns.
    ///
    /// # Errors
    /// [`ColumnarError::Arrow`].
    pub fn with_schema(schema: &Schema, out: W) -> Result<Self, ColumnarError> {
        let options = IpcWriteOptions::default().try_with_compression(Some(CompressionType::ZSTD));
        let options = options.map_err(ColumnarError::Arrow)?;
        let writer = FileWriter::try_new_with_options(out, schema, options).map_err(ColumnarError::Arrow)?;
        Ok(Self { writer })
    }

    /// Appends a batch.
    ///
    /// # Errors
    /// [`ColumnarError::Arrow`].
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), ColumnarError> {
        self.writer.write(batch).map_err(ColumnarError::Arrow)
    }

    /// Ends the file and returns the inner writer.
    ///
    /// # Errors
    /// [`ColumnarError::Arrow`].
    pub fn finish(mut self) -> Result<W, ColumnarError> {
        self.writer.finish().and_then(|()| self.writer.into_inner()).map_err(ColumnarError::Arrow)
    }
}
