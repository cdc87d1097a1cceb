//! Machine-readable reasons of failed calls. Client programs use the reason of a status and never parse its message.
//!
//! The trailer `grpc-status-details-bin` contains the reason as a `google.rpc.Status` with one `google.rpc.ErrorInfo`
//! of the domain [`DOMAIN`] (googleapis `google/rpc/error_details.proto`). Stock clients can read it: grpc-go and
//! grpc-java as details of the status, pyarrow in a client middleware. A relay forwards the reason together with the
//! status. A status of another program or of an earlier version of godwit has no reason.

use prost::Message;
use tonic::{Code, Status};

/// The `ErrorInfo.domain` of all reasons that godwit sends.
const DOMAIN: &str = "godwit";
/// The protobuf type URL of `google.rpc.ErrorInfo`, which contains the reason.
const ERROR_INFO_TYPE: &str = "type.googleapis.com/google.rpc.ErrorInfo";
/// Maximum length of the copy of the error message in the details, bytes. The trailers also contain the message itself,
/// and clients accept only about 8 KiB of trailers.
const MAX_MESSAGE_BYTES: usize = 1024;

/// The reason why a call failed. The transmitted names ([`ErrorReason::name`]) never change; new reasons may be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorReason {
    /// The server has no upload session of this name: the server was restarted, or the session was idle for too long.
    UnknownSession,
    /// The server behind a relay does not accept the grant of the client: the server was restarted, or the grant is too
    /// old.
    GrantRejected,
    /// The ticket has expired.
    TicketExpired,
    /// The ticket was issued by another server.
    TicketOfOtherServer,
    /// The ticket was issued to another principal.
    TicketOfOtherPrincipal,
    /// The server does not know the action.
    UnknownAction,
    /// A dataset of this name does not exist, or the principal may not see it.
    DatasetNotFound,
    /// The dataset changed after the ticket was issued.
    DatasetChanged,
    /// A table of this name does not exist.
    TableNotFound,
    /// The SQL statement is not a query.
    NotAQuery,
    /// The SQL statement is valid, but it failed while its rows were computed.
    StatementFailed,
    /// The server from which the dataset is read did not respond as expected.
    SourceUnavailable,
    /// The storage of the server is full.
    StorageFull,
    /// The quota of the server's user on its storage is exceeded.
    QuotaExceeded,
    /// A file or directory of this name exists already.
    FileExists,
    /// The directory contains files.
    DirectoryNotEmpty,
    /// A component of the path is not a directory.
    NotADirectory,
    /// The path is that of a directory, and the call requires a file.
    IsADirectory,
    /// The storage of the server does not support this file name, for example because it is too long.
    InvalidFileName,
    /// The storage of the server is read-only.
    ReadOnlyStorage,
    /// The old and the new path are on different file systems of the server.
    CrossesDevices,
    /// The storage of the server does not support files of this size.
    FileTooLarge,
    /// The user of the server process has no permission to access the file.
    StorageAccessDenied,
    /// The server cannot run SQL statements, for example because a program is missing. Another server may.
    SqlUnavailable,
}

/// The protobuf message `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
struct StatusDetails {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<prost_types::Any>,
}

/// The protobuf message `google.rpc.ErrorInfo` without its field `metadata`.
#[derive(Clone, PartialEq, Message)]
struct ErrorInfo {
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(string, tag = "2")]
    domain: String,
}

impl ErrorReason {
    const ALL: [Self; 24] = [
        Self::UnknownSession,
        Self::GrantRejected,
        Self::TicketExpired,
        Self::TicketOfOtherServer,
        Self::TicketOfOtherPrincipal,
        Self::UnknownAction,
        Self::DatasetNotFound,
        Self::DatasetChanged,
        Self::TableNotFound,
        Self::NotAQuery,
        Self::StatementFailed,
        Self::SourceUnavailable,
        Self::StorageFull,
        Self::QuotaExceeded,
        Self::FileExists,
        Self::DirectoryNotEmpty,
        Self::NotADirectory,
        Self::IsADirectory,
        Self::InvalidFileName,
        Self::ReadOnlyStorage,
        Self::CrossesDevices,
        Self::FileTooLarge,
        Self::StorageAccessDenied,
        Self::SqlUnavailable,
    ];

