//! How datasets are read for clients: batch by batch, as they take them.

use arrow_schema::SchemaRef;
use bytes::Bytes;
use futures_util::stream;
use tonic::Status;

use super::blocking;
use crate::dataset::BatchReader;
use crate::server::Download;

/// Batches that are read when the client has taken those before, each on a thread that may wait for a disk. Between batches there is no
/// such thread, of which a process has a few hundred: a thousand clients that are slow leave others theirs, and hold no batch that they
/// do not want yet. To read ahead of a client made no fetch faster (the transport asks for a batch while the one before is on its way).
pub fn streamed(schema: SchemaRef, batches: BatchReader) -> Download {
    let batches = stream::unfold(Some(batches), |batches| async move {
        let mut batches = batches?;
        let read = blocking(move || Ok((batches.next(), batches))).await;
        match read {
            Ok((None, _)) => None,
            Ok((Some(Ok(batch)), batches)) => Some((Ok((batch, Bytes::new())), Some(batches))),
            Ok((Some(Err(error)), _)) => Some((Err(Status::from(error)), None)),
            Err(status) => Some((Err(status), None)),
        }
    });
    Download { schema, batches: Box::pin(batches) }
}
