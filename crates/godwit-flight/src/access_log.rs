//! Records of accesses: one line before data leave, and one when they have left.

use std::fmt;
use std::sync::Arc;

use arrow_array::RecordBatch;
use futures_util::{StreamExt as _, stream};
use tonic::{Code, Status};

use crate::auth::Principal;
use crate::codec::FlightStreamChunk;
use crate::dataset::DatasetAccess;
use crate::server::{Download, ExchangeStream, PutResultStream};
use crate::sql::StatusFuture;
use crate::web::WebStream;

/// Outcome of an access whose data begin to leave.
pub(crate) const OUTCOME_STARTED: &str = "begun";
/// Outcome of an access whose data have all left.
pub(crate) const OUTCOME_DONE: &str = "done";
/// Outcome where the client has not received everything.
const OUTCOME_ABORTED: &str = "broken off";

/// The record of one access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessRecord {
    /// Name of the principal; empty where authentication is disabled.
    pub principal: String,
    /// The scope of the principal, where it has one.
    pub scope: Option<String>,
    /// Name of the call, such as `DoGet`.
    pub call: String,
    /// The resource: a dataset, a statement, a file, an action.
    pub resource: String,
    /// The datasets that the call opened, and the rules that allowed it.
    pub datasets: Vec<DatasetAccess>,
    /// Rows that were sent or received.
    pub rows: u64,
    /// Bytes of these rows, before framing.
    pub bytes: u64,
    /// `begun`, `done`, `broken off`, or the failure: a gRPC code and a text.
    pub outcome: String,
}

impl AccessRecord {
    /// Creates the record of a call of which nothing else is known yet.
    pub(crate) fn new(principal: &Principal, call: &str) -> Self {
        let scope = principal.scope().map(str::to_owned);
        Self { principal: principal.name().to_owned(), scope, call: call.to_owned(), ..Self::default() }
    }

    fn add_batch(&mut self, batch: &RecordBatch) {
        self.rows += batch.num_rows() as u64;
        let bytes = batch.columns().iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or_default());
        self.bytes += bytes.sum::<usize>() as u64;
    }

    /// Returns a copy with this outcome.
    pub(crate) fn with_outcome(&self, outcome: String) -> Self {
        Self { outcome, ..self.clone() }
    }
}

/// A durable log of accesses.
pub trait AccessLog: fmt::Debug + Send + Sync {
    /// Records an access; ready when the record is durable.
    fn record(&self, access: AccessRecord) -> StatusFuture<'_, ()>;

    /// Records an access without waiting, for callers that cannot wait.
    fn record_in_background(&self, access: AccessRecord);
}

/// Returns the outcome of a call that failed.
pub(crate) fn status_outcome(status: &Status) -> String {
    match status.code() {
        Code::Ok => OUTCOME_DONE.to_owned(),
        code => format!("{}: {}", code_name(code), status.message()),
    }
}

/// Returns the name of a code of gRPC in records of access, in metrics and in spans. Files on disk and dashboards hold these names: they
/// are independent of the names in tonic.
pub(crate) fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "Ok",
        Code::Cancelled => "Cancelled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

/// Records an access when it ends, also where it is dropped before.
pub(crate) struct AccessRecorder {
    log: Arc<dyn AccessLog>,
    record: AccessRecord,
    is_open: bool,
}

impl AccessRecorder {
    /// Records that an access starts. No data may leave where that fails.
    pub(crate) async fn start(log: &Arc<dyn AccessLog>, record: AccessRecord) -> Result<Self, Status> {
        log.record(record.with_outcome(OUTCOME_STARTED.to_owned())).await?;
        Ok(Self { log: log.clone(), record, is_open: true })
    }

    /// Adds the datasets that the call has opened by now.
    pub(crate) fn with_datasets_of(mut self, caller: &Principal) -> Self {
        self.record.datasets = caller.accesses().to_vec();
        self
    }

    pub(crate) fn add_batch(&mut self, batch: &RecordBatch) {
        self.record.add_batch(batch);
    }

    /// Counts bytes that are in no batch. The last bytes leave only after the outcome is recorded: a client that knows the
    /// length does not read to the end of the stream.
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

    /// Counts the batches of a download. The stream ends only after the outcome is recorded.
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

    /// Counts the batches of an exchange in the same way.
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

    /// Wraps the results of an upload in the same way.
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

    /// Returns the next item, after recording the outcome where the stream ends.
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
    fn outcomes_begin_with_the_code_by_the_names_of_earlier_versions() {
        let names: Vec<&str> = (0..17).map(|code| code_name(Code::from_i32(code))).collect();
        let expected = "Ok Cancelled Unknown InvalidArgument DeadlineExceeded NotFound AlreadyExists PermissionDenied \
                        ResourceExhausted FailedPrecondition Aborted OutOfRange Unimplemented Internal Unavailable DataLoss \
                        Unauthenticated";
        assert_eq!(names.join(" "), expected);
        assert_eq!(status_outcome(&Status::not_found("no x")), "NotFound: no x");
        assert_eq!(status_outcome(&Status::ok("")), "done");
    }
}
