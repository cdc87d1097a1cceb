//! Reads datasets for downloads, batch by batch, as fast as the client receives them.

use arrow_schema::SchemaRef;
use bytes::Bytes;
use futures_util::stream;
use godwit_dataset::BatchReader;

use super::{DatasetService, run_blocking};
use crate::call_streams::Download;
use crate::error::dataset_status;
use crate::trace::OpenSpan;

/// Name of the trace span for reading a dataset; the next constant is the span name for running a statement.
pub(super) const READ_SPAN: &str = "read";
pub(super) const STATEMENT_SPAN: &str = "statement";

impl DatasetService {
    /// Starts a trace span within the span of the current call; `None` if tracing is off.
    pub(super) fn start_span(&self, name: &str) -> Option<OpenSpan> {
        Some(self.inner.options.tracer.as_ref()?.start_span(name))
    }
}

/// Returns a download that reads each batch when the transport requests it, on a thread that may block on file access.
/// Between batches the download itself occupies no thread and no memory for a batch, so that thousands of slow clients do
/// not exhaust the few hundred threads of the process; [`read_pieces`](godwit_dataset::read_pieces) reads in advance for
/// a bounded number of downloads.
///
/// # Examples
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
///
/// use arrow_array::{ArrayRef, Int64Array, RecordBatch};
/// use futures_util::StreamExt as _;
/// use godwit_flight::stream_batches;
///
/// let positions: ArrayRef = Arc::new(Int64Array::from(vec![100, 200]));
/// let batch = RecordBatch::try_from_iter([("position", positions)])?;
/// let download = stream_batches(batch.schema(), Box::new(std::iter::repeat_n(batch, 3).map(Ok)));
/// assert_eq!(download.schema.field(0).name(), "position");
/// assert_eq!(download.batches.count().await, 3);
/// # Ok(())
/// # }
/// ```
pub fn stream_batches(schema: SchemaRef, batches: BatchReader) -> Download {
    let batches = stream::unfold(Some(batches), |batches| async move {
        let mut batches = batches?;
        let read = run_blocking(move || Ok((batches.next(), batches))).await;
        match read {
            Ok((None, _)) => None,
            Ok((Some(Ok(batch)), batches)) => Some((Ok((batch, Bytes::new())), Some(batches))),
            Ok((Some(Err(error)), _)) => Some((Err(dataset_status(error)), None)),
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
            assert_eq!(whole.expect("slow clients do not delay others"), 10);
        });
    }
}
