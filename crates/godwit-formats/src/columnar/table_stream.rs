//! A table of records as one Arrow IPC stream that is not compressed: another process maps it into its memory and reads the columns
//! where they lie.

use std::io::{self, Write};

use arrow_buffer::Buffer;
use arrow_ipc::writer::StreamEncoder;
use arrow_schema::Schema;
use godwit_model::RawRecord;

use super::builder::Columns;
use super::error::ColumnarError;
use super::layout::ColumnLayout;

/// One stream in the making. Buffers of columns go from where they were filled to `W`, and nowhere in between.
pub struct TableStream<'l, W> {
    columns: Columns<&'l ColumnLayout>,
    encoder: StreamEncoder,
    out: W,
    rows: u64,
}

impl<'l, W: Write> TableStream<'l, W> {
    /// Starts a stream of some columns, by their 0-based index in the schema of the layout, or of all. Its schema has the
    /// metadata of the project's other files of columns.
    ///
    /// # Errors
    /// [`ColumnarError::Arrow`].
    pub fn new(layout: &'l ColumnLayout, wanted: Option<&[usize]>, out: W) -> Result<Self, ColumnarError> {
        let columns = match wanted {
            Some(wanted) => Columns::some(layout, wanted),
            None => Columns::new(layout),
        };
        let schema = Schema::new_with_metadata(columns.schema().fields().clone(), layout.owned_metadata());
        let encoder = StreamEncoder::try_new(&schema).map_err(ColumnarError::Arrow)?;
        Ok(Self { columns, encoder, out, rows: 0 })
    }

    /// Appends a record whose FLAG is `flag`.
    ///
    /// # Errors
    /// What `W` reports; [`ColumnarError`] inside an [`io::Error`].
    #[inline]
    pub fn push(&mut self, record: RawRecord, flag: u16) -> io::Result<()> {
        self.columns.push(record, flag);
        self.rows += 1;
        if self.columns.is_full() { self.write_batch() } else { Ok(()) }
    }

    fn write_batch(&mut self) -> io::Result<()> {
        let batch = self.columns.take_batch().map_err(io::Error::other)?;
        let buffers = self.encoder.encode(&batch).map_err(failed)?;
        write_all(&mut self.out, &buffers)?;
        drop(buffers);
        self.columns.reuse(batch);
        Ok(())
    }

    /// Ends the stream. Returns what it was written to, and the number of rows.
    ///
    /// # Errors
    /// As [`TableStream::push`].
    pub fn finish(mut self) -> io::Result<(W, u64)> {
        if self.columns.rows() > 0 {
            self.write_batch()?;
        }
        let buffers = self.encoder.finish().map_err(failed)?;
        write_all(&mut self.out, &buffers)?;
        self.out.flush()?;
        Ok((self.out, self.rows))
    }
}

fn failed(error: arrow_schema::ArrowError) -> io::Error {
    io::Error::other(ColumnarError::Arrow(error))
}

fn write_all(out: &mut impl Write, buffers: &[Buffer]) -> io::Result<()> {
    buffers.iter().try_for_each(|buffer| out.write_all(buffer))
}
