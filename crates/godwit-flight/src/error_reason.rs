//! Reasons of failed calls, for programs: a client decides by the reason of a status, never by its message.
//!
//! A reason travels in `grpc-status-details-bin` as a `google.rpc.Status` with one `google.rpc.ErrorInfo`, whose domain is
//! [`DOMAIN`] (googleapis `google/rpc/error_details.proto`). Stock clients read it: grpc-go and grpc-java as details of the status,
//! pyarrow in a middleware of the client. A relay that passes a status on passes its reason on. Statuses of other programs and of
//! earlier versions of godwit have no reason.

use prost::Message;
use tonic::{Code, Status};

/// The domain of all reasons of godwit.
const DOMAIN: &str = "godwit";
/// The type of the detail that holds a reason.
const ERROR_INFO_TYPE: &str = "type.googleapis.com/google.rpc.ErrorInfo";
/// Bytes of the message that the details repeat. Clients accept about 8 KiB of trailers, which hold the message itself too.
const MAX_MESSAGE_BYTES: usize = 1024;

/// The reason of a failed call. The names on the wire are stable; new reasons may be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorReason {
    /// The server has no upload session of this name: it was restarted, or the session was idle for too long.
    UnknownSession,
    /// The server behind a relay does not accept the grant of the client: it was restarted, or the grant is too old.
    GrantRejected,
    /// The time of a ticket is over.
    TicketExpired,
    /// A ticket that another server issued.
    TicketOfOtherServer,
    /// A ticket that was issued to another principal.
    TicketOfOtherPrincipal,
    /// The server does not know the action.
    UnknownAction,
    /// There is no dataset of this name.
    DatasetNotFound,
    /// A dataset changed after its tickets were issued.
    DatasetChanged,
    /// There is no table of this name.
    TableNotFound,
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
struct StatusDetails {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<prost_types::Any>,
}

/// `google.rpc.ErrorInfo`, without its metadata.
#[derive(Clone, PartialEq, Message)]
struct ErrorInfo {
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(string, tag = "2")]
    domain: String,
}

impl ErrorReason {
    const ALL: [Self; 9] = [
        Self::UnknownSession,
        Self::GrantRejected,
        Self::TicketExpired,
        Self::TicketOfOtherServer,
        Self::TicketOfOtherPrincipal,
        Self::UnknownAction,
        Self::DatasetNotFound,
        Self::DatasetChanged,
        Self::TableNotFound,
    ];

    /// Returns the name on the wire.
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
        }
    }

    /// Returns a status of this reason. The message is for users only.
    pub fn status(self, code: Code, message: impl Into<String>) -> Status {
        let message = message.into();
        let info = ErrorInfo { reason: self.name().to_owned(), domain: DOMAIN.to_owned() };
        let detail = prost_types::Any { type_url: ERROR_INFO_TYPE.to_owned(), value: info.encode_to_vec() };
        let repeated = message[..message.floor_char_boundary(MAX_MESSAGE_BYTES)].to_owned();
        let details = StatusDetails { code: code as i32, message: repeated, details: vec![detail] };
        Status::with_details(code, message, details.encode_to_vec().into())
    }

    /// Reads the reason of a status. `None` where it has none, or one of a later version.
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
                        UNKNOWN_ACTION DATASET_NOT_FOUND DATASET_CHANGED TABLE_NOT_FOUND";
        assert_eq!(names, expected);
        // google.rpc.Status { code: 5, message: "m", details: [Any { type_url, value: ErrorInfo { reason, domain } }] }
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
