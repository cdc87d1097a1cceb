//! A writer of Arrow IPC files, which programs can map into memory. Each buffer is compressed separately.

use std::io::Write;

use arrow_array::RecordBatch;
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_schema::Schema;

use super::alignment_layout::AlignmentLayout;
use super::error::ColumnarError;

/// A writer of one Arrow IPC file. If the writer is dropped before [`ArrowFileWriter::finish`], every reader rejects
/// the file as incomplete.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use godwit_formats::sam::{Header, LineEncoder};
/// # use godwit_model::RawRecord;
/// use std::fs::File;
/// use std::sync::Arc;
///
/// use godwit_columnar::{AlignmentBatchBuilder, AlignmentLayout, ArrowFile, ArrowFileWriter};
/// use godwit_io::random_access::LocalFile;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("a.arrow");
/// # let header = Header::parse(b"@SQ\tSN:chr1\tLN:1000\n")?;
/// # let mut bytes = Vec::new();
/// # let line = b"r1\t16\tchr1\t7\t60\t3M1S\t*\t0\t0\tACGT\tIIII\tNM:i:1";
/// # LineEncoder::new(&header.genome()?).encode(line, &mut bytes)?;
/// # let record = RawRecord::from_bytes(&bytes, 1)?;
/// # let layout = AlignmentLayout::new(&header)?;
/// let mut builder = AlignmentBatchBuilder::new(&layout);
/// builder.push(record, record.flag());
/// let mut writer = ArrowFileWriter::new(&layout, File::create(&path)?)?;
/// writer.write(&builder.take_batch()?)?;
/// writer.finish()?;
///
/// let file = ArrowFile::open(Arc::new(LocalFile::open(&path)?))?;
/// assert_eq!(file.row_count(), Some(1));
/// assert_eq!(file.schema().metadata()["sam.header"], layout.header);
/// # Ok(())
/// # }
/// ```
pub struct ArrowFileWriter<W: Write> {
    writer: FileWriter<W>,
}

impl<W: Write> ArrowFileWriter<W> {
    /// Creates a writer and starts a file with the columns and the metadata of a layout.
    ///
    /// # Errors
    /// [`ColumnarError::Arrow`] if the Arrow writer fails.
    pub fn new(layout: &AlignmentLayout, out: W) -> Result<Self, ColumnarError> {
        Self::with_schema(&Schema::new_with_metadata(layout.schema.fields().clone(), layout.owned_metadata()), out)
    }

    /// Creates a writer and starts a file with the columns of any schema.
    ///
    /// # Errors
    /// [`ColumnarError::Arrow`] if the Arrow writer fails.
    pub fn with_schema(schema: &Schema, out: W) -> Result<Self, ColumnarError> {
        let options = IpcWriteOptions::default().try_with_compression(Some(CompressionType::ZSTD));
        let options = options.map_err(ColumnarError::Arrow)?;
        let writer = FileWriter::try_new_with_options(out, schema, options).map_err(ColumnarError::Arrow)?;
        Ok(Self { writer })
    }

    /// Writes a record batch.
    ///
    /// # Errors
    /// [`ColumnarError::Arrow`] if the Arrow writer fails.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), ColumnarError> {
        self.writer.write(batch).map_err(ColumnarError::Arrow)
    }

    /// Completes the file and returns the inner writer.
    ///
    /// # Errors
    /// [`ColumnarError::Arrow`] if the Arrow writer fails.
    pub fn finish(mut self) -> Result<W, ColumnarError> {
        self.writer.finish().and_then(|()| self.writer.into_inner()).map_err(ColumnarError::Arrow)
    }
}
