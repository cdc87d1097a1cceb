//! The messages of a delta copy, which the packing end sends to the unpacking end as Arrow batches of one row.

use std::sync::{Arc, LazyLock};

use arrow_array::{Array, BinaryArray, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use serde::{Deserialize, Serialize};

use crate::copy_protocol::{from_json, to_json};
use crate::error::TransferError;

/// Approximate number of packed bytes in a message.
pub(crate) const MESSAGE_BYTES: usize = 256 << 10;
/// Number of messages that may wait between the connection and the thread that packs or unpacks.
pub(crate) const MESSAGE_QUEUE_LENGTH: usize = 4;

/// A message with some bytes of a packed file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct DeltaMessage {
    /// The next bytes of the packed file.
    pub(crate) packed: Vec<u8>,
    /// Specifications of BGZF blocks whose text is in the packed bytes of this message or of later ones.
    pub(crate) block_specs: Vec<u8>,
    /// The result of packing, in the last message only.
    pub(crate) trailer: Option<DeltaTrailer>,
}

/// The result of packing, with which the messages of a delta copy end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DeltaTrailer {
    /// The packed file is complete.
    #[serde(rename = "whole")]
    Complete {
        /// Size of the original file, bytes.
        bytes: u64,
        /// BLAKE3 of the original file, hexadecimal.
        blake3: String,
    },
    /// The file cannot be packed and should be sent without delta compression.
    #[serde(rename = "unsuited")]
    Unsuitable {
        /// The reason, for the user.
        #[serde(rename = "why")]
        reason: String,
    },
}

/// Arrow schema of the batches.
pub(crate) static DELTA_SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    Arc::new(Schema::new(vec![
        Field::new("packed", DataType::Binary, false),
        Field::new("making", DataType::Binary, false),
    ]))
});

impl DeltaMessage {
    /// Returns the message as a batch, and the trailer as the metadata of the batch.
    pub(crate) fn to_batch(&self) -> Result<(RecordBatch, Vec<u8>), TransferError> {
        let columns: Vec<Arc<dyn Array>> = [&self.packed, &self.block_specs]
            .into_iter()
            .map(|bytes| Arc::new(BinaryArray::from_vec(vec![bytes])) as Arc<dyn Array>)
            .collect();
        let batch = RecordBatch::try_new(DELTA_SCHEMA.clone(), columns)
            .map_err(|error| TransferError::Internal { problem: error.to_string() })?;
        Ok((batch, self.trailer.as_ref().map_or(Ok(Vec::new()), to_json)?))
    }

    /// Parses a received batch and its metadata.
    pub(crate) fn from_batch(batch: &RecordBatch, app_metadata: &[u8]) -> Result<Self, TransferError> {
        let wrong = || {
            TransferError::rejected(
                "the other end of the copy sent a batch without the columns of packed genomes; it may run another version of godwit",
            )
        };
        if batch.schema().fields() != DELTA_SCHEMA.fields() || batch.num_rows() != 1 {
            return Err(wrong());
        }
        let bytes = |at: usize| {
            let column = batch.column(at).as_any().downcast_ref::<BinaryArray>().ok_or_else(wrong)?;
            Ok::<_, TransferError>(column.value(0).to_vec())
        };
        let trailer = if app_metadata.is_empty() { None } else { Some(from_json(app_metadata)?) };
        Ok(Self { packed: bytes(0)?, block_specs: bytes(1)?, trailer })
    }
}
