//! A writer of alignments as one uncompressed Arrow IPC stream. Another process maps the stream into its memory to read
//! the columns without copying them.

use std::io::{self, Write};

use arrow_buffer::Buffer;
use arrow_ipc::writer::StreamEncoder;
use arrow_schema::Schema;
use godwit_model::RawRecord;

use super::alignment_layout::AlignmentLayout;
use super::batch_builder::AlignmentBatchBuilder;
use super::error::ColumnarError;

/// A writer of one Arrow IPC stream of alignments. The buffers of columns are written to `W` without a copy.
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
/// use arrow_array::cast::AsArray;
/// use godwit_columnar::{AlignmentLayout, AlignmentStreamWriter, ArrowFile};
/// use godwit_io::random_access::LocalFile;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("a.arrows");
/// # let header = Header::parse(b"@SQ\tSN:chr1\tLN:1000\n")?;
/// # let mut bytes = Vec::new();
/// # let line = b"r1\t16\tchr1\t7\t60\t3M1S\t*\t0\t0\tACGT\tIIII\tNM:i:1";
/// # LineEncoder::new(&header.genome()?).encode(line, &mut bytes)?;
/// # let record = RawRecord::from_bytes(&bytes, 1)?;
/// # let layout = AlignmentLayout::new(&header)?;
/// let columns = [layout.schema.index_of("position")?, layout.schema.index_of("cigar")?];
/// let mut writer = AlignmentStreamWriter::new(&layout, Some(&columns), File::create(&path)?)?;
/// writer.push(record, record.flag())?;
/// let (_, row_count) = writer.finish()?;
/// assert_eq!(row_count, 1);
///
/// let stream = ArrowFile::open(Arc::new(LocalFile::open(&path)?))?;
/// let batch = stream.batches(0..1, None).next_batch()?.unwrap();
/// assert_eq!(batch["cigar"].as_string::<i32>().value(0), "3M1S");
/// # Ok(())
/// # }
/// ```
pub struct AlignmentStreamWriter<'l, W> {
    builder: AlignmentBatchBuilder<&'l AlignmentLayout>,
    encoder: StreamEncoder,
    out: W,
    row_count: u64,
}

impl<'l, W: Write> AlignmentStreamWriter<'l, W> {
    /// Starts a stream. `projection` contains the 0-based indexes of its columns in the schema of the layout; `None`
    /// means all columns. The schema of the stream has the same metadata as the other columnar files of godwit.
    ///
    /// # Errors
    /// [`ColumnarError::Arrow`] if the Arrow writer fails.
    pub fn new(layout: &'l AlignmentLayout, projection: Option<&[usize]>, out: W) -> Result<Self, ColumnarError> {
        let builder = match projection {
            Some(wanted) => AlignmentBatchBuilder::with_projection(layout, wanted),
            None => AlignmentBatchBuilder::new(layout),
        };
        let schema = Schema::new_with_metadata(builder.schema().fields().clone(), layout.owned_metadata());
        let encoder = StreamEncoder::try_new(&schema).map_err(ColumnarError::Arrow)?;
        Ok(Self { builder, encoder, out, row_count: 0 })
    }

    /// Appends a record; its FLAG becomes `flag`.
    ///
    /// # Errors
    /// The errors of `W`, or a [`ColumnarError`] inside an [`io::Error`].
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

    /// Completes the stream. Returns the inner writer and the number of rows.
    ///
    /// # Errors
    /// The errors of [`AlignmentStreamWriter::push`].
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
