//! Recording of data accesses: the server writes one record to the access log before it sends data, and one at the end.

use std::sync::Arc;

use arrow_array::RecordBatch;
use futures_util::{StreamExt as _, stream};
use godwit_dataset::{AccessLog, AccessRecord, Principal};
use tonic::{Code, Status};

use crate::call_streams::{Download, ExchangeStream, PutResultStream};
use crate::code_name::code_name;
use crate::codec::FlightStreamChunk;
use crate::error::dataset_status;
use crate::web::WebStream;

/// Outcome in the record that is written before the server sends the first data.
pub(crate) const OUTCOME_STARTED: &str = "begun";
/// Outcome of an access for which the server has sent all data.
pub(crate) const OUTCOME_DONE: &str = "done";
/// Outcome of an access that the client ended before the server had sent all data.
const OUTCOME_ABORTED: &str = "broken off";

/// Records an access, and waits until the record is durable.
pub(crate) async fn record_access(log: &dyn AccessLog, access: AccessRecord) -> Result<(), Status> {
    log.record(access).await.map_err(dataset_status)
}

/// Returns the outcome of a call with this status, as [`AccessRecord::outcome`] contains it.
pub(crate) fn status_outcome(status: &Status) -> String {
    match status.code() {
        Code::Ok => OUTCOME_DONE.to_owned(),
        code => format!("{}: {}", code_name(code), status.message()),
    }
}

/// Writes the record of an access when the access ends. If it is dropped before, it records that the client ended the
/// access.
pub(crate) struct AccessRecorder {
    log: Arc<dyn AccessLog>,
    record: AccessRecord,
    is_open: bool,
}

impl AccessRecorder {
    /// Records that an access starts. If this fails, the server must not send data.
    pub(crate) async fn start(log: &Arc<dyn AccessLog>, record: AccessRecord) -> Result<Self, Status> {
        record_access(&**log, record.with_outcome(OUTCOME_STARTED.to_owned())).await?;
        Ok(Self { log: log.clone(), record, is_open: true })
    }

    /// Replaces the datasets of the record by those that the call has opened so far.
    pub(crate) fn with_datasets_of(mut self, caller: &Principal) -> Self {
        self.record.datasets = caller.accesses().to_vec();
        self
    }

    pub(crate) fn add_batch(&mut self, batch: &RecordBatch) {
        self.record.rows += batch.num_rows() as u64;
        let bytes = batch.columns().iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or_default());
        self.record.bytes += bytes.sum::<usize>() as u64;
    }

    /// Counts the bytes of a stream that consists of plain bytes instead of batches. Records the outcome before it
    /// passes on the last bytes, because a client that knows `length` may stop reading after them.
    pub(crate) fn record_bytes(self, bytes: WebStream, length: Option<u64>) -> WebStream {
        let bytes = stream::unfold((bytes, self), move |(mut bytes, mut recorded)| async move {
            if !recorded.is_open {
                return None;
            }
            let mut next = bytes.next().await;
            if let Some(Ok(bytes)) = &next {
                recorded.record.bytes += bytes.len() as u64;
            }
            if length.is_some_and(|length| recorded.record.bytes >= length) && matches!(next, Some(Ok(_))) {
                if let Err(status) = recorded.finish(OUTCOME_DONE.to_owned()).await {
                    next = Some(Err(status));
                }
            } else {
                next = recorded.finish_at_end(next).await;
            }
            Some((next?, (bytes, recorded)))
        });
        Box::pin(bytes)
    }

    pub(crate) async fn finish(&mut self, outcome: String) -> Result<(), Status> {
        self.is_open = false;
        record_access(&*self.log, self.record.with_outcome(outcome)).await
    }

    /// Wraps the batches of a download to count rows and bytes. The stream ends only after the outcome is recorded.
    pub(crate) fn record_download(self, download: Download) -> Download {
        let batches = stream::unfold((download.batches, self), |(mut batches, mut recorded)| async move {
            if !recorded.is_open {
                return None;
            }
            let next = batches.next().await;
            if let Some(Ok((batch, _))) = &next {
                recorded.add_batch(batch);
            }
            let next = recorded.finish_at_end(next).await?;
            Some((next, (batches, recorded)))
        });
        Download { schema: download.schema, batches: Box::pin(batches) }
    }

    /// Wraps the batches that the server sends in an exchange, as [`Self::record_download`] does for a download.
    pub(crate) fn record_exchange(self, chunks: ExchangeStream) -> ExchangeStream {
        let chunks = stream::unfold((chunks, self), |(mut chunks, mut recorded)| async move {
            if !recorded.is_open {
                return None;
            }
            let next: Option<Result<FlightStreamChunk, Status>> = chunks.next().await;
            if let Some(Ok(FlightStreamChunk { batch: Some(batch), .. })) = &next {
                recorded.add_batch(batch);
            }
            let next = recorded.finish_at_end(next).await?;
            Some((next, (chunks, recorded)))
        });
        Box::pin(chunks)
    }

    /// Wraps the results of an upload. The stream of results ends only after the outcome is recorded.
    pub(crate) fn record_upload(self, answers: PutResultStream) -> PutResultStream {
        let answers = stream::unfold((answers, self), |(mut answers, mut recorded)| async move {
            if !recorded.is_open {
                return None;
            }
            let next = answers.next().await;
            let next = recorded.finish_at_end(next).await?;
            Some((next, (answers, recorded)))
        });
        Box::pin(answers)
    }

    /// Returns the next item of a stream. If this item is the end or an error, records the outcome first.
    async fn finish_at_end<T>(&mut self, next: Option<Result<T, Status>>) -> Option<Result<T, Status>> {
        let outcome = match &next {
            Some(Ok(_)) => return next,
            Some(Err(status)) => status_outcome(status),
            None => OUTCOME_DONE.to_owned(),
        };
        match self.finish(outcome).await {
            Ok(()) => next,
            Err(status) => Some(Err(status)),
        }
    }
}

impl Drop for AccessRecorder {
    fn drop(&mut self) {
        if self.is_open {
            self.log.record_in_background(self.record.with_outcome(OUTCOME_ABORTED.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_begin_with_the_code() {
        assert_eq!(status_outcome(&Status::not_found("no x")), "NotFound: no x");
        assert_eq!(status_outcome(&Status::ok("")), "done");
    }
}
