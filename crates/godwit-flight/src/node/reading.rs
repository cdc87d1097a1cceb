//! How datasets are read for clients: batch by batch, as they take them.

use arrow_schema::SchemaRef;
use bytes::Bytes;
use futures_util::stream;
use tonic::Status;

use super::{Node, blocking};
use crate::dataset::BatchReader;
use crate::server::Download;
use crate::trace::OpenSpan;

/// The spans of reading what is there, and of running a statement.
pub(super) const READ: &str = "read";
pub(super) const STATEMENT: &str = "statement";

impl Node {
    /// A span of something that is part of a call.
    pub(super) fn span(&self, name: &str) -> Option<OpenSpan> {
        Some(self.inner.options.tracer.as_ref()?.part(name))
    }
}

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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use arrow_array::RecordBatch;
    use arrow_schema::Schema;
    use futures_util::StreamExt as _;

    use super::*;

    #[test]
    fn clients_that_take_no_more_leave_their_thread_to_others() {
        let schema = Arc::new(Schema::empty());
        let download = |batches: usize| {
            let batch = RecordBatch::new_empty(Arc::clone(&schema));
            streamed(Arc::clone(&schema), Box::new(std::iter::repeat_n(batch, batches).map(Ok)))
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
