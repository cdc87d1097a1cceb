//! What a node hands out: slices.

use std::io;
use std::sync::{Arc, OnceLock};

use arrow_array::RecordBatch;
use bytes::Bytes;
use godwit_exchange::{Item, Share, Shelf, Ticket, bytes_batch};
use godwit_kernels::sort::Spill;
use godwit_model::BlockId;
use serde::{Deserialize, Serialize};

use crate::runs::SliceStore;

/// Bytes read from the spill at a time.
const CHUNK_BYTES: u64 = 2 << 20;

/// What is said beside the table of a slice; its bytes follow in batches of their own.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SliceHeader {
    pub(crate) share: Share,
    pub(crate) bytes: u64,
    /// BLAKE3 of the bytes, hexadecimal.
    pub(crate) checksum: String,
}

/// The slices of a node, once the genome is cut.
#[derive(Default)]
pub(crate) struct NodeShelf(OnceLock<Arc<SliceStore>>);

impl NodeShelf {
    pub(super) fn fill(&self, store: Arc<SliceStore>) {
        let _ = self.0.set(store);
    }
}

impl Shelf for NodeShelf {
    fn open(&self, ticket: &Ticket) -> io::Result<Item> {
        let (Ticket::Slices { block, shares }, Some(store)) = (ticket, self.0.get()) else {
            return Err(io::Error::new(io::ErrorKind::NotFound, "nodes hand out slices, once there are some"));
        };
        let (block, store) = (*block, store.clone());
        let slices = shares.clone().into_iter().flat_map(move |share| slice(store.clone(), block, share));
        Ok(Item { schema: bytes_batch::schema(), batches: Box::new(slices) })
    }
}

/// A slice in batches: first its table, then its bytes.
fn slice(
    store: Arc<SliceStore>,
    block: BlockId,
    share: Share,
) -> Box<dyn Iterator<Item = io::Result<(RecordBatch, Bytes)>> + Send> {
    let Some((place, table)) = store.slice(block, usize::from(share.0)) else {
        let error = io::Error::new(io::ErrorKind::NotFound, "the slice is not here");
        return Box::new(std::iter::once(Err(error)));
    };
    let header = SliceHeader { share, bytes: place.bytes, checksum: place.checksum.to_hex().to_string() };
    let header = serde_json::to_vec(&header).map(|text| (bytes_batch::of_bytes(table.0), Bytes::from(text)));
    let starts = (0..place.bytes).step_by(CHUNK_BYTES as usize);
    let chunks = starts.map(move |start| {
        let mut bytes = vec![0; CHUNK_BYTES.min(place.bytes - start) as usize];
        store.spill().read_at(place.offset + start, &mut bytes)?;
        Ok((bytes_batch::of_bytes(bytes), Bytes::new()))
    });
    Box::new(std::iter::once(header.map_err(io::Error::from)).chain(chunks))
}
