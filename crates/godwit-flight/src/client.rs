//! The client.
//!
//! A [`Client`] is one connection; calls on it share its windows. A download is pulled by the caller, batch by batch; an
//! upload waits for the server's windows, a few batches ahead at most. Balancing, retries and failover are in
//! [`crate::pool`].

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use arrow_array::RecordBatch;
use arrow_flight::sql::{CommandStatementQuery, ProstMessageExt as _};
use arrow_flight::{Action, FlightDescriptor, FlightInfo, PutResult, Ticket};
use arrow_schema::{Schema, SchemaRef};
use bytes::{Buf, Bytes};
use http::{HeaderMap, Method, Request, Response};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tokio::sync::{mpsc, watch};
use tonic::{Code, Status};

use crate::codec::{BatchDecoder, BatchEncoder, DecodedMessage, FlightStreamChunk, encode_metadata};
use crate::encoding::decode_base64;
use crate::error::FlightError;
use crate::message::{GRPC_PREFIX_BYTES, MessageAssembler, encode_protobuf};
use crate::pool::{MEMBER_LEASE_HEADER, MemberLeaseId, StreamProgress, format_lease_header};
use crate::segments::Segments;
use crate::socket_handle::{SocketHandle, SocketOwner};
use crate::tls::ClientTls;
use crate::trace;
use crate::transport::{Address, ConnectionSecurity, Socket, Token, TransportOptions, configure_http2};

/// Batches that wait between an uploading caller and the connection.
const UPLOAD_QUEUE_BATCHES: usize = 2;

/// A connection to a server.
#[derive(Clone)]
pub struct Client {
    requests: SendRequest<RequestBody>,
    peer: String,
    token: Option<Token>,
    options: TransportOptions,
    socket_handle: SocketHandle,
    /// The lease by which a pool directed it here.
    lease_id: Option<MemberLeaseId>,
}

/// The body of a request: queued messages, and the rest of a message too long for one frame.
struct RequestBody {
    messages: mpsc::Receiver<Segments>,
    unsent: Segments,
}

impl From<mpsc::Receiver<Segments>> for RequestBody {
    fn from(messages: mpsc::Receiver<Segments>) -> Self {
        Self { messages, unsent: Segments::default() }
    }
}

impl Body for RequestBody {
    type Data = Segments;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Segments>, Self::Error>>> {
        let Self { messages, unsent } = self.get_mut();
        loop {
            if let Some(segments) = unsent.take_frame() {
                return Poll::Ready(Some(Ok(Frame::data(segments))));
            }
            match ready!(messages.poll_recv(context)) {
                Some(segments) => *unsent = segments,
                None => return Poll::Ready(None),
            }
        }
    }
}

impl Client {
    /// Connects. A task of the current runtime drives the connection until the last call on it ends.
    ///
    /// # Errors
    /// [`FlightError::Connect`] where TCP or TLS fails, [`FlightError::Connection`] where HTTP/2 does.
    pub async fn connect(
        address: &Address,
        security: ConnectionSecurity<ClientTls>,
        options: TransportOptions,
    ) -> Result<Self, FlightError> {
        Self::connect_until_lost(address, security, options, None).await
    }

    /// Connects as [`Client::connect`] does; once `lost` becomes true, the connection is closed and all its calls fail.
    pub(crate) async fn connect_until_lost(
        address: &Address,
        security: ConnectionSecurity<ClientTls>,
        options: TransportOptions,
        lost: Option<watch::Receiver<bool>>,
    ) -> Result<Self, FlightError> {
        let peer = address.to_string();
        let connecting = Socket::connect(address, security.tls.as_ref(), &options);
        let socket = tokio::time::timeout(options.connect_timeout, connecting)
            .await
            .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
        let socket = socket.map_err(|source| FlightError::Connect { address: peer.clone(), source })?;
        let owner = SocketOwner::new(socket.tcp_fd());
        let socket_handle = owner.handle();
        let builder = configure_http2!(hyper::client::conn::http2::Builder::new(TokioExecutor::new()), options);
        let (requests, connection) = builder
            .handshake(TokioIo::new(socket.into_framed()))
            .await
            .map_err(|source| FlightError::Connection { peer: peer.clone(), source })?;
        // An error of the connection reaches every open call on it.
        tokio::spawn(async move {
            tokio::pin!(connection);
            tokio::select! {
                _ = connection.as_mut() => {}
                () = wait_until_lost(lost) => {
                    // hyper drives the socket in a task of its own, which runs as long as calls are open.
                    owner.shut_down();
                    let _ = connection.await;
                }
            }
        });
        Ok(Self { requests, peer, token: security.token, options, socket_handle, lease_id: None })
    }

