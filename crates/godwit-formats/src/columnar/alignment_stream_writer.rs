//! A table of records as one uncompressed Arrow IPC stream, which another process maps into its memory to read the columns
//! in place.

use std::io::{self, Write};

use arrow_buffer::Buffer;
use arrow_ipc::writer::StreamEncoder;
use arrow_schema::Schema;
use godwit_model::RawRecord;

use super::alignment_layout::AlignmentLayout;
use super::batch_builder::AlignmentBatchBuilder;
use super::error::ColumnarError;

/// A writer of one stream. Buffers of columns go to `W` without a copy.
pub struct AlignmentStreamWriter<'l, W> {
    builder: AlignmentBatchBuilder<&'l AlignmentLayout>,
    encoder: StreamEncoder,
    out: W,
    row_count: u64,
}

impl<'l, W: Write> AlignmentStreamWriter<'l, W> {
    /// Starts a stream of some columns, by their 0-based index in the schema of the layout, or of all. Its schema has the
    /// same metadata as the other columnar files of godwit.
    ///
    /// # Errors
    /// [`ColumnarError::Arrow`].
    pub fn new(layout: &'l AlignmentLayout, projection: Option<&[usize]>, out: W) -> Result<Self, ColumnarError> {
        let builder = match projection {
            Some(wanted) => AlignmentBatchBuilder::with_projection(layout, wanted),
            None => AlignmentBatchBuilder::new(layout),
        };
        let schema = Schema::new_with_metadata(builder.schema().fields().clone(), layout.owned_metadata());
        let encoder = StreamEncoder::try_new(&schema).map_err(ColumnarError::Arrow)?;
        Ok(Self { builder, encoder, out, row_count: 0 })
    }

    /// Appends a record whose FLAG is `flag`.
    ///
    /// # Errors
    /// Errors of `W`; [`ColumnarError`] inside an [`io::Error`].
    #[inline]
    pub fn push(&mut self, record: RawRecord, flag: u16) -> io::Result<()> {
        self.builder.push(record, flag);
        self.row_count += 1;
        if self.builder.is_full() { self.write_batch() } else { Ok(()) }
    }

    fn write_batch(&mut self) -> io::Result<()> {
        let batch = self.builder.take_batch().map_err(io::Error::other)?;
        let buffers = self.encoder.encode(&batch).map_err(arrow_io_error)?;
        write_buffers(&mut self.out, &buffers)?;
        drop(buffers);
        self.builder.recycle(batch);
        Ok(())
    }

    /// Ends the stream. Returns the inner writer and the number of rows.
    ///
    /// # Errors
    /// As [`AlignmentStreamWriter::push`].
    pub fn finish(mut self) -> io::Result<(W, u64)> {
        if self.builder.row_count() > 0 {
            self.write_batch()?;
        }
        let buffers = self.encoder.finish().map_err(arrow_io_error)?;
        write_buffers(&mut self.out, &buffers)?;
        self.out.flush()?;
        Ok((self.out, self.row_count))
    }
}

fn arrow_io_error(error: arrow_schema::ArrowError) -> io::Error {
    io::Error::other(ColumnarError::Arrow(error))
}

fn write_buffers(out: &mut impl Write, buffers: &[Buffer]) -> io::Result<()> {
    buffers.iter().try_for_each(|buffer| out.write_all(buffer))
}
