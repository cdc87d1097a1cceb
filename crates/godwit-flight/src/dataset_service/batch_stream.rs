//! Reads datasets for clients: batch by batch, at the client's pace.

use arrow_schema::SchemaRef;
use bytes::Bytes;
use futures_util::stream;
use tonic::Status;

use super::{DatasetService, run_blocking};
use crate::dataset::BatchReader;
use crate::server::Download;
use crate::trace::OpenSpan;

/// Names of the spans of reading and of running a statement.
pub(super) const READ_SPAN: &str = "read";
pub(super) const STATEMENT_SPAN: &str = "statement";

impl DatasetService {
    /// Starts a span as a part of a call.
    pub(super) fn start_span(&self, name: &str) -> Option<OpenSpan> {
        Some(self.inner.options.tracer.as_ref()?.start_span(name))
    }
}

/// Streams batches, each read after the client took the one before, on a thread that may block on a disk. Between batches no
/// thread is held, of which a process has a few hundred: a thousand slow clients leave threads to others, and hold no batch
/// ahead. Reading ahead of a client was not faster (the transport requests a batch while the one before is being sent).
pub fn stream_batches(schema: SchemaRef, batches: BatchReader) -> Download {
    let batches = stream::unfold(Some(batches), |batches| async move {
        let mut batches = batches?;
        let read = run_blocking(move || Ok((batches.next(), batches))).await;
        match read {
            Ok((None, _)) => None,
            Ok((Some(Ok(batch)), batches)) => Some((Ok((batch, Bytes::new())), Some(batches))),
            Ok((Some(Err(error)), _)) => Some((Err(Status::from(error)), None)),
            Err(status) => Some((Err(status), None)),
        }
    });
    Download { schema, batches: Box::pin(batches) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use arrow_array::RecordBatch;
    use arrow_schema::Schema;
    use futures_util::StreamExt as _;

    use super::*;

    #[test]
    fn clients_that_stop_reading_release_their_thread() {
        let schema = Arc::new(Schema::empty());
        let download = |batches: usize| {
            let batch = RecordBatch::new_empty(Arc::clone(&schema));
            stream_batches(Arc::clone(&schema), Box::new(std::iter::repeat_n(batch, batches).map(Ok)))
        };
        let runtime =
            tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).enable_time().build().unwrap();
        runtime.block_on(async {
            let mut slow: Vec<_> = (0..3).map(|_| download(1000)).collect();
            for one in &mut slow {
                assert!(one.batches.next().await.unwrap().is_ok());
            }
            let whole = tokio::time::timeout(Duration::from_secs(60), download(10).batches.count()).await;
            assert_eq!(whole.expect("nobody waits for the slow ones"), 10);
        });
    }
}