    /// Returns the same connection; its calls carry the lease of a pool.
    pub(crate) fn with_lease(self, lease_id: MemberLeaseId) -> Self {
        Self { lease_id: Some(lease_id), ..self }
    }

    /// Returns the handle to the TCP socket.
    pub fn socket_handle(&self) -> &SocketHandle {
        &self.socket_handle
    }

    /// Reports whether new calls can be made, as far as this end knows.
    pub fn is_open(&self) -> bool {
        !self.requests.is_closed()
    }

    /// Runs an action of the server by its name; returns the list of its results.
    ///
    /// # Errors
    /// [`FlightError::Status`] where the server rejects the action; other variants where the connection fails.
    pub async fn do_action(&self, action: &str, body: impl Into<Bytes>) -> Result<Vec<Bytes>, FlightError> {
        let mut answers = self.start_action(action, body.into()).await?;
        let mut messages = Vec::new();
        while let Some(message) = answers.next().await? {
            messages.push(message);
        }
        Ok(messages)
    }

    /// Returns the first result of an action, which must exist and is limited to `limit_bytes`; nothing more is read. For
    /// servers that are not trusted.
    pub(crate) async fn first_action_result(
        &self,
        action: &str,
        body: impl Into<Bytes>,
        limit_bytes: usize,
    ) -> Result<Bytes, FlightError> {
        let mut answers = self.start_action(action, body.into()).await?;
        answers.incoming.limit_bytes = limit_bytes as u64;
        let none = FlightError::Malformed { problem: "the server did not answer" };
        answers.next().await?.ok_or(none)
    }

