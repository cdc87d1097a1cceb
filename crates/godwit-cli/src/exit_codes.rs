//! The exit code of each error of the crates that do the work.

use godwit_dataset::DatasetError;
use godwit_delta::DeltaError;
use godwit_flight::{Code, ErrorReason, FlightError, Status};
use godwit_io::bgzf::BgzfError;
use godwit_model::{is_system_failure, message_with_causes};
use godwit_pipeline::PipelineError;
use godwit_query::{ScoreError, StatementError};
use godwit_rules::{AuditError, PolicyError};
use godwit_search::{ErrorKind as SearchErrorKind, SearchError};
use godwit_transfer::TransferError;

use crate::failure::{Exit, Failure};

impl From<PipelineError> for Failure {
    fn from(error: PipelineError) -> Self {
        Self::new(error.kind().into(), message_with_causes(&error))
    }
}

impl From<FlightError> for Failure {
    fn from(error: FlightError) -> Self {
        let exit = match &error {
            FlightError::Listen { .. } => Exit::Machine,
            _ => Exit::Remote,
        };
        Self::new(exit, message_with_causes(&error))
    }
}

impl From<DatasetError> for Failure {
    fn from(error: DatasetError) -> Self {
        let exit = match error {
            DatasetError::NotFound { .. } | DatasetError::InvalidRequest { .. } => Exit::Usage,
            DatasetError::Changed { .. }
            | DatasetError::Forbidden { .. }
            | DatasetError::AlreadyExists { .. }
            | DatasetError::Local(_) => Exit::Machine,
            DatasetError::Data(_) => Exit::Input,
            DatasetError::Remote(_) => Exit::Remote,
        };
        Self::new(exit, message_with_causes(&error))
    }
}

impl From<StatementError> for Failure {
    fn from(error: StatementError) -> Self {
        let exit = match &error {
            StatementError::Failed(status) => statement_exit(status),
            StatementError::Output { .. } => Exit::Machine,
        };
        Self::new(exit, message_with_causes(&error))
    }
}

/// Returns the exit code for a statement that failed in this process or in a process of `godwit-sql`.
fn statement_exit(status: &Status) -> Exit {
    match (ErrorReason::of(status), status.code()) {
        (Some(ErrorReason::NotAQuery), _) => Exit::Usage,
        (Some(ErrorReason::StatementFailed), _) => Exit::Input,
        (Some(ErrorReason::SourceUnavailable), _) => Exit::Remote,
        (_, Code::InvalidArgument | Code::NotFound) => Exit::Usage,
        (_, Code::DataLoss) => Exit::Input,
        (_, Code::Internal | Code::Unknown) => Exit::Bug,
        _ => Exit::Machine,
    }
}

impl From<SearchError> for Failure {
    fn from(error: SearchError) -> Self {
        let error = match error {
            SearchError::WorkersUnavailable(error) => return PipelineError::from(*error).into(),
            error => error,
        };
        let exit = match error.kind() {
            SearchErrorKind::Usage => Exit::Usage,
            SearchErrorKind::Input => Exit::Input,
            SearchErrorKind::Machine => Exit::Machine,
            SearchErrorKind::Engine => Exit::Engine,
            SearchErrorKind::Remote => Exit::Remote,
            SearchErrorKind::Interrupted => Exit::Interrupted,
            SearchErrorKind::Bug => Exit::Bug,
        };
        Self::new(exit, message_with_causes(&error))
    }
}

impl From<TransferError> for Failure {
    fn from(error: TransferError) -> Self {
        let exit = transfer_exit(&error);
        Self::new(exit, message_with_causes(&error))
    }
}

