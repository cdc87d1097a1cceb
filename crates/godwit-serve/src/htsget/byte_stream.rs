//! HTTP response bodies of file bytes, which are read from the file only as fast as the client receives them.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use godwit_dataset::DatasetError;
use godwit_dataset::web::WebStream;
use godwit_io::bgzf::ChunkBlocks;
use godwit_io::random_access::RandomAccess;

use crate::http_request::run_blocking;

/// Number of bytes per read, equal to the size of an HTTP/2 frame of this server.
const FRAME_BYTES: u64 = 1 << 20;

/// The bytes that remain to be sent: `head`, then the range `whole` of `source`, then `tail`.
struct ByteStream {
    source: Arc<dyn RandomAccess>,
    head: Vec<u8>,
    whole: Range<u64>,
    tail: Vec<u8>,
}

/// Returns a stream of the bytes in `cut`: its first blocks, the range of `source`, and its last blocks.
pub(crate) fn stream_bytes(source: Arc<dyn RandomAccess>, cut: ChunkBlocks) -> WebStream {
    let ChunkBlocks { first_blocks, block_range, last_blocks } = cut;
    let sending = ByteStream { source, head: first_blocks, whole: block_range, tail: last_blocks };
    Box::pin(stream::unfold(sending, |mut sending| async move {
        let next = sending.next_frame().await?;
        if next.is_err() {
            // Discard the remaining bytes, so that the stream ends after the error.
            (sending.whole, sending.tail) = (0..0, Vec::new());
        }
        Some((next, sending))
    }))
}

impl ByteStream {
    async fn next_frame(&mut self) -> Option<Result<Bytes, DatasetError>> {
        if !self.head.is_empty() {
            return Some(Ok(std::mem::take(&mut self.head).into()));
        }
        if self.whole.is_empty() {
            return (!self.tail.is_empty()).then(|| Ok(std::mem::take(&mut self.tail).into()));
        }
        let (source, start) = (self.source.clone(), self.whole.start);
        let count = (self.whole.end - start).min(FRAME_BYTES);
        self.whole.start += count;
        // A blocking thread is used only for the read itself, not while a slow client receives the bytes.
        let read = run_blocking(move || {
            let mut bytes = vec![0; count as usize];
            let path = source.path().display();
            match source.read_at(&mut bytes, start) {
                Ok(found) if found as u64 == count => Ok(bytes.into()),
                Ok(_) => Err(DatasetError::Data(format!("{path} was truncated while it was read").into())),
                Err(error) => Err(DatasetError::Local(format!("cannot read {path}: {error}").into())),
            }
        });
        Some(read.await.unwrap_or_else(|error| Err(DatasetError::Local(error.into()))))
    }
}
