//! Records of data accesses for the audit log: the server writes one record before it sends data, and one at the end.

use std::fmt;
use std::sync::Arc;

use arrow_array::RecordBatch;
use futures_util::{StreamExt as _, stream};
use tonic::{Code, Status};

use crate::auth::Principal;
use crate::call_streams::{Download, ExchangeStream, PutResultStream, StatusFuture, WebStream};
use crate::code_name::code_name;
use crate::codec::FlightStreamChunk;
use crate::dataset::DatasetAccess;

/// Outcome in the record that is written before the server sends the first data.
pub(crate) const OUTCOME_STARTED: &str = "begun";
/// Outcome of an access for which the server has sent all data.
pub(crate) const OUTCOME_DONE: &str = "done";
/// Outcome of an access that the client ended before the server had sent all data.
const OUTCOME_ABORTED: &str = "broken off";

/// A record of one data access, for the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessRecord {
    /// Name of the principal; empty if authentication is disabled.
    pub principal: String,
    /// The scope to which the token limits the principal; `None` if it is not limited.
    pub scope: Option<String>,
    /// Name of the call, such as `DoGet`.
    pub call: String,
    /// The accessed resource: a dataset, an SQL statement, a file or an action.
    pub resource: String,
    /// The datasets that the call opened, each with the access rule that allowed it.
    pub datasets: Vec<DatasetAccess>,
    /// Number of rows that were sent or received.
    pub rows: u64,
    /// Bytes of these rows as Arrow buffers, without message framing; for files, bytes of the file.
    pub bytes: u64,
    /// `begun`, `done`, `broken off`, or, after a failure, the name of the gRPC code and the error message.
    pub outcome: String,
}

impl AccessRecord {
    /// Creates a record that contains only the principal and the name of the call.
    pub(crate) fn new(principal: &Principal, call: &str) -> Self {
        let scope = principal.scope().map(str::to_owned);
        Self { principal: principal.name().to_owned(), scope, call: call.to_owned(), ..Self::default() }
    }

    fn add_batch(&mut self, batch: &RecordBatch) {
        self.rows += batch.num_rows() as u64;
        let bytes = batch.columns().iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or_default());
        self.bytes += bytes.sum::<usize>() as u64;
    }

    /// Returns a copy of the record with this outcome.
    pub(crate) fn with_outcome(&self, outcome: String) -> Self {
        Self { outcome, ..self.clone() }
    }
}

/// A durable log of data accesses (audit log).
///
/// # Examples
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::{Arc, Mutex, PoisonError};
///
/// use godwit_flight::{AccessLog, AccessRecord, StatusFuture};
/// # use godwit_flight::{Catalog, DataPlane, Dataset, DatasetError, DatasetService, DatasetServiceOptions, Principal};
///
/// #[derive(Debug, Default)]
/// struct MemoryLog(Mutex<Vec<AccessRecord>>);
///
/// impl AccessLog for MemoryLog {
///     fn record(&self, access: AccessRecord) -> StatusFuture<'_, ()> {
///         self.record_in_background(access);
///         Box::pin(std::future::ready(Ok(())))
///     }
///
///     fn record_in_background(&self, access: AccessRecord) {
///         self.0.lock().unwrap_or_else(PoisonError::into_inner).push(access);
///     }
/// }
///
/// # #[derive(Debug)]
/// # struct NoDatasets;
/// # impl Catalog for NoDatasets {
/// #     fn names(&self) -> Result<Vec<String>, DatasetError> {
/// #         Ok(Vec::new())
/// #     }
/// #     fn open(&self, name: &str) -> Result<Arc<dyn Dataset>, DatasetError> {
/// #         Err(DatasetError::NotFound { name: name.to_owned() })
/// #     }
/// # }
/// let log = Arc::new(MemoryLog::default());
/// let options = DatasetServiceOptions { access_log: Some(log.clone()), ..DatasetServiceOptions::default() };
/// let service = DatasetService::new(Arc::new(NoDatasets), None, options);
/// assert!(service.download(Principal::named("alice"), "not a ticket".into()).await.is_err());
/// let records = log.0.lock().unwrap_or_else(PoisonError::into_inner);
/// assert_eq!((records[0].principal.as_str(), records[0].call.as_str()), ("alice", "DoGet"));
/// # Ok(())
/// # }
/// ```
pub trait AccessLog: fmt::Debug + Send + Sync {
    /// Records an access. The returned future completes when the record is durable.
    fn record(&self, access: AccessRecord) -> StatusFuture<'_, ()>;

    /// Records an access without waiting until it is durable, for callers in synchronous code.
    fn record_in_background(&self, access: AccessRecord);
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
        log.record(record.with_outcome(OUTCOME_STARTED.to_owned())).await?;
        Ok(Self { log: log.clone(), record, is_open: true })
    }

    /// Replaces the datasets of the record by those that the call has opened so far.
    pub(crate) fn with_datasets_of(mut self, caller: &Principal) -> Self {
        self.record.datasets = caller.accesses().to_vec();
        self
    }

    pub(crate) fn add_batch(&mut self, batch: &RecordBatch) {
        self.record.add_batch(batch);
    }

    /// Counts the bytes of a stream that consists of plain bytes instead of batches. Records the outcome before it
    /// passes on the last bytes, because a client that knows `length` may stop reading after them.
    pub(crate) fn record_bytes(self, bytes: WebStream, length: u64) -> WebStream {
        let bytes = stream::unfold((bytes, self), move |(mut bytes, mut recorded)| async move {
            if !recorded.is_open {
                return None;
            }
            let mut next = bytes.next().await;
            if let Some(Ok(bytes)) = &next {
                recorded.record.bytes += bytes.len() as u64;
            }
            if recorded.record.bytes >= length && matches!(next, Some(Ok(_))) {
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
        self.log.record(self.record.with_outcome(outcome)).await
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
