//! The asking end.
//!
//! A [`Client`] is one connection; calls on it share its windows. What is downloaded is pulled by the caller, batch by
//! batch; what is uploaded waits for the server's windows, a few batches ahead at most. Choosing among servers, trying
//! again and carrying on elsewhere are done in [`crate::pool`].

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

use crate::codec::{BatchDecoder, BatchEncoder, Chunk, Decoded, encode_metadata};
use crate::encoding::decode_base64;
use crate::error::FlightError;
use crate::message::{Assembler, PREFIX_BYTES, frame_encoded};
use crate::pool::{Come, GRANT_HEADER, GrantId, grant_header};
use crate::segments::Segments;
use crate::tls::ClientTls;
use crate::trace;
use crate::transport::{Access, Address, Socket, Token, Tuning, tuned};
use crate::wire::{Wire, WireOwner};

/// Batches between an uploading caller and the connection.
const UPLOAD_QUEUE: usize = 2;

/// A connection to a server.
#[derive(Clone)]
pub struct Client {
    requests: SendRequest<Outgoing>,
    peer: String,
    token: Option<Token>,
    tuning: Tuning,
    wire: Wire,
    /// What brought it here, where a pool did.
    grant: Option<GrantId>,
}

/// The body of a request: messages as they come, and what is left of one too long for one piece.
struct Outgoing {
    messages: mpsc::Receiver<Segments>,
    rest: Segments,
}

impl From<mpsc::Receiver<Segments>> for Outgoing {
    fn from(messages: mpsc::Receiver<Segments>) -> Self {
        Self { messages, rest: Segments::default() }
    }
}

impl Body for Outgoing {
    type Data = Segments;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Segments>, Self::Error>>> {
        let Self { messages, rest } = self.get_mut();
        loop {
            if let Some(segments) = rest.take_frame() {
                return Poll::Ready(Some(Ok(Frame::data(segments))));
            }
            match ready!(messages.poll_recv(context)) {
                Some(segments) => *rest = segments,
                None => return Poll::Ready(None),
            }
        }
    }
}

impl Client {
    /// Connects. The connection is kept up by a task of the current runtime until the last call on it ends.
    ///
    /// # Errors
    /// [`FlightError::Connect`], [`FlightError::Connection`].
    pub async fn connect(address: &Address, access: Access<ClientTls>, tuning: Tuning) -> Result<Self, FlightError> {
        Self::connect_until(address, access, tuning, None).await
    }

    /// As [`Client::connect`]; the connection is given up, and all calls on it fail, once `lost` says so.
    pub(crate) async fn connect_until(
        address: &Address,
        access: Access<ClientTls>,
        tuning: Tuning,
        lost: Option<watch::Receiver<bool>>,
    ) -> Result<Self, FlightError> {
        let peer = address.to_string();
        let connecting = Socket::connect(address, access.tls.as_ref(), &tuning);
        let socket = tokio::time::timeout(tuning.connect_timeout, connecting)
            .await
            .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
        let socket = socket.map_err(|source| FlightError::Connect { address: peer.clone(), source })?;
        let owner = WireOwner::of(socket.tcp());
        let wire = owner.wire();
        let builder = tuned!(hyper::client::conn::http2::Builder::new(TokioExecutor::new()), tuning);
        let (requests, connection) = builder
            .handshake(TokioIo::new(socket.framed()))
            .await
            .map_err(|source| FlightError::Connection { peer: peer.clone(), source })?;
        // Its failure reaches every call that is open on it.
        tokio::spawn(async move {
            tokio::pin!(connection);
            tokio::select! {
                _ = connection.as_mut() => {}
                () = is_lost(lost) => {
                    // hyper works on the socket in a task of its own, which goes on for as long as calls are open.
                    owner.shut_down();
                    let _ = connection.await;
                }
            }
        });
        Ok(Self { requests, peer, token: access.token, tuning, wire, grant: None })
    }

