//! Serves the slices of a worker for download by other workers.

use std::io;
use std::sync::{Arc, OnceLock};

use arrow_array::RecordBatch;
use bytes::Bytes;
use godwit_cluster::{DownloadBatches, DownloadSource, bytes_batch};
use godwit_exchange::ShardId;
use godwit_kernels::sort::Spill;
use godwit_model::BlockId;
use godwit_pipeline::runs::SliceStore;
use serde::{Deserialize, Serialize};

use crate::align_messages::AlignTicket;

/// Maximum size of a batch with bytes of a slice, bytes.
const BATCH_BYTES: u64 = 2 << 20;

/// The metadata of the first batch of a slice, which contains its frame table. Further batches contain the bytes of the
/// slice.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SliceHeader {
    #[serde(rename = "share")]
    pub(crate) shard: ShardId,
    pub(crate) bytes: u64,
    /// BLAKE3 of the bytes of the slice, hexadecimal.
    pub(crate) checksum: String,
}

/// The slices of a worker; empty until the partitions of the genome are known.
#[derive(Default)]
pub(crate) struct SliceSource(OnceLock<Arc<SliceStore>>);

impl SliceSource {
    pub(super) fn set_store(&self, store: Arc<SliceStore>) {
        let _ = self.0.set(store);
    }
}

impl DownloadSource for SliceSource {
    type Ticket = AlignTicket;

    fn open(&self, ticket: &AlignTicket) -> io::Result<DownloadBatches> {
        let (AlignTicket::Slices { block, shards }, Some(store)) = (ticket, self.0.get()) else {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "a worker serves only slices, and only after it has received the partitions",
            ));
        };
        let (block, store) = (*block, store.clone());
        let slices = shards.clone().into_iter().flat_map(move |share| slice_batches(store.clone(), block, share));
        Ok(DownloadBatches { schema: bytes_batch::schema(), batches: Box::new(slices) })
    }
}

/// Returns a slice as batches: first its frame table with a [`SliceHeader`], then its bytes.
fn slice_batches(
    store: Arc<SliceStore>,
    block: BlockId,
    shard: ShardId,
) -> Box<dyn Iterator<Item = io::Result<(RecordBatch, Bytes)>> + Send> {
    let Some((place, table)) = store.slice(block, usize::from(shard.0)) else {
        let error = io::Error::new(io::ErrorKind::NotFound, "unknown slice");
        return Box::new(std::iter::once(Err(error)));
    };
    let header = SliceHeader { shard, bytes: place.bytes, checksum: place.checksum.to_hex().to_string() };
    let header = serde_json::to_vec(&header).map(|text| (bytes_batch::batch_from_bytes(table.0), Bytes::from(text)));
    let starts = (0..place.bytes).step_by(BATCH_BYTES as usize);
    let chunks = starts.map(move |start| {
        let mut bytes = vec![0; BATCH_BYTES.min(place.bytes - start) as usize];
        store.spill().read_at(place.offset + start, &mut bytes)?;
        Ok((bytes_batch::batch_from_bytes(bytes), Bytes::new()))
    });
    Box::new(std::iter::once(header.map_err(io::Error::from)).chain(chunks))
}
