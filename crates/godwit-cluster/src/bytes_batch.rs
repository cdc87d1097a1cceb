//! Conversion between bytes and Arrow record batches with one column of bytes. The buffer of the column is sent without
//! a copy.

use std::sync::{Arc, LazyLock};

use arrow_array::cast::AsArray;
use arrow_array::types::UInt8Type;
use arrow_array::{RecordBatch, UInt8Array};
use arrow_buffer::{Buffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

/// Maximum size of a batch, bytes; it fits the processor caches of sender and receiver.
pub const MAX_BATCH_BYTES: usize = 2 << 20;

/// Returns the schema of a batch of bytes: one `UInt8` column.
pub fn schema() -> SchemaRef {
    static SCHEMA: LazyLock<SchemaRef> =
        LazyLock::new(|| Arc::new(Schema::new(vec![Field::new("bytes", DataType::UInt8, false)])));
    SCHEMA.clone()
}

/// Creates a batch that contains these bytes, without a copy.
pub fn batch_from_bytes(bytes: impl Into<Buffer>) -> RecordBatch {
    let bytes: Buffer = bytes.into();
    let length = bytes.len();
    let column = UInt8Array::new(ScalarBuffer::new(bytes, 0, length), None);
    RecordBatch::try_new(schema(), vec![Arc::new(column)]).expect("the column is that of the schema")
}

/// Returns the bytes in a batch; empty if the first column is not a column of bytes.
pub fn batch_as_bytes(batch: &RecordBatch) -> &[u8] {
    batch
        .columns()
        .first()
        .and_then(|column| column.as_primitive_opt::<UInt8Type>())
        .map_or(&[], |column| column.values())
}

/// Splits each buffer into batches of at most [`MAX_BATCH_BYTES`] and returns the batches in order.
pub fn split_into_batches(pieces: Vec<Buffer>) -> impl Iterator<Item = RecordBatch> {
    pieces.into_iter().flat_map(|piece| {
        let starts = (0..piece.len()).step_by(MAX_BATCH_BYTES);
        starts.map(move |start| {
            batch_from_bytes(piece.slice_with_length(start, MAX_BATCH_BYTES.min(piece.len() - start)))
        })
    })
}