    /// The same connection; calls on it show what a pool granted.
    pub(crate) fn with_grant(self, grant: GrantId) -> Self {
        Self { grant: Some(grant), ..self }
    }

    /// The connection itself.
    pub fn wire(&self) -> &Wire {
        &self.wire
    }

    /// Whether calls can still be made on it, as far as is known here.
    pub fn is_open(&self) -> bool {
        !self.requests.is_closed()
    }

    /// Has the server do something, by name; its answer is a list of messages.
    ///
    /// # Errors
    /// [`FlightError`].
    pub async fn act(&self, action: &str, body: impl Into<Bytes>) -> Result<Vec<Bytes>, FlightError> {
        let mut answers = self.acting(action, body.into()).await?;
        let mut messages = Vec::new();
        while let Some(message) = answers.next().await? {
            messages.push(message);
        }
        Ok(messages)
    }

    /// The first answer to an action, which must be there and not be longer than so many bytes; nothing more is taken. For servers
    /// that are not trusted to be brief.
    pub(crate) async fn first_answer(
        &self,
        action: &str,
        body: impl Into<Bytes>,
        limit_bytes: usize,
    ) -> Result<Bytes, FlightError> {
        let mut answers = self.acting(action, body.into()).await?;
        answers.incoming.limit_bytes = limit_bytes as u64;
        let none = FlightError::Malformed { problem: "the server did not answer" };
        answers.next().await?.ok_or(none)
    }

