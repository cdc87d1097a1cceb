//! A builder that collects reads into a record batch, with one copy per field and no memory allocation per read.

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, RecordBatch};
use arrow_buffer::{Buffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::SchemaRef;
use godwit_model::schema;

use super::record_reader::Record;

/// A builder of a record batch with the schema [`schema::pipe_reads`].
#[derive(Debug)]
pub(super) struct ReadBatchBuilder {
    schema: SchemaRef,
    name: BytesBuilder,
    comment: BytesBuilder,
    sequence: BytesBuilder,
    quality: BytesBuilder,
}

/// A builder of a column of byte strings. The values of a column stay below 2 GiB. A batch ends at
/// [`super::MAX_RECORD_BYTES`] or earlier, and at most two records of that size are added between two checks.
#[derive(Debug)]
struct BytesBuilder {
    values: Vec<u8>,
    offsets: Vec<i32>,
    validity: NullBufferBuilder,
}

impl ReadBatchBuilder {
    pub(super) fn new() -> Self {
        let column = || BytesBuilder::with_capacity(0, 0);
        let (name, comment, sequence, quality) = (column(), column(), column(), column());
        Self { schema: schema::pipe_reads(), name, comment, sequence, quality }
    }

    /// Appends a read to the batch and returns its number of bases.
    pub(super) fn push(&mut self, record: &Record<'_>) -> u64 {
        self.name.push(Some(record.name));
        self.comment.push(record.comment);
        self.sequence.push(Some(record.sequence));
        self.quality.push(record.quality);
        record.sequence.len() as u64
    }

    /// Returns the name of the read appended last. There must be such a read.
    pub(super) fn last_name(&self) -> &[u8] {
        let start = self.name.offsets.iter().rev().nth(1).map_or(0, |offset| *offset as usize);
        &self.name.values[start..]
    }

    /// Returns the total number of bytes of the values in all columns.
    pub(super) fn value_bytes(&self) -> usize {
        [&self.name, &self.comment, &self.sequence, &self.quality].iter().map(|column| column.values.len()).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.name.offsets.len() == 1
    }

    /// Returns the batch and starts a new one, whose empty columns have capacity for as much data.
    pub(super) fn finish(&mut self) -> RecordBatch {
        let columns = [&mut self.name, &mut self.comment, &mut self.sequence, &mut self.quality];
        let columns: Vec<ArrayRef> = columns.into_iter().map(BytesBuilder::finish).collect();
        RecordBatch::try_new(Arc::clone(&self.schema), columns)
            .expect("the four columns are those of the schema, equally long, and name and sequence are never null")
    }
}

impl BytesBuilder {
    fn with_capacity(rows: usize, bytes: usize) -> Self {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        Self { values: Vec::with_capacity(bytes), offsets, validity: NullBufferBuilder::new(rows) }
    }

    #[inline]
    fn push(&mut self, value: Option<&[u8]>) {
        self.values.extend_from_slice(value.unwrap_or_default());
        self.offsets.push(self.values.len() as i32);
        self.validity.append(value.is_some());
    }

    fn finish(&mut self) -> ArrayRef {
        // Reserve a sixteenth more than the last batch used, because batches differ in size by one or two records.
        let next = Self::with_capacity(self.offsets.len(), self.values.len() + self.values.len() / 16);
        let Self { values, offsets, mut validity } = std::mem::replace(self, next);
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        Arc::new(BinaryArray::new(offsets, Buffer::from_vec(values), validity.finish()))
    }
}