    async fn start_action(&self, action: &str, body: Bytes) -> Result<PutResults, FlightError> {
        let (sender, receiver) = mpsc::channel(1);
        // The channel is empty and its receiver exists: this neither waits nor fails.
        let _ = sender.try_send(encode_protobuf(&Action { r#type: action.to_owned(), body }));
        drop(sender);
        let response = self.send_request("DoAction", receiver.into()).await?;
        // A `Result` of an action is encoded as a `PutResult` is: one field of bytes, number 1.
        Ok(PutResults { incoming: self.response_messages(response)? })
    }

    /// Returns the tickets of a statement's rows (Flight SQL), in the order in which they are to be read.
    ///
    /// # Errors
    /// [`FlightError::Status`] where the server rejects the statement; other variants where the connection fails.
    pub async fn statement_tickets(&self, sql: &str) -> Result<Vec<Bytes>, FlightError> {
        let query = CommandStatementQuery { query: sql.to_owned(), transaction_id: None };
        let descriptor = FlightDescriptor::new_cmd(query.as_any().encode_to_vec());
        let (sender, receiver) = mpsc::channel(1);
        // The channel is empty and its receiver exists: this neither waits nor fails.
        let _ = sender.try_send(encode_protobuf(&descriptor));
        drop(sender);
        let response = self.send_request("GetFlightInfo", receiver.into()).await?;
        let mut incoming = self.response_messages(response)?;
        let message = incoming.next_message().await?.unwrap_or_default();
        let info =
            FlightInfo::decode(message).map_err(|_| FlightError::Malformed { problem: "it is no FlightInfo" })?;
        // A call that fails sends its status behind its last message.
        incoming.next_message().await?;
        Ok(info.endpoint.into_iter().filter_map(|endpoint| Some(endpoint.ticket?.ticket)).collect())
    }

    /// Returns the address of the server.
    pub(crate) fn peer(&self) -> &str {
        &self.peer
    }

    /// Downloads the data of a ticket.
    ///
    /// # Errors
    /// [`FlightError::Status`] where the server rejects the ticket; other variants where the connection fails.
    pub async fn download(&self, ticket: impl Into<Bytes>) -> Result<Batches, FlightError> {
        let (sender, receiver) = mpsc::channel(1);
        // The channel is empty and its receiver exists: this neither waits nor fails.
        let _ = sender.try_send(encode_protobuf(&Ticket { ticket: ticket.into() }));
        drop(sender);
        self.start_batches("DoGet", receiver.into()).await
    }

    async fn start_batches(&self, method: &str, body: RequestBody) -> Result<Batches, FlightError> {
        let response = self.send_request(method, body).await?;
        let assembler = MessageAssembler::new(self.options.message_limit_bytes);
        Ok(Batches { incoming: self.response_messages(response)?, assembler, decoder: BatchDecoder::default() })
    }

    /// Uploads batches of one schema: the first value sends them, the second returns the server's results. Read these while
    /// sending, wherever the server sends many.
    ///
    /// # Errors
    /// [`FlightError::Arrow`]: the schema cannot be sent.
    pub fn upload(
        &self,
        descriptor: &FlightDescriptor,
        schema: &Schema,
    ) -> Result<(BatchSender, impl Future<Output = Result<PutResults, FlightError>> + Send + use<>), FlightError> {
        let (sender, body) = self.open_sender(descriptor, schema)?;
        let client = self.clone();
        let answers = async move {
            let response = client.send_request("DoPut", body).await?;
            Ok(PutResults { incoming: client.response_messages(response)? })
        };
        Ok((sender, answers))
    }

    /// Exchanges batches: the first value sends batches of one schema, the second returns the server's batches, which may
    /// have another schema and must be read while sending.
    ///
    /// # Errors
    /// [`FlightError::Arrow`]: the schema cannot be sent.
    pub fn exchange(
        &self,
        descriptor: &FlightDescriptor,
        schema: &Schema,
    ) -> Result<(BatchSender, impl Future<Output = Result<Batches, FlightError>> + Send + use<>), FlightError> {
        let (sender, body) = self.open_sender(descriptor, schema)?;
        let client = self.clone();
        Ok((sender, async move { client.start_batches("DoExchange", body).await }))
    }

    fn open_sender(
        &self,
        descriptor: &FlightDescriptor,
        schema: &Schema,
    ) -> Result<(BatchSender, RequestBody), FlightError> {
        let (sender, receiver) = mpsc::channel(UPLOAD_QUEUE_BATCHES);
        let encoder = BatchEncoder::new(schema)?;
        let sender = BatchSender { sender, encoder, descriptor: descriptor.encode_to_vec(), peer: self.peer.clone() };
        Ok((sender, receiver.into()))
    }

    async fn send_request(&self, method: &str, body: RequestBody) -> Result<Response<Incoming>, FlightError> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(format!("http://godwit/arrow.flight.protocol.FlightService/{method}"))
            .header(http::header::CONTENT_TYPE, "application/grpc")
            .header(http::header::TE, "trailers");
        if let Some(token) = &self.token {
            request = request.header(http::header::AUTHORIZATION, token.authorization_header());
        }
        if let Some(lease_id) = self.lease_id {
            request = request.header(MEMBER_LEASE_HEADER, format_lease_header(lease_id));
        }
        let mut request = request.body(body).expect("all parts of the request are valid");
        if let Some(context) = trace::current_context() {
            context.insert_into(request.headers_mut());
        }
        let mut requests = self.requests.clone();
        let broken = |source| FlightError::Connection { peer: self.peer.clone(), source };
        poll_fn(|context| requests.poll_ready(context)).await.map_err(broken)?;
        requests.send_request(request).await.map_err(broken)
    }

    fn response_messages(&self, response: Response<Incoming>) -> Result<ResponseMessages, FlightError> {
        check_status(&self.peer, response.headers(), false)?;
        if response.status() != http::StatusCode::OK {
            let status = Status::unavailable(format!("HTTP status {}", response.status()));
            return Err(FlightError::Status { peer: self.peer.clone(), status: Box::new(status) });
        }
        Ok(ResponseMessages {
            body: response.into_body(),
            unread: Bytes::new(),
            limit_bytes: self.options.message_limit_bytes,
            peer: self.peer.clone(),
            is_ended: false,
        })
    }
}

/// Waits until `lost` becomes true; forever where that cannot happen.
async fn wait_until_lost(lost: Option<watch::Receiver<bool>>) {
    if let Some(mut lost) = lost
        && lost.wait_for(|lost| *lost).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Fails where the headers carry an error status, or lack a required status.
fn check_status(peer: &str, headers: &HeaderMap, is_trailer: bool) -> Result<(), FlightError> {
    match status_in(headers) {
        Some(status) if status.code() != Code::Ok => {
            Err(FlightError::Status { peer: peer.to_owned(), status: Box::new(status) })
        }
        None if is_trailer => Err(FlightError::MissingStatus { peer: peer.to_owned() }),
        _ => Ok(()),
    }
}

/// Reads the status in headers. Details that are not base64, at which tonic panics, are left out.
fn status_in(headers: &HeaderMap) -> Option<Status> {
    let Some(details) = headers.get(Status::GRPC_STATUS_DETAILS) else { return Status::from_header_map(headers) };
    let mut others = headers.clone();
    others.remove(Status::GRPC_STATUS_DETAILS);
    let status = Status::from_header_map(&others)?;
    let details = decode_base64(details.as_bytes()).unwrap_or_default();
    let metadata = status.metadata().clone();
    Some(Status::with_details_and_metadata(status.code(), status.message(), details.into(), metadata))
}

/// The messages of a response, up to the trailers with its status.
struct ResponseMessages {
    body: Incoming,
    unread: Bytes,
    limit_bytes: u64,
    peer: String,
    is_ended: bool,
}

impl ResponseMessages {
    /// Reads more bytes; returns false when the call has ended without an error.
    async fn read_more(&mut self) -> Result<bool, FlightError> {
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
                // A call without trailers has failed, whatever it sent before.
                None => check_status(&self.peer, &HeaderMap::new(), true)?,
            }
        }
    }
}

/// Batches of a download, or of the server's side of an exchange.
pub struct Batches {
    incoming: ResponseMessages,
    assembler: MessageAssembler,
    decoder: BatchDecoder,
}

impl Batches {
    /// Returns the schema; `None` before the first batch or the end was received.
    pub fn schema(&self) -> Option<&SchemaRef> {
        self.decoder.schema()
    }

