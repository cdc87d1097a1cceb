//! Bytes as Arrow batches: one column of bytes, whose buffer is sent without a copy.

use std::sync::{Arc, LazyLock};

use arrow_array::cast::AsArray;
use arrow_array::types::UInt8Type;
use arrow_array::{RecordBatch, UInt8Array};
use arrow_buffer::{Buffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

/// Largest batch, bytes: a size that fits the caches of both ends.
pub const MAX_BATCH_BYTES: usize = 2 << 20;

/// Returns the schema of such batches.
pub fn schema() -> SchemaRef {
    static SCHEMA: LazyLock<SchemaRef> =
        LazyLock::new(|| Arc::new(Schema::new(vec![Field::new("bytes", DataType::UInt8, false)])));
    SCHEMA.clone()
}

/// Makes a batch of these bytes.
pub fn batch_from_bytes(bytes: impl Into<Buffer>) -> RecordBatch {
    let bytes: Buffer = bytes.into();
    let length = bytes.len();
    let column = UInt8Array::new(ScalarBuffer::new(bytes, 0, length), None);
    RecordBatch::try_new(schema(), vec![Arc::new(column)]).expect("the column is that of the schema")
}

/// Returns the bytes of a batch; empty where it is not a batch of bytes.
pub fn batch_as_bytes(batch: &RecordBatch) -> &[u8] {
    batch
        .columns()
        .first()
        .and_then(|column| column.as_primitive_opt::<UInt8Type>())
        .map_or(&[], |column| column.values())
}

/// Splits pieces into batches of at most [`MAX_BATCH_BYTES`], in order.
pub fn split_into_batches(pieces: Vec<Buffer>) -> impl Iterator<Item = RecordBatch> {
    pieces.into_iter().flat_map(|piece| {
        let starts = (0..piece.len()).step_by(MAX_BATCH_BYTES);
        starts.map(move |start| {
            batch_from_bytes(piece.slice_with_length(start, MAX_BATCH_BYTES.min(piece.len() - start)))
        })
    })
}
