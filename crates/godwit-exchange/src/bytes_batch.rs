//! Bytes as Arrow batches: one column of bytes, whose buffer is sent from where it lies.

use std::sync::{Arc, LazyLock};

use arrow_array::cast::AsArray;
use arrow_array::types::UInt8Type;
use arrow_array::{RecordBatch, UInt8Array};
use arrow_buffer::{Buffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

/// Largest batch: what goes through the cache between two ends well.
pub const BATCH_BYTES: usize = 2 << 20;

/// The schema of bytes.
pub fn schema() -> SchemaRef {
    static SCHEMA: LazyLock<SchemaRef> =
        LazyLock::new(|| Arc::new(Schema::new(vec![Field::new("bytes", DataType::UInt8, false)])));
    SCHEMA.clone()
}

/// A batch of these bytes.
pub fn of_bytes(bytes: impl Into<Buffer>) -> RecordBatch {
    let bytes: Buffer = bytes.into();
    let length = bytes.len();
    let column = UInt8Array::new(ScalarBuffer::new(bytes, 0, length), None);
    RecordBatch::try_new(schema(), vec![Arc::new(column)]).expect("the column is that of the schema")
}

/// The bytes of a batch; none where it is no batch of bytes.
pub fn bytes(batch: &RecordBatch) -> &[u8] {
    batch
        .columns()
        .first()
        .and_then(|column| column.as_primitive_opt::<UInt8Type>())
        .map_or(&[], |column| column.values())
}

/// Pieces cut into batches of at most [`BATCH_BYTES`], one behind the other.
pub fn cut(pieces: Vec<Buffer>) -> impl Iterator<Item = RecordBatch> {
    pieces.into_iter().flat_map(|piece| {
        let starts = (0..piece.len()).step_by(BATCH_BYTES);
        starts.map(move |start| of_bytes(piece.slice_with_length(start, BATCH_BYTES.min(piece.len() - start))))
    })
}
