//! The gRPC messages of a response and the status at its end.

use std::future::poll_fn;
use std::pin::Pin;

use bytes::Bytes;
use godwit_dataset::decode_base64;
use http::HeaderMap;
use http_body::Body as _;
use hyper::body::Incoming;
use tonic::{Code, Status};

use crate::error::FlightError;
use crate::message::GRPC_PREFIX_BYTES;

/// Returns an error if the headers contain an error status, or if trailers contain no status.
pub(super) fn check_status(peer: &str, headers: &HeaderMap, is_trailer: bool) -> Result<(), FlightError> {
    match status_in(headers) {
        Some(status) if status.code() != Code::Ok => {
            Err(FlightError::Status { peer: peer.to_owned(), status: Box::new(status) })
        }
        None if is_trailer => Err(FlightError::MissingStatus { peer: peer.to_owned() }),
        _ => Ok(()),
    }
}

/// Reads the gRPC status in headers. Omits status details that are not valid base64, because tonic panics on them.
fn status_in(headers: &HeaderMap) -> Option<Status> {
    let Some(details) = headers.get(Status::GRPC_STATUS_DETAILS) else { return Status::from_header_map(headers) };
    let mut others = headers.clone();
    others.remove(Status::GRPC_STATUS_DETAILS);
    let status = Status::from_header_map(&others)?;
    let details = decode_base64(details.as_bytes()).unwrap_or_default();
    let metadata = status.metadata().clone();
    Some(Status::with_details_and_metadata(status.code(), status.message(), details.into(), metadata))
}

/// The gRPC messages of a response, up to the trailers, which contain the status.
pub(super) struct ResponseMessages {
    pub(super) body: Incoming,
    pub(super) unread: Bytes,
    pub(super) limit_bytes: u64,
    pub(super) peer: String,
    pub(super) is_ended: bool,
}

impl ResponseMessages {
    /// Reads bytes of the response into `unread`; returns false if the call has ended without an error.
    pub(super) async fn read_more(&mut self) -> Result<bool, FlightError> {
        loop {
            if self.is_ended {
                return Ok(false);
            }
            let frame = poll_fn(|context| Pin::new(&mut self.body).poll_frame(context)).await;
            match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => {
                        self.unread = bytes;
                        return Ok(true);
                    }
                    Err(frame) => {
                        let trailers = frame.into_trailers().unwrap_or_default();
                        check_status(&self.peer, &trailers, true)?;
                        self.is_ended = true;
                    }
                },
                Some(Err(source)) => return Err(FlightError::Connection { peer: self.peer.clone(), source }),
                // A response without trailers is incomplete: the call has failed.
                None => check_status(&self.peer, &HeaderMap::new(), true)?,
            }
        }
    }

    /// Returns the next gRPC message of a response without batches; `None` if the call has succeeded.
    pub(super) async fn next_message(&mut self) -> Result<Option<Bytes>, FlightError> {
        let mut bytes = Vec::new();
        loop {
            let wanted = bytes.first_chunk::<GRPC_PREFIX_BYTES>().map_or(GRPC_PREFIX_BYTES, |prefix| {
                GRPC_PREFIX_BYTES + u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize
            });
            if wanted as u64 > self.limit_bytes {
                return Err(FlightError::TooLarge { bytes: wanted as u64, limit_bytes: self.limit_bytes });
            }
            let taken = self.unread.len().min(wanted - bytes.len());
            bytes.extend_from_slice(&self.unread.split_to(taken));
            // The message is complete; an empty message consists of the gRPC prefix only.
            if bytes.len() == wanted && (wanted > GRPC_PREFIX_BYTES || bytes[1..] == [0; 4]) {
                return Ok(Some(Bytes::from(bytes).slice(GRPC_PREFIX_BYTES..)));
            }
            if bytes.len() < wanted && self.unread.is_empty() && !self.read_more().await? {
                let whole = bytes.is_empty();
                return if whole {
                    Ok(None)
                } else {
                    Err(FlightError::Malformed { problem: "the response ended in the middle of a message" })
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::error_reason::ErrorReason;

    #[test]
    fn a_call_that_ends_without_a_status_is_told_from_one_that_failed() {
        assert!(matches!(check_status("p", &HeaderMap::new(), true), Err(FlightError::MissingStatus { .. })));
        assert!(check_status("p", &HeaderMap::new(), false).is_ok());
        let mut trailers = HeaderMap::new();
        Status::unavailable("the response ended without a gRPC status")
            .add_header(&mut trailers)
            .expect("a status fits into headers");
        assert!(matches!(check_status("p", &trailers, true), Err(FlightError::Status { .. })));
        let passed_on = Status::from(FlightError::MissingStatus { peer: "p".to_owned() });
        assert_eq!(passed_on.code(), Code::Unavailable);
    }

    #[test]
    fn details_are_kept_and_those_that_are_none_do_no_harm() {
        let mut trailers = HeaderMap::new();
        let sent = ErrorReason::DatasetChanged.status(Code::FailedPrecondition, "reworded");
        sent.add_header(&mut trailers).expect("a status fits into headers");
        let received = status_in(&trailers).expect("there is a status");
        assert_eq!(ErrorReason::of(&received), Some(ErrorReason::DatasetChanged));
        for details in ["!", "a", "ab=c", "-_-_"] {
            trailers.insert(Status::GRPC_STATUS_DETAILS, HeaderValue::from_static(details));
            let received = status_in(&trailers).expect("there is a status");
            assert_eq!((received.code(), received.message()), (Code::FailedPrecondition, "reworded"));
            assert_eq!(ErrorReason::of(&received), None, "{details}");
        }
    }
}
