//! The error kind, and so the exit code, of each error of the crates that do the work.

use godwit_dataset::DatasetError;
use godwit_delta::DeltaError;
use godwit_flight::{Code, ErrorReason, FlightError, Status};
use godwit_io::bgzf::BgzfError;
use godwit_model::{is_system_failure, message_with_causes};
use godwit_pipeline::PipelineError;
use godwit_query::{ScoreError, StatementError};
use godwit_rules::{AuditError, PolicyError};
use godwit_search::SearchError;
use godwit_transfer::TransferError;

use crate::failure::Failure;
use godwit_model::ErrorKind;

impl From<PipelineError> for Failure {
    fn from(error: PipelineError) -> Self {
        Self::new(error.kind(), message_with_causes(&error))
    }
}

impl From<FlightError> for Failure {
    fn from(error: FlightError) -> Self {
        let kind = match &error {
            FlightError::Listen { .. } => ErrorKind::Machine,
            _ => ErrorKind::Remote,
        };
        Self::new(kind, message_with_causes(&error))
    }
}

impl From<DatasetError> for Failure {
    fn from(error: DatasetError) -> Self {
        let kind = match error {
            DatasetError::NotFound { .. } | DatasetError::InvalidRequest { .. } => ErrorKind::Usage,
            DatasetError::Changed { .. }
            | DatasetError::Forbidden { .. }
            | DatasetError::AlreadyExists { .. }
            | DatasetError::Local(_) => ErrorKind::Machine,
            DatasetError::Data(_) => ErrorKind::Input,
            DatasetError::Remote(_) => ErrorKind::Remote,
        };
        Self::new(kind, message_with_causes(&error))
    }
}

impl From<StatementError> for Failure {
    fn from(error: StatementError) -> Self {
        let kind = match &error {
            StatementError::Failed(status) => statement_error_kind(status),
            StatementError::Output { .. } => ErrorKind::Machine,
        };
        Self::new(kind, message_with_causes(&error))
    }
}

/// Returns the error kind of a statement that failed in this process or in a process of `godwit-sql`.
fn statement_error_kind(status: &Status) -> ErrorKind {
    match (ErrorReason::of(status), status.code()) {
        (Some(ErrorReason::NotAQuery), _) => ErrorKind::Usage,
        (Some(ErrorReason::StatementFailed), _) => ErrorKind::Input,
        (Some(ErrorReason::SourceUnavailable), _) => ErrorKind::Remote,
        (_, Code::InvalidArgument | Code::NotFound) => ErrorKind::Usage,
        (_, Code::DataLoss) => ErrorKind::Input,
        (_, Code::Internal | Code::Unknown) => ErrorKind::Bug,
        _ => ErrorKind::Machine,
    }
}

impl From<SearchError> for Failure {
    fn from(error: SearchError) -> Self {
        let error = match error {
            SearchError::WorkersUnavailable(error) => return PipelineError::from(*error).into(),
            error => error,
        };
        Self::new(error.kind(), message_with_causes(&error))
    }
}

impl From<TransferError> for Failure {
    fn from(error: TransferError) -> Self {
        let kind = transfer_error_kind(&error);
        Self::new(kind, message_with_causes(&error))
    }
}

/// Returns the error kind of an error of a copy.
fn transfer_error_kind(error: &TransferError) -> ErrorKind {
    match error {
        TransferError::NotFound { .. } | TransferError::Rejected { .. } => ErrorKind::Usage,
        TransferError::Io { .. } | TransferError::Busy { .. } => ErrorKind::Machine,
        TransferError::SourceChanged { .. }
        | TransferError::Damaged { .. }
        | TransferError::ChecksumMismatch { .. }
        | TransferError::Unsupported { .. } => ErrorKind::Input,
        TransferError::Delta { source, .. } => delta_error_kind(source),
        TransferError::RemoteFailure { .. }
        | TransferError::UnknownSession
        | TransferError::Timeout { .. }
        | TransferError::Flight(_) => ErrorKind::Remote,
        // The file existed when the directory was listed, so the command line is correct and the input has changed.
        TransferError::PartialFailure { first_failure, .. }
            if matches!(**first_failure, TransferError::NotFound { .. }) =>
        {
            ErrorKind::Input
        }
        TransferError::PartialFailure { first_failure: first, .. } => transfer_error_kind(first),
        TransferError::Interrupted => ErrorKind::Interrupted,
        TransferError::Internal { .. } => ErrorKind::Bug,
    }
}

