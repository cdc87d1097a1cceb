//! A builder that collects reads into one batch: one copy per field, no allocation per read.

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, RecordBatch};
use arrow_buffer::{Buffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::SchemaRef;
use godwit_model::schema;

use super::record_reader::Record;

/// A batch of [`schema::reads`] being built.
#[derive(Debug)]
pub(super) struct ReadBatchBuilder {
    schema: SchemaRef,
    name: BytesBuilder,
    comment: BytesBuilder,
    sequence: BytesBuilder,
    quality: BytesBuilder,
}

/// A column of byte strings. Its values stay below 2 GiB: a batch ends at [`super::MAX_RECORD_BYTES`] or earlier, and at
/// most two records of that size are added before the check.
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
        Self { schema: schema::reads(), name, comment, sequence, quality }
    }

    /// Appends a read and returns its number of bases.
    pub(super) fn push(&mut self, record: &Record<'_>) -> u64 {
        self.name.push(Some(record.name));
        self.comment.push(record.comment);
        self.sequence.push(Some(record.sequence));
        self.quality.push(record.quality);
        record.sequence.len() as u64
    }

    /// Returns the name of the last read, which must exist.
    pub(super) fn last_name(&self) -> &[u8] {
        let start = self.name.offsets.iter().rev().nth(1).map_or(0, |offset| *offset as usize);
        &self.name.values[start..]
    }

    /// Returns the bytes of all values.
    pub(super) fn value_bytes(&self) -> usize {
        [&self.name, &self.comment, &self.sequence, &self.quality].iter().map(|column| column.values.len()).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.name.offsets.len() == 1
    }

    /// Returns the batch, and leaves empty columns with capacity for a similar one.
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
        // A sixteenth more than the last batch: batches differ by a record or two.
        let next = Self::with_capacity(self.offsets.len(), self.values.len() + self.values.len() / 16);
        let Self { values, offsets, mut validity } = std::mem::replace(self, next);
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        Arc::new(BinaryArray::new(offsets, Buffer::from_vec(values), validity.finish()))
    }
}
