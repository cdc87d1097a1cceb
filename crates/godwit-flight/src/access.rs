//! What is recorded of accesses, and how: a line before data leave, and one when they have left.

use std::fmt;
use std::sync::Arc;

use arrow_array::RecordBatch;
use futures_util::{StreamExt as _, stream};
use tonic::{Code, Status};

use crate::codec::Chunk;
use crate::dataset::Touched;
use crate::gate::Caller;
use crate::server::{Answers, Chunks, Download};
use crate::sql::Pending;
use crate::web::WebStream;

/// What is said of data that begin to leave.
pub(crate) const BEGUN: &str = "begun";
/// What is said of data that have left.
pub(crate) const DONE: &str = "done";
/// What is said where the client has not taken everything.
const BROKEN_OFF: &str = "broken off";

/// An access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accessed {
    /// Who; empty where nobody was asked.
    pub who: String,
    /// The one thing that was granted, where only one was.
    pub granted: Option<String>,
    /// What was called, as `DoGet`.
    pub call: String,
    /// What it was about: a dataset, a statement, a file, an action.
    pub what: String,
    /// The datasets it came to, and the rules that let them be seen.
    pub touched: Vec<Touched>,
    /// Rows that left, or came.
    pub rows: u64,
    /// Their bytes, before they are framed.
    pub bytes: u64,
    /// `begun`, `done`, `broken off`, or why not: a code of gRPC and a text.
    pub outcome: String,
}

impl Accessed {
    /// A call of a caller, of which nothing else is known yet.
    pub(crate) fn of(caller: &Caller, call: &str) -> Self {
        let granted = caller.purpose().map(str::to_owned);
        Self { who: caller.name().to_owned(), granted, call: call.to_owned(), ..Self::default() }
    }

    fn count(&mut self, batch: &RecordBatch) {
        self.rows += batch.num_rows() as u64;
        let bytes = batch.columns().iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or_default());
        self.bytes += bytes.sum::<usize>() as u64;
    }

    /// With what came of it.
    pub(crate) fn ended(&self, outcome: String) -> Self {
        Self { outcome, ..self.clone() }
    }
}

/// Keeps what was accessed.
pub trait AccessLog: fmt::Debug + Send + Sync {
    /// Keeps an access for good; done when nothing can lose it.
    fn record(&self, access: Accessed) -> Pending<'_, ()>;

    /// The same, for who cannot wait.
    fn note(&self, access: Accessed);
}

/// What was said of a call that failed.
pub(crate) fn outcome_of(status: &Status) -> String {
    match status.code() {
        Code::Ok => DONE.to_owned(),
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
pub(crate) struct Recorded {
    log: Arc<dyn AccessLog>,
    access: Accessed,
    open: bool,
}

impl Recorded {
    /// Records that something begins. Nothing may leave where that fails.
    pub(crate) async fn begin(log: &Arc<dyn AccessLog>, access: Accessed) -> Result<Self, Status> {
        log.record(access.ended(BEGUN.to_owned())).await?;
        Ok(Self { log: log.clone(), access, open: true })
    }

    /// With what the call has come to by now.
    pub(crate) fn touching(mut self, caller: &Caller) -> Self {
        self.access.touched = caller.touches().all();
        self
    }

    pub(crate) fn count(&mut self, batch: &RecordBatch) {
        self.access.count(batch);
    }

    /// So many bytes that are in no batch, counted. The last of them leave only once it is recorded that all did: who knows how
    /// many there are does not ask for the end.
    pub(crate) fn bytes(self, bytes: WebStream, length: u64) -> WebStream {
        let bytes = stream::unfold((bytes, self), move |(mut bytes, mut recorded)| async move {
            if !recorded.open {
                return None;
            }
            let mut next = bytes.next().await;
            if let Some(Ok(bytes)) = &next {
                recorded.access.bytes += bytes.len() as u64;
            }
            if recorded.access.bytes >= length && matches!(next, Some(Ok(_))) {
                if let Err(status) = recorded.end(DONE.to_owned()).await {
                    next = Some(Err(status));
                }
            } else {
                next = recorded.close_at_the_end(next).await;
            }
            Some((next?, (bytes, recorded)))
        });
        Box::pin(bytes)
    }

    pub(crate) async fn end(&mut self, outcome: String) -> Result<(), Status> {
        self.open = false;
        self.log.record(self.access.ended(outcome)).await
    }

    /// The same batches, counted. The end of them is told only once it is recorded.
    pub(crate) fn download(self, download: Download) -> Download {
        let batches = stream::unfold((download.batches, self), |(mut batches, mut recorded)| async move {
            if !recorded.open {
                return None;
            }
            let next = batches.next().await;
            if let Some(Ok((batch, _))) = &next {
                recorded.count(batch);
            }
            let next = recorded.close_at_the_end(next).await?;
            Some((next, (batches, recorded)))
        });
        Download { schema: download.schema, batches: Box::pin(batches) }
    }

    /// The same for an exchange.
    pub(crate) fn chunks(self, chunks: Chunks) -> Chunks {
        let chunks = stream::unfold((chunks, self), |(mut chunks, mut recorded)| async move {
            if !recorded.open {
                return None;
            }
            let next: Option<Result<Chunk, Status>> = chunks.next().await;
            if let Some(Ok(Chunk { batch: Some(batch), .. })) = &next {
                recorded.count(batch);
            }
            let next = recorded.close_at_the_end(next).await?;
            Some((next, (chunks, recorded)))
        });
        Box::pin(chunks)
    }

    /// The same for what is said of an upload.
    pub(crate) fn answers(self, answers: Answers) -> Answers {
        let answers = stream::unfold((answers, self), |(mut answers, mut recorded)| async move {
            if !recorded.open {
                return None;
            }
            let next = answers.next().await;
            let next = recorded.close_at_the_end(next).await?;
            Some((next, (answers, recorded)))
        });
        Box::pin(answers)
    }

    /// The next thing to say, with the access recorded where it is the last.
    async fn close_at_the_end<T>(&mut self, next: Option<Result<T, Status>>) -> Option<Result<T, Status>> {
        let outcome = match &next {
            Some(Ok(_)) => return next,
            Some(Err(status)) => outcome_of(status),
            None => DONE.to_owned(),
        };
        match self.end(outcome).await {
            Ok(()) => next,
            Err(status) => Some(Err(status)),
        }
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        if self.open {
            self.log.note(self.access.ended(BROKEN_OFF.to_owned()));
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
        assert_eq!(outcome_of(&Status::not_found("no x")), "NotFound: no x");
        assert_eq!(outcome_of(&Status::ok("")), "done");
    }
}