    /// Returns the transmitted name of the reason.
    pub fn name(self) -> &'static str {
        match self {
            Self::UnknownSession => "UNKNOWN_SESSION",
            Self::GrantRejected => "GRANT_REJECTED",
            Self::TicketExpired => "TICKET_EXPIRED",
            Self::TicketOfOtherServer => "TICKET_OF_OTHER_SERVER",
            Self::TicketOfOtherPrincipal => "TICKET_OF_OTHER_PRINCIPAL",
            Self::UnknownAction => "UNKNOWN_ACTION",
            Self::DatasetNotFound => "DATASET_NOT_FOUND",
            Self::DatasetChanged => "DATASET_CHANGED",
            Self::TableNotFound => "TABLE_NOT_FOUND",
            Self::NotAQuery => "NOT_A_QUERY",
            Self::StatementFailed => "STATEMENT_FAILED",
            Self::SourceUnavailable => "SOURCE_UNAVAILABLE",
            Self::StorageFull => "STORAGE_FULL",
            Self::QuotaExceeded => "QUOTA_EXCEEDED",
            Self::FileExists => "FILE_EXISTS",
            Self::DirectoryNotEmpty => "DIRECTORY_NOT_EMPTY",
            Self::NotADirectory => "NOT_A_DIRECTORY",
            Self::IsADirectory => "IS_A_DIRECTORY",
            Self::InvalidFileName => "INVALID_FILE_NAME",
            Self::ReadOnlyStorage => "READ_ONLY_STORAGE",
            Self::CrossesDevices => "CROSSES_DEVICES",
            Self::FileTooLarge => "FILE_TOO_LARGE",
            Self::StorageAccessDenied => "STORAGE_ACCESS_DENIED",
            Self::SqlUnavailable => "SQL_UNAVAILABLE",
        }
    }

    /// Returns a status with this reason, code and message. The message is for users; programs read the reason.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_flight::{Code, ErrorReason};
    ///
    /// let status = ErrorReason::DatasetChanged.status(Code::FailedPrecondition, "a.bam has changed");
    /// assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, "a.bam has changed"));
    /// assert_eq!(ErrorReason::of(&status).map(ErrorReason::name), Some("DATASET_CHANGED"));
    /// ```
    pub fn status(self, code: Code, message: impl Into<String>) -> Status {
        let message = message.into();
        let info = ErrorInfo { reason: self.name().to_owned(), domain: DOMAIN.to_owned() };
        let detail = prost_types::Any { type_url: ERROR_INFO_TYPE.to_owned(), value: info.encode_to_vec() };
        let repeated = message[..message.floor_char_boundary(MAX_MESSAGE_BYTES)].to_owned();
        let details = StatusDetails { code: code as i32, message: repeated, details: vec![detail] };
        Status::with_details(code, message, details.encode_to_vec().into())
    }

    /// Reads the reason of a status. `None` if the status has no reason, or a reason that only later versions know.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_flight::{Code, ErrorReason, Status};
    ///
    /// let expired = ErrorReason::TicketExpired.status(Code::PermissionDenied, "the ticket has expired");
    /// assert_eq!(ErrorReason::of(&expired), Some(ErrorReason::TicketExpired));
    /// assert_eq!(ErrorReason::of(&Status::permission_denied("the ticket has expired")), None);
    /// ```
    pub fn of(status: &Status) -> Option<Self> {
        let details = StatusDetails::decode(status.details()).ok()?.details;
        let infos = details.iter().filter(|detail| detail.type_url == ERROR_INFO_TYPE);
        let mut infos = infos.filter_map(|detail| ErrorInfo::decode(&*detail.value).ok());
        let reason = infos.find(|info| info.domain == DOMAIN)?.reason;
        Self::ALL.into_iter().find(|known| known.name() == reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_survives_the_headers_of_a_call_whatever_the_message_is() {
        for reason in ErrorReason::ALL {
            for message in ["", "reworded", "später", &"ä".repeat(5000)] {
                let status = reason.status(Code::ResourceExhausted, message);
                let headers = {
                    let mut headers = http::HeaderMap::new();
                    status.add_header(&mut headers).unwrap();
                    headers
                };
                let received = Status::from_header_map(&headers).unwrap();
                assert_eq!(ErrorReason::of(&received), Some(reason));
                assert_eq!((received.code(), received.message()), (Code::ResourceExhausted, message));
            }
        }
    }

    #[test]
    fn names_on_the_wire_are_those_of_earlier_versions() {
        let names = ErrorReason::ALL.map(ErrorReason::name).join(" ");
        let expected = "UNKNOWN_SESSION GRANT_REJECTED TICKET_EXPIRED TICKET_OF_OTHER_SERVER TICKET_OF_OTHER_PRINCIPAL \
                        UNKNOWN_ACTION DATASET_NOT_FOUND DATASET_CHANGED TABLE_NOT_FOUND NOT_A_QUERY STATEMENT_FAILED \
                        SOURCE_UNAVAILABLE STORAGE_FULL QUOTA_EXCEEDED FILE_EXISTS DIRECTORY_NOT_EMPTY \
                        NOT_A_DIRECTORY IS_A_DIRECTORY INVALID_FILE_NAME READ_ONLY_STORAGE CROSSES_DEVICES \
                        FILE_TOO_LARGE STORAGE_ACCESS_DENIED SQL_UNAVAILABLE";
        assert_eq!(names, expected);
        // Expected encoding: google.rpc.Status { code: 5, message: "m", details: [Any { type_url, value }] }, where
        // `value` is ErrorInfo { reason, domain }.
        let bytes = ErrorReason::DatasetNotFound.status(Code::NotFound, "m").details().to_vec();
        let info = [b"\x0a\x11DATASET_NOT_FOUND\x12\x06godwit".as_slice()].concat();
        let any = [b"\x0a\x28".as_slice(), ERROR_INFO_TYPE.as_bytes(), &[0x12, info.len() as u8], &info].concat();
        assert_eq!(bytes, [b"\x08\x05\x12\x01m\x1a".as_slice(), &[any.len() as u8], &any].concat());
    }

    #[test]
    fn other_statuses_have_no_reason() {
        assert_eq!(ErrorReason::of(&Status::not_found("UNKNOWN_SESSION")), None);
        let garbage = Status::with_details(Code::NotFound, "m", b"\xff\xff".as_slice().into());
        assert_eq!(ErrorReason::of(&garbage), None);
        let info = ErrorInfo { reason: "OF_A_LATER_VERSION".to_owned(), domain: DOMAIN.to_owned() };
        let detail = prost_types::Any { type_url: ERROR_INFO_TYPE.to_owned(), value: info.encode_to_vec() };
        let details = StatusDetails { code: 5, message: String::new(), details: vec![detail] };
        let later = Status::with_details(Code::NotFound, "m", details.encode_to_vec().into());
        assert_eq!(ErrorReason::of(&later), None);
    }
}
