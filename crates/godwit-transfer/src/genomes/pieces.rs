//! What goes from the end that packs to the one that unpacks, as batches of one row.

use std::sync::{Arc, LazyLock};

use arrow_array::{Array, BinaryArray, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use serde::{Deserialize, Serialize};

use crate::error::TransferError;
use crate::protocol::{json, parse};

/// Bytes of a packed file in a piece, about.
pub(crate) const PIECE_BYTES: usize = 256 << 10;
/// Pieces between the connection and the thread that packs or unpacks.
pub(crate) const PIECES_AHEAD: usize = 4;

/// A part of a packed file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Bytes of the packed file.
    pub(crate) packed: Vec<u8>,
    /// How blocks are made of text that comes with these bytes, or later.
    pub(crate) making: Vec<u8>,
    /// Said with the last one.
    pub(crate) last: Option<Last>,
}

/// What is said of the whole file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Last {
    /// It is whole.
    Whole {
        /// Bytes of the original file.
        bytes: u64,
        /// BLAKE3 of these, hexadecimal.
        blake3: String,
    },
    /// It is better sent as it is.
    Unsuited {
        /// Because of this.
        why: String,
    },
}

/// Columns of the batches.
pub(crate) static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    Arc::new(Schema::new(vec![
        Field::new("packed", DataType::Binary, false),
        Field::new("making", DataType::Binary, false),
    ]))
});

impl Piece {
    /// As a batch, and what is said beside it.
    pub(crate) fn to_batch(&self) -> Result<(RecordBatch, Vec<u8>), TransferError> {
        let columns: Vec<Arc<dyn Array>> = [&self.packed, &self.making]
            .into_iter()
            .map(|bytes| Arc::new(BinaryArray::from_vec(vec![bytes])) as Arc<dyn Array>)
            .collect();
        let batch = RecordBatch::try_new(SCHEMA.clone(), columns)
            .map_err(|error| TransferError::Bug { problem: error.to_string() })?;
        Ok((batch, self.last.as_ref().map_or(Ok(Vec::new()), json)?))
    }

    /// Of a batch that somebody sent.
    pub(crate) fn of(batch: &RecordBatch, said: &[u8]) -> Result<Self, TransferError> {
        let wrong = || TransferError::refused("the other end sent columns that are no packed genome");
        if batch.schema().fields() != SCHEMA.fields() || batch.num_rows() != 1 {
            return Err(wrong());
        }
        let bytes = |at: usize| {
            let column = batch.column(at).as_any().downcast_ref::<BinaryArray>().ok_or_else(wrong)?;
            Ok::<_, TransferError>(column.value(0).to_vec())
        };
        let last = if said.is_empty() { None } else { Some(parse(said)?) };
        Ok(Self { packed: bytes(0)?, making: bytes(1)?, last })
    }
}