/// Returns the exit code for an error of a copy.
fn transfer_exit(error: &TransferError) -> Exit {
    match error {
        TransferError::NotFound { .. } | TransferError::Rejected { .. } => Exit::Usage,
        TransferError::Io { .. } | TransferError::Busy { .. } => Exit::Machine,
        TransferError::SourceChanged { .. }
        | TransferError::Damaged { .. }
        | TransferError::ChecksumMismatch { .. }
        | TransferError::Unsupported { .. } => Exit::Input,
        TransferError::Delta { source, .. } => delta_exit(source),
        TransferError::RemoteFailure { .. }
        | TransferError::UnknownSession
        | TransferError::Timeout { .. }
        | TransferError::Flight(_) => Exit::Remote,
        // The file existed when the directory was listed, so the command line is correct and the input has changed.
        TransferError::PartialFailure { first_failure, .. }
            if matches!(**first_failure, TransferError::NotFound { .. }) =>
        {
            Exit::Input
        }
        TransferError::PartialFailure { first_failure: first, .. } => transfer_exit(first),
        TransferError::Interrupted => Exit::Interrupted,
        TransferError::Internal { .. } => Exit::Bug,
    }
}

impl From<DeltaError> for Failure {
    fn from(error: DeltaError) -> Self {
        Self::new(delta_exit(&error), message_with_causes(&error))
    }
}

/// Returns the exit code for an error of delta compression.
fn delta_exit(error: &DeltaError) -> Exit {
    match error {
        DeltaError::Reference(source) if is_system_failure(source) => Exit::Machine,
        DeltaError::Input(source) if is_system_failure(source) => Exit::Machine,
        // Errors of decompressing the input also arrive as stream errors; they are about the input, not this host.
        DeltaError::Stream { source, .. } if is_invalid_text(source) => Exit::Input,
        DeltaError::Io { .. } | DeltaError::Stream { .. } | DeltaError::Thread(_) => Exit::Machine,
        DeltaError::MissingReference { .. } | DeltaError::ContigNotFound { .. } | DeltaError::BeyondEnd { .. } => {
            Exit::Usage
        }
        DeltaError::RoundTripMismatch => Exit::Bug,
        DeltaError::Cancelled => Exit::Interrupted,
        _ => Exit::Input,
    }
}

/// Returns whether reading failed because the compressed input is invalid, and not because of a problem of this host.
fn is_invalid_text(error: &std::io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<BgzfError>());
    inner.is_some_and(|inner| !is_system_failure(inner))
}

impl From<ScoreError> for Failure {
    fn from(error: ScoreError) -> Self {
        let exit = match error {
            ScoreError::NotAScoringService { .. } | ScoreError::InvalidResponse { .. } => Exit::Remote,
            ScoreError::ColumnNotFound { .. } | ScoreError::ColumnConflict { .. } => Exit::Usage,
            ScoreError::MissingFeatures { .. } | ScoreError::RowsRejected { .. } => Exit::Input,
            ScoreError::Rows(error) => return error.into(),
            ScoreError::Flight(error) => return error.into(),
        };
        Self::new(exit, message_with_causes(&error))
    }
}

impl From<PolicyError> for Failure {
    fn from(error: PolicyError) -> Self {
        let exit = match error {
            PolicyError::File { .. } => Exit::Machine,
            PolicyError::Syntax { .. } | PolicyError::Rule { .. } => Exit::Input,
        };
        Self::new(exit, message_with_causes(&error))
    }
}

impl From<AuditError> for Failure {
    fn from(error: AuditError) -> Self {
        let exit = match error {
            AuditError::File { .. } | AuditError::Locked { .. } => Exit::Machine,
            AuditError::Broken { .. } => Exit::Input,
        };
        Self::new(exit, message_with_causes(&error))
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
        for (status, exit) in [
            (Status::invalid_argument("no such column"), Exit::Usage),
            (failed(ErrorReason::TableNotFound, Code::NotFound), Exit::Usage),
            (failed(ErrorReason::NotAQuery, Code::PermissionDenied), Exit::Usage),
            (failed(ErrorReason::StatementFailed, Code::InvalidArgument), Exit::Input),
            (Status::resource_exhausted("memory"), Exit::Machine),
            (dataset_status(DatasetError::Forbidden { problem: "x".into() }), Exit::Machine),
            (dataset_status(DatasetError::Changed { name: "x".into() }), Exit::Machine),
            (dataset_status(DatasetError::Data(error())), Exit::Input),
            (dataset_status(DatasetError::Local(error())), Exit::Machine),
            (dataset_status(DatasetError::Remote(error())), Exit::Remote),
            (Status::internal("a bug in godwit"), Exit::Bug),
        ] {
            assert_eq!(statement_exit(&status), exit, "{status}");
        }
    }
}