    /// Returns the next batch and its application metadata; `None` after the last one.
    ///
    /// # Errors
    /// [`FlightError`]; a truncated download is an error, however many batches were received.
    pub async fn next(&mut self) -> Result<Option<(RecordBatch, Bytes)>, FlightError> {
        loop {
            match self.next_chunk().await? {
                Some(FlightStreamChunk { batch: Some(batch), app_metadata }) => return Ok(Some((batch, app_metadata))),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    /// Returns the next batch as [`Batches::next`] does, and adds each message to `progress`.
    pub(crate) async fn next_with_progress(
        &mut self,
        come: &mut StreamProgress,
    ) -> Result<Option<RecordBatch>, FlightError> {
        loop {
            match self.next_message(Some(come)).await? {
                Some(FlightStreamChunk { batch: Some(batch), .. }) => {
                    come.finish_batch();
                    return Ok(Some(batch));
                }
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    /// Returns the next message, also where it is metadata without a batch.
    ///
    /// # Errors
    /// As [`Batches::next`].
    pub async fn next_chunk(&mut self) -> Result<Option<FlightStreamChunk>, FlightError> {
        self.next_message(None).await
    }

    async fn next_message(
        &mut self,
        mut come: Option<&mut StreamProgress>,
    ) -> Result<Option<FlightStreamChunk>, FlightError> {
        loop {
            if let Some(message) = self.assembler.push(&mut self.incoming.unread)? {
                let decoded = self.decoder.decode(&message)?;
                if let (Some(come), DecodedMessage::Batch(_) | DecodedMessage::Dictionary) = (&mut come, &decoded) {
                    come.add_message(&message.header, std::slice::from_ref(&message.body));
                }
                let batch = match decoded {
                    DecodedMessage::Batch(batch) => Some(batch),
                    DecodedMessage::Metadata => None,
                    DecodedMessage::Schema | DecodedMessage::Dictionary => continue,
                };
                return Ok(Some(FlightStreamChunk { batch, app_metadata: message.app_metadata.into() }));
            } else if !self.incoming.read_more().await? {
                let whole = self.assembler.is_between_messages();
                return if whole {
                    Ok(None)
                } else {
                    Err(FlightError::Malformed { problem: "the download ends in it" })
                };
            }
        }
    }
}

/// The sending side of an upload or of an exchange.
pub struct BatchSender {
    sender: mpsc::Sender<Segments>,
    encoder: BatchEncoder,
    descriptor: Vec<u8>,
    peer: String,
}

impl BatchSender {
    /// Sends a batch, when there is room for it.
    ///
    /// # Errors
    /// [`FlightError::Arrow`]; [`FlightError::Status`] where the call has ended: its results report why.
    pub async fn send(&mut self, batch: &RecordBatch, app_metadata: &[u8]) -> Result<(), FlightError> {
        let descriptor = std::mem::take(&mut self.descriptor);
        let segments = self.encoder.encode(batch, &descriptor, app_metadata)?;
        self.send_segments(segments).await
    }

    /// Sends metadata without a batch, when there is room for it.
    ///
    /// # Errors
    /// As [`BatchSender::send`].
    pub async fn send_metadata(&mut self, app_metadata: &[u8]) -> Result<(), FlightError> {
        let descriptor = std::mem::take(&mut self.descriptor);
        self.send_segments(encode_metadata(&descriptor, app_metadata)).await
    }

    /// Ends the upload.
    ///
    /// # Errors
    /// As [`BatchSender::send`].
    pub async fn finish(mut self) -> Result<(), FlightError> {
        let segments = self.encoder.finish(&self.descriptor)?;
        if !segments.has_remaining() { Ok(()) } else { self.send_segments(segments).await }
    }

    async fn send_segments(&mut self, segments: Segments) -> Result<(), FlightError> {
        self.sender.send(segments).await.map_err(|_| FlightError::Status {
            peer: self.peer.clone(),
            status: Box::new(Status::aborted("the upload was ended by the other side")),
        })
    }
}

/// The server's results of an upload.
pub struct PutResults {
    incoming: ResponseMessages,
}

impl PutResults {
    /// Returns the next result; `None` when the upload has succeeded.
    ///
    /// # Errors
    /// [`FlightError::Status`] where the server rejects the upload; other variants where the connection fails.
    pub async fn next(&mut self) -> Result<Option<Bytes>, FlightError> {
        let Some(message) = self.incoming.next_message().await? else { return Ok(None) };
        match PutResult::decode(message) {
            Ok(answer) => Ok(Some(answer.app_metadata)),
            Err(_) => Err(FlightError::Malformed { problem: "it is no PutResult" }),
        }
    }
}

impl ResponseMessages {
    /// Returns the next message of a call without batches; `None` when the call has succeeded.
    async fn next_message(&mut self) -> Result<Option<Bytes>, FlightError> {
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
            // A message may consist of its prefix only.
            if bytes.len() == wanted && (wanted > GRPC_PREFIX_BYTES || bytes[1..] == [0; 4]) {
                return Ok(Some(Bytes::from(bytes).slice(GRPC_PREFIX_BYTES..)));
            }
            if bytes.len() < wanted && self.unread.is_empty() && !self.read_more().await? {
                let whole = bytes.is_empty();
                return if whole { Ok(None) } else { Err(FlightError::Malformed { problem: "the answers end in it" }) };
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
        Status::unavailable("the answer broke off").add_header(&mut trailers).expect("a status fits into headers");
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