    async fn acting(&self, action: &str, body: Bytes) -> Result<Answers, FlightError> {
        let (sender, receiver) = mpsc::channel(1);
        // The channel is empty and its receiver alive: this neither waits nor fails.
        let _ = sender.try_send(frame_encoded(&Action { r#type: action.to_owned(), body }));
        drop(sender);
        let response = self.call("DoAction", receiver.into()).await?;
        // A `Result` of an action has the bytes of a `PutResult`: one field of bytes, number 1.
        Ok(Answers { incoming: self.incoming(response)? })
    }

    /// The tickets of a statement's rows (Flight SQL), in the order in which they are to be read.
    ///
    /// # Errors
    /// [`FlightError`].
    pub async fn ask_sql(&self, sql: &str) -> Result<Vec<Bytes>, FlightError> {
        let query = CommandStatementQuery { query: sql.to_owned(), transaction_id: None };
        let descriptor = FlightDescriptor::new_cmd(query.as_any().encode_to_vec());
        let (sender, receiver) = mpsc::channel(1);
        // The channel is empty and its receiver alive: this neither waits nor fails.
        let _ = sender.try_send(frame_encoded(&descriptor));
        drop(sender);
        let response = self.call("GetFlightInfo", receiver.into()).await?;
        let mut incoming = self.incoming(response)?;
        let message = incoming.message().await?.unwrap_or_default();
        let info =
            FlightInfo::decode(message).map_err(|_| FlightError::Malformed { problem: "it is no FlightInfo" })?;
        // A call that fails says so behind its last message.
        incoming.message().await?;
        Ok(info.endpoint.into_iter().filter_map(|endpoint| Some(endpoint.ticket?.ticket)).collect())
    }

    /// The other end.
    pub(crate) fn peer(&self) -> &str {
        &self.peer
    }

    /// Downloads what a ticket stands for.
    ///
    /// # Errors
    /// [`FlightError`].
    pub async fn download(&self, ticket: impl Into<Bytes>) -> Result<Batches, FlightError> {
        let (sender, receiver) = mpsc::channel(1);
        // The channel is empty and its receiver alive: this neither waits nor fails.
        let _ = sender.try_send(frame_encoded(&Ticket { ticket: ticket.into() }));
        drop(sender);
        self.batches("DoGet", receiver.into()).await
    }

    async fn batches(&self, method: &str, body: Outgoing) -> Result<Batches, FlightError> {
        let response = self.call(method, body).await?;
        let assembler = Assembler::new(self.tuning.message_limit_bytes);
        Ok(Batches { incoming: self.incoming(response)?, assembler, decoder: BatchDecoder::default() })
    }

    /// Uploads batches of one schema: the first end takes them, the second returns the server's answers, which must be
    /// taken while batches are sent wherever the server gives many.
    ///
    /// # Errors
    /// [`FlightError::Arrow`]: the schema cannot be sent.
    pub fn upload(
        &self,
        descriptor: &FlightDescriptor,
        schema: &Schema,
    ) -> Result<(Sender, impl Future<Output = Result<Answers, FlightError>> + Send + use<>), FlightError> {
        let (sender, body) = self.sender(descriptor, schema)?;
        let client = self.clone();
        let answers = async move {
            let response = client.call("DoPut", body).await?;
            Ok(Answers { incoming: client.incoming(response)? })
        };
        Ok((sender, answers))
    }

    /// Exchanges batches: the first end takes those of one schema, the second returns what the server gives for them, which
    /// may have another schema and must be taken while batches are sent.
    ///
    /// # Errors
    /// [`FlightError::Arrow`]: the schema cannot be sent.
    pub fn exchange(
        &self,
        descriptor: &FlightDescriptor,
        schema: &Schema,
    ) -> Result<(Sender, impl Future<Output = Result<Batches, FlightError>> + Send + use<>), FlightError> {
        let (sender, body) = self.sender(descriptor, schema)?;
        let client = self.clone();
        Ok((sender, async move { client.batches("DoExchange", body).await }))
    }

    fn sender(&self, descriptor: &FlightDescriptor, schema: &Schema) -> Result<(Sender, Outgoing), FlightError> {
        let (sender, receiver) = mpsc::channel(UPLOAD_QUEUE);
        let encoder = BatchEncoder::new(schema)?;
        let sender = Sender { sender, encoder, descriptor: descriptor.encode_to_vec(), peer: self.peer.clone() };
        Ok((sender, receiver.into()))
    }

    async fn call(&self, method: &str, body: Outgoing) -> Result<Response<Incoming>, FlightError> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(format!("http://godwit/arrow.flight.protocol.FlightService/{method}"))
            .header(http::header::CONTENT_TYPE, "application/grpc")
            .header(http::header::TE, "trailers");
        if let Some(token) = &self.token {
            request = request.header(http::header::AUTHORIZATION, token.header());
        }
        if let Some(grant) = self.grant {
            request = request.header(GRANT_HEADER, grant_header(grant));
        }
        let mut request = request.body(body).expect("all parts of the request are valid");
        if let Some(context) = trace::current() {
            context.add_to(request.headers_mut());
        }
        let mut requests = self.requests.clone();
        let broken = |source| FlightError::Connection { peer: self.peer.clone(), source };
        poll_fn(|context| requests.poll_ready(context)).await.map_err(broken)?;
        requests.send_request(request).await.map_err(broken)
    }

    fn incoming(&self, response: Response<Incoming>) -> Result<IncomingMessages, FlightError> {
        check(&self.peer, response.headers(), false)?;
        if response.status() != http::StatusCode::OK {
            let status = Status::unavailable(format!("HTTP status {}", response.status()));
            return Err(FlightError::Status { peer: self.peer.clone(), status: Box::new(status) });
        }
        Ok(IncomingMessages {
            body: response.into_body(),
            chunk: Bytes::new(),
            limit_bytes: self.tuning.message_limit_bytes,
            peer: self.peer.clone(),
            ended: false,
        })
    }
}

/// Waits until somebody says that the other end is lost; for ever where nobody will.
async fn is_lost(lost: Option<watch::Receiver<bool>>) {
    if let Some(mut lost) = lost
        && lost.wait_for(|lost| *lost).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Fails where the headers tell of a failure, or tell nothing though they must.
fn check(peer: &str, headers: &HeaderMap, must_tell: bool) -> Result<(), FlightError> {
    match status_in(headers) {
        Some(status) if status.code() != Code::Ok => {
            Err(FlightError::Status { peer: peer.to_owned(), status: Box::new(status) })
        }
        None if must_tell => Err(FlightError::MissingStatus { peer: peer.to_owned() }),
        _ => Ok(()),
    }
}

/// Reads the status in headers. tonic panics at details that are not base64, so that they are decoded here; such details are left out.
fn status_in(headers: &HeaderMap) -> Option<Status> {
    let Some(details) = headers.get(Status::GRPC_STATUS_DETAILS) else { return Status::from_header_map(headers) };
    let mut others = headers.clone();
    others.remove(Status::GRPC_STATUS_DETAILS);
    let status = Status::from_header_map(&others)?;
    let details = decode_base64(details.as_bytes()).unwrap_or_default();
    let metadata = status.metadata().clone();
    Some(Status::with_details_and_metadata(status.code(), status.message(), details.into(), metadata))
}

/// Bytes of an answer, up to trailers that say how it ended.
struct IncomingMessages {
    body: Incoming,
    chunk: Bytes,
    limit_bytes: u64,
    peer: String,
    ended: bool,
}

impl IncomingMessages {
    /// Gets more bytes; false when the call ended well.
    async fn more(&mut self) -> Result<bool, FlightError> {
        loop {
            if self.ended {
                return Ok(false);
            }
            let frame = poll_fn(|context| Pin::new(&mut self.body).poll_frame(context)).await;
            match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => {
                        self.chunk = bytes;
                        return Ok(true);
                    }
                    Err(frame) => {
                        let trailers = frame.into_trailers().unwrap_or_default();
                        check(&self.peer, &trailers, true)?;
                        self.ended = true;
                    }
                },
                Some(Err(source)) => return Err(FlightError::Connection { peer: self.peer.clone(), source }),
                // A call that ends without trailers did not end well, whatever came before.
                None => check(&self.peer, &HeaderMap::new(), true)?,
            }
        }
    }
}

/// Batches of a download, or of the server's side of an exchange.
pub struct Batches {
    incoming: IncomingMessages,
    assembler: Assembler,
    decoder: BatchDecoder,
}

impl Batches {
    /// The schema; known once the first batch, or the end, is here.
    pub fn schema(&self) -> Option<&SchemaRef> {
        self.decoder.schema()
    }

