//! The meaning of a failed call for a copy: whether a retry may succeed, and why the server rejects the call.

use godwit_flight::{Code, ErrorReason, FlightError, Status};

use crate::error::TransferError;

/// Reports whether a retry may succeed because the connection failed and not the request.
pub(crate) fn is_transient(error: &FlightError) -> bool {
    match error {
        FlightError::Connect { source, .. } => source.kind() != std::io::ErrorKind::InvalidData,
        FlightError::Connection { .. }
        | FlightError::Io { .. }
        | FlightError::MissingStatus { .. }
        | FlightError::Checksum { .. } => true,
        // Bits that are flipped in transit make messages unreadable.
        FlightError::Malformed { .. } | FlightError::TooLarge { .. } | FlightError::Arrow { .. } => true,
        FlightError::Status { status, .. } => {
            matches!(
                status.code(),
                Code::Unavailable | Code::Cancelled | Code::Unknown | Code::DeadlineExceeded | Code::Internal
            )
        }
        FlightError::Listen { .. }
        | FlightError::UntrustedCertificate { .. }
        | FlightError::TlsRequired { .. }
        | FlightError::Parameter { .. } => false,
    }
}

/// Reports whether a failed call has got no answer of the server. All such errors are transient.
pub(crate) fn is_unanswered(error: &FlightError) -> bool {
    match error {
        FlightError::Connect { .. } => is_transient(error),
        FlightError::Connection { .. } | FlightError::Io { .. } | FlightError::MissingStatus { .. } => true,
        FlightError::Status { status, .. } => status.code() == Code::Unavailable,
        _ => false,
    }
}

/// Converts a gRPC status of a server to an error of a copy.
pub(crate) fn error_from_status(error: FlightError) -> TransferError {
    match &error {
        FlightError::Status { status, .. } => {
            let problem = status.message().to_owned();
            match status.code() {
                Code::NotFound | Code::PermissionDenied => TransferError::rejected(problem),
                Code::ResourceExhausted | Code::Aborted | Code::DataLoss | Code::FailedPrecondition => {
                    TransferError::RemoteFailure { problem, reason: reason_of(&error) }
                }
                _ => error.into(),
            }
        }
        _ => error.into(),
    }
}

/// Reports whether a server cannot write received data, for example because its disk is full.
pub(crate) fn is_storage_full(error: &FlightError) -> bool {
    matches!(error, FlightError::Status { status, .. } if status.code() == Code::ResourceExhausted)
}

/// The message of a relay if the server behind it rejects the delegation token: that server was restarted, or the token
/// has expired.
// Clients of versions before `ErrorReason` search error messages for this text.
pub(crate) const UNKNOWN_TOKEN_MESSAGE: &str = "what was granted is not known there";

/// Reports whether the relay needs a new delegation token.
pub(crate) fn is_unknown_token(error: &FlightError) -> bool {
    reason_of(error) == Some(ErrorReason::GrantRejected)
}

/// Reports whether a server does not know the upload session: the server was restarted, or the session was idle for too
/// long.
pub(crate) fn is_unknown_session(error: &FlightError) -> bool {
    reason_of(error) == Some(ErrorReason::UnknownSession)
}

fn reason_of(error: &FlightError) -> Option<ErrorReason> {
    let FlightError::Status { status, .. } = error else { return None };
    ErrorReason::of(status).or_else(|| reason_in_text_of_earlier_version(status))
}

/// Returns the reason of an error of a server or relay from before [`ErrorReason`], which sent only messages. No other
/// function derives the reason from a message.
fn reason_in_text_of_earlier_version(status: &Status) -> Option<ErrorReason> {
    [
        ("this session is not known here", ErrorReason::UnknownSession),
        ("what was granted is not known there", ErrorReason::GrantRejected),
    ]
    .into_iter()
    .find_map(|(text, reason)| status.message().contains(text).then_some(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: Status) -> FlightError {
        FlightError::Status { peer: "s".to_owned(), status: Box::new(status) }
    }

    #[test]
    fn a_server_that_reports_an_error_has_answered() {
        for status in [Status::internal("x"), Status::unknown("x"), Status::cancelled("x")] {
            let error = answered(status);
            assert!(is_transient(&error) && !is_unanswered(&error), "{error}");
        }
        let unavailable = answered(Status::unavailable("x"));
        assert!(is_transient(&unavailable) && is_unanswered(&unavailable));
        let refused = |kind: std::io::ErrorKind| FlightError::Connect { address: "s".to_owned(), source: kind.into() };
        assert!(is_unanswered(&refused(std::io::ErrorKind::ConnectionRefused)));
        assert!(!is_unanswered(&refused(std::io::ErrorKind::InvalidData)));
    }

    #[test]
    fn a_lost_session_is_recognised_by_its_reason_whatever_the_message_is() {
        let reworded = answered(ErrorReason::UnknownSession.status(Code::ResourceExhausted, "no such upload"));
        assert!(is_unknown_session(&reworded) && !is_unknown_token(&reworded));
        assert!(is_unknown_session(&answered(TransferError::UnknownSession.into())));
        assert!(!is_unknown_session(&answered(Status::resource_exhausted("no such upload"))));
        let full =
            answered(ErrorReason::GrantRejected.status(Code::FailedPrecondition, "this session is not known here"));
        assert!(!is_unknown_session(&full));
    }

    #[test]
    fn a_lost_grant_is_recognised_by_its_reason_whatever_the_message_is() {
        let reworded = answered(ErrorReason::GrantRejected.status(Code::FailedPrecondition, "s: the grant expired"));
        assert!(is_unknown_token(&reworded) && !is_unknown_session(&reworded));
        assert!(!is_unknown_token(&answered(Status::failed_precondition("s: the grant expired"))));
    }

    #[test]
    fn servers_before_reasons_are_understood_by_their_texts() {
        assert!(is_unknown_session(&answered(Status::resource_exhausted("this session is not known here"))));
        let relayed = "grpc://s: what was granted is not known there: the token is missing or wrong";
        assert!(is_unknown_token(&answered(Status::failed_precondition(relayed))));
        // Clients of versions before `ErrorReason` search for the same texts.
        assert!(Status::from(TransferError::UnknownSession).message().contains("this session is not known here"));
        assert_eq!(UNKNOWN_TOKEN_MESSAGE, "what was granted is not known there");
    }
}
