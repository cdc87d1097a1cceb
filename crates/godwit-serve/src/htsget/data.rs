//! Bytes of a file on their way out, read as they are taken.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use godwit_flight::Status;
use godwit_flight::web::WebStream;
use godwit_formats::bgzf::Cut;
use godwit_formats::random_access::RandomAccess;

/// Bytes that are read at a time: as a frame of HTTP/2 has them here.
const PIECE_BYTES: u64 = 1 << 20;

/// What is still to be sent.
struct Sending {
    source: Arc<dyn RandomAccess>,
    head: Vec<u8>,
    whole: Range<u64>,
    tail: Vec<u8>,
}

/// The bytes of a cut of a file.
pub(crate) fn streamed(source: Arc<dyn RandomAccess>, cut: Cut) -> WebStream {
    let Cut { head, whole, tail } = cut;
    let sending = Sending { source, head, whole, tail };
    Box::pin(stream::unfold(sending, |mut sending| async move {
        let next = sending.next().await?;
        if next.is_err() {
            // Nothing can be said after that but that it is over.
            (sending.whole, sending.tail) = (0..0, Vec::new());
        }
        Some((next, sending))
    }))
}

impl Sending {
    async fn next(&mut self) -> Option<Result<Bytes, Status>> {
        if !self.head.is_empty() {
            return Some(Ok(std::mem::take(&mut self.head).into()));
        }
        if self.whole.is_empty() {
            return (!self.tail.is_empty()).then(|| Ok(std::mem::take(&mut self.tail).into()));
        }
        let (source, start) = (self.source.clone(), self.whole.start);
        let count = (self.whole.end - start).min(PIECE_BYTES);
        self.whole.start += count;
        // No thread waits for a client that is slow.
        let read = tokio::task::spawn_blocking(move || {
            let mut bytes = vec![0; count as usize];
            let path = source.path().display();
            match source.read_at(&mut bytes, start) {
                Ok(found) if found as u64 == count => Ok(bytes.into()),
                Ok(_) => Err(Status::data_loss(format!("{path} became shorter while it was read"))),
                Err(error) => Err(Status::unavailable(format!("cannot read {path}: {error}"))),
            }
        });
        Some(read.await.unwrap_or_else(|error| Err(Status::internal(format!("a bug in godwit: {error}")))))
    }
}