    /// The next batch and what is said beside it; `None` after the last one.
    ///
    /// # Errors
    /// [`FlightError`]; a download that was cut short is one, however many batches came.
    pub async fn next(&mut self) -> Result<Option<(RecordBatch, Bytes)>, FlightError> {
        loop {
            match self.next_chunk().await? {
                Some(Chunk { batch: Some(batch), app_metadata }) => return Ok(Some((batch, app_metadata))),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    /// As [`Batches::next`], and tells `come` of each message.
    pub(crate) async fn next_counted(&mut self, come: &mut Come) -> Result<Option<RecordBatch>, FlightError> {
        loop {
            match self.next_message(Some(come)).await? {
                Some(Chunk { batch: Some(batch), .. }) => {
                    come.batch();
                    return Ok(Some(batch));
                }
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    /// As [`Batches::next`], with what is said beside no batch.
    ///
    /// # Errors
    /// As [`Batches::next`].
    pub async fn next_chunk(&mut self) -> Result<Option<Chunk>, FlightError> {
        self.next_message(None).await
    }

    async fn next_message(&mut self, mut come: Option<&mut Come>) -> Result<Option<Chunk>, FlightError> {
        loop {
            if let Some(message) = self.assembler.push(&mut self.incoming.chunk)? {
                let decoded = self.decoder.decode(&message)?;
                if let (Some(come), Decoded::Batch(_) | Decoded::Dictionary) = (&mut come, &decoded) {
                    come.message(&message.header, std::slice::from_ref(&message.body));
                }
                let batch = match decoded {
                    Decoded::Batch(batch) => Some(batch),
                    Decoded::Nothing => None,
                    Decoded::Schema | Decoded::Dictionary => continue,
                };
                return Ok(Some(Chunk { batch, app_metadata: message.app_metadata.into() }));
            } else if !self.incoming.more().await? {
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

/// An upload, or the client's side of an exchange, on its way out.
pub struct Sender {
    sender: mpsc::Sender<Segments>,
    encoder: BatchEncoder,
    descriptor: Vec<u8>,
    peer: String,
}

impl Sender {
    /// Sends a batch, when there is room for it.
    ///
    /// # Errors
    /// [`FlightError::Arrow`]; [`FlightError::Status`] where the call has ended: its answers say why.
    pub async fn send(&mut self, batch: &RecordBatch, app_metadata: &[u8]) -> Result<(), FlightError> {
        let descriptor = std::mem::take(&mut self.descriptor);
        let segments = self.encoder.encode(batch, &descriptor, app_metadata)?;
        self.push(segments).await
    }

    /// Sends metadata without a batch, when there is room for it.
    ///
    /// # Errors
    /// As [`Sender::send`].
    pub async fn say(&mut self, app_metadata: &[u8]) -> Result<(), FlightError> {
        let descriptor = std::mem::take(&mut self.descriptor);
        self.push(encode_metadata(&descriptor, app_metadata)).await
    }

    /// Ends the upload.
    ///
    /// # Errors
    /// As [`Sender::send`].
    pub async fn finish(mut self) -> Result<(), FlightError> {
        let segments = self.encoder.finish(&self.descriptor)?;
        if !segments.has_remaining() { Ok(()) } else { self.push(segments).await }
    }

    async fn push(&mut self, segments: Segments) -> Result<(), FlightError> {
        self.sender.send(segments).await.map_err(|_| FlightError::Status {
            peer: self.peer.clone(),
            status: Box::new(Status::aborted("the upload was ended by the other side")),
        })
    }
}

/// The server's answers to an upload.
pub struct Answers {
    incoming: IncomingMessages,
}

impl Answers {
    /// The next answer; `None` when the upload is done and went well.
    ///
    /// # Errors
    /// [`FlightError`].
    pub async fn next(&mut self) -> Result<Option<Bytes>, FlightError> {
        let Some(message) = self.incoming.message().await? else { return Ok(None) };
        match PutResult::decode(message) {
            Ok(answer) => Ok(Some(answer.app_metadata)),
            Err(_) => Err(FlightError::Malformed { problem: "it is no PutResult" }),
        }
    }
}

impl IncomingMessages {
    /// The next message of a call that carries no batches; `None` when it is done and went well.
    async fn message(&mut self) -> Result<Option<Bytes>, FlightError> {
        let mut bytes = Vec::new();
        loop {
            let wanted = bytes.first_chunk::<PREFIX_BYTES>().map_or(PREFIX_BYTES, |prefix| {
                PREFIX_BYTES + u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize
            });
            if wanted as u64 > self.limit_bytes {
                return Err(FlightError::TooLarge { bytes: wanted as u64, limit_bytes: self.limit_bytes });
            }
            let taken = self.chunk.len().min(wanted - bytes.len());
            bytes.extend_from_slice(&self.chunk.split_to(taken));
            // A message may have no bytes but its prefix.
            if bytes.len() == wanted && (wanted > PREFIX_BYTES || bytes[1..] == [0; 4]) {
                return Ok(Some(Bytes::from(bytes).slice(PREFIX_BYTES..)));
            }
            if bytes.len() < wanted && self.chunk.is_empty() && !self.more().await? {
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
        assert!(matches!(check("p", &HeaderMap::new(), true), Err(FlightError::MissingStatus { .. })));
        assert!(check("p", &HeaderMap::new(), false).is_ok());
        let mut trailers = HeaderMap::new();
        Status::unavailable("the answer broke off").add_header(&mut trailers).expect("a status fits into headers");
        assert!(matches!(check("p", &trailers, true), Err(FlightError::Status { .. })));
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