impl From<DeltaError> for Failure {
    fn from(error: DeltaError) -> Self {
        Self::new(delta_error_kind(&error), message_with_causes(&error))
    }
}

/// Returns the error kind of an error of delta compression.
fn delta_error_kind(error: &DeltaError) -> ErrorKind {
    match error {
        DeltaError::Reference(source) if is_system_failure(source) => ErrorKind::Machine,
        DeltaError::Input(source) if is_system_failure(source) => ErrorKind::Machine,
        // Errors of decompressing the input also arrive as stream errors; they are about the input, not this host.
        DeltaError::Stream { source, .. } if is_invalid_text(source) => ErrorKind::Input,
        DeltaError::Io { .. } | DeltaError::Stream { .. } | DeltaError::Thread(_) => ErrorKind::Machine,
        DeltaError::MissingReference { .. } | DeltaError::ContigNotFound { .. } | DeltaError::BeyondEnd { .. } => {
            ErrorKind::Usage
        }
        DeltaError::RoundTripMismatch => ErrorKind::Bug,
        DeltaError::Cancelled => ErrorKind::Interrupted,
        _ => ErrorKind::Input,
    }
}

/// Returns whether reading failed because the compressed input is invalid, and not because of a problem of this host.
fn is_invalid_text(error: &std::io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<BgzfError>());
    inner.is_some_and(|inner| !is_system_failure(inner))
}

impl From<ScoreError> for Failure {
    fn from(error: ScoreError) -> Self {
        let kind = match error {
            ScoreError::NotAScoringService { .. } | ScoreError::InvalidResponse { .. } => ErrorKind::Remote,
            ScoreError::ColumnNotFound { .. } | ScoreError::ColumnConflict { .. } => ErrorKind::Usage,
            ScoreError::MissingFeatures { .. } | ScoreError::RowsRejected { .. } => ErrorKind::Input,
            ScoreError::Rows(error) => return error.into(),
            ScoreError::Flight(error) => return error.into(),
        };
        Self::new(kind, message_with_causes(&error))
    }
}

impl From<PolicyError> for Failure {
    fn from(error: PolicyError) -> Self {
        let kind = match error {
            PolicyError::File { .. } => ErrorKind::Machine,
            PolicyError::Syntax { .. } | PolicyError::Rule { .. } => ErrorKind::Input,
        };
        Self::new(kind, message_with_causes(&error))
    }
}

impl From<AuditError> for Failure {
    fn from(error: AuditError) -> Self {
        let kind = match error {
            AuditError::File { .. } | AuditError::Locked { .. } => ErrorKind::Machine,
            AuditError::Broken { .. } => ErrorKind::Input,
        };
        Self::new(kind, message_with_causes(&error))
    }
}

#[cfg(test)]
mod tests {
    use godwit_dataset::DatasetError;
    use godwit_flight::dataset_status;

    use super::*;

    #[test]
    fn a_failed_statement_has_the_exit_code_of_its_cause() {
        let error = || "x".into();
        let failed = |reason: ErrorReason, code| reason.status(code, "x");
        for (status, kind) in [
            (Status::invalid_argument("no such column"), ErrorKind::Usage),
            (failed(ErrorReason::TableNotFound, Code::NotFound), ErrorKind::Usage),
            (failed(ErrorReason::NotAQuery, Code::PermissionDenied), ErrorKind::Usage),
            (failed(ErrorReason::StatementFailed, Code::InvalidArgument), ErrorKind::Input),
            (Status::resource_exhausted("memory"), ErrorKind::Machine),
            (dataset_status(DatasetError::Forbidden { problem: "x".into() }), ErrorKind::Machine),
            (dataset_status(DatasetError::Changed { name: "x".into() }), ErrorKind::Machine),
            (dataset_status(DatasetError::Data(error())), ErrorKind::Input),
            (dataset_status(DatasetError::Local(error())), ErrorKind::Machine),
            (dataset_status(DatasetError::Remote(error())), ErrorKind::Remote),
            (Status::internal("a bug in godwit"), ErrorKind::Bug),
        ] {
            assert_eq!(statement_error_kind(&status), kind, "{status}");
        }
    }
}
