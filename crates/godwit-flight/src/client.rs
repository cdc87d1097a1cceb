//! The Flight client.
//!
//! A [`Client`] is one HTTP/2 connection; its calls share the flow control window of the connection. The caller pulls a
//! download batch by batch. An upload queues at most a few batches while HTTP/2 flow control delays sending. Load
//! balancing, retries and failover are in [`crate::pool`].

mod prepared_statement;
mod response_messages;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use arrow_array::RecordBatch;
use arrow_flight::sql::{CommandStatementQuery, ProstMessageExt as _};
use arrow_flight::{Action, FlightDescriptor, FlightInfo, PutResult, Ticket};
use arrow_schema::{Schema, SchemaRef};
use bytes::{Buf, Bytes};
use godwit_auth::Token;
use http::{Method, Request, Response};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tokio::sync::{mpsc, watch};
use tonic::Status;

use crate::codec::{BatchDecoder, BatchEncoder, DecodedMessage, FlightStreamChunk, encode_metadata};
use crate::error::FlightError;
use crate::lease_header::{MEMBER_LEASE_HEADER, MemberLeaseId, format_lease_header};
use crate::message::{MessageAssembler, encode_protobuf};
use crate::segments::Segments;
use crate::socket_handle::{SocketHandle, SocketOwner};
use crate::stream_progress::StreamProgress;
use crate::tls::{self, ClientTls};
use crate::trace;
use crate::transport::{Address, ConnectionSecurity, Socket, TransportOptions, configure_http2};
pub use prepared_statement::ParameterValues;
use response_messages::{ResponseMessages, check_status};

/// Most batches that an upload queues between the caller of [`BatchSender::send`] and the connection.
const UPLOAD_QUEUE_BATCHES: usize = 2;

/// A connection to a server.
#[derive(Clone)]
pub struct Client {
    requests: SendRequest<RequestBody>,
    peer: String,
    token: Option<Token>,
    options: TransportOptions,
    socket_handle: SocketHandle,
    /// The lease of the pool that selected this server; calls report the lease to the server.
    lease_id: Option<MemberLeaseId>,
    /// Whether the server answered with an alert of TLS, because it accepts no connections without it.
    tls_alert: Arc<AtomicBool>,
}

/// The body of a request: queued messages, and the unsent bytes of a message that is longer than one HTTP/2 frame.
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
    /// Connects to a server. A task of the current tokio runtime drives the connection until the client is dropped and
    /// its last call has ended.
    ///
    /// # Errors
    /// [`FlightError::Connect`] if TCP or TLS fails, [`FlightError::UntrustedCertificate`] if the client does not trust
    /// the server, [`FlightError::Connection`] if HTTP/2 fails.
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
        let socket = socket.map_err(|source| match tls::is_untrusted_certificate(&source) {
            true => FlightError::UntrustedCertificate { address: peer.clone(), source },
            false => FlightError::Connect { address: peer.clone(), source },
        })?;
        let owner = SocketOwner::new(socket.tcp_fd());
        let socket_handle = owner.handle();
        let builder = configure_http2!(hyper::client::conn::http2::Builder::new(TokioExecutor::new()), options);
        let tls_alert = Arc::<AtomicBool>::default();
        let (requests, connection) = builder
            .handshake(TokioIo::new(socket.into_framed(tls_alert.clone())))
            .await
            .map_err(|source| FlightError::Connection { peer: peer.clone(), source })?;
        // This task ignores an error of the connection: every open call on the connection returns the error.
        tokio::spawn(async move {
            tokio::pin!(connection);
            tokio::select! {
                _ = connection.as_mut() => {}
                () = wait_until_lost(lost) => {
                    // Close the socket explicitly: hyper reads and writes it in another task, which runs until all
                    // calls end.
                    owner.shut_down();
                    let _ = connection.await;
                }
            }
        });
        Ok(Self { requests, peer, token: security.token, options, socket_handle, lease_id: None, tls_alert })
    }

    /// Returns a client for the same connection whose calls carry the lease of a pool.
    pub(crate) fn with_lease(self, lease_id: MemberLeaseId) -> Self {
        Self { lease_id: Some(lease_id), ..self }
    }

    /// Returns the handle to the TCP socket.
    pub fn socket_handle(&self) -> &SocketHandle {
        &self.socket_handle
    }

    /// Returns whether new calls can be made, as far as the client knows. A lost connection may not be detected yet.
    pub fn is_open(&self) -> bool {
        !self.requests.is_closed()
    }

    /// Runs an action of the server by its name; returns the list of its results.
    ///
    /// # Errors
    /// [`FlightError::Status`] if the server rejects the action; other variants if the connection fails.
    pub async fn do_action(&self, action: &str, body: impl Into<Bytes>) -> Result<Vec<Bytes>, FlightError> {
        let mut answers = self.start_action(action, body.into()).await?;
        let mut messages = Vec::new();
        while let Some(message) = answers.next().await? {
            messages.push(message);
        }
        Ok(messages)
    }

    /// Runs an action and returns its first result, of at most `limit_bytes`; fails if there is none. Reads no further
    /// result, so that a server that is not trusted cannot make the client read without limit.
    pub(crate) async fn first_action_result(
        &self,
        action: &str,
        body: impl Into<Bytes>,
        limit_bytes: usize,
    ) -> Result<Bytes, FlightError> {
        let mut answers = self.start_action(action, body.into()).await?;
        answers.incoming.limit_bytes = limit_bytes as u64;
        let none = FlightError::Malformed { problem: "the server returned no result" };
        answers.next().await?.ok_or(none)
    }

    async fn start_action(&self, action: &str, body: Bytes) -> Result<PutResults, FlightError> {
        let (sender, receiver) = mpsc::channel(1);
        // The channel is empty and its receiver exists, so `try_send` cannot fail.
        let _ = sender.try_send(encode_protobuf(&Action { r#type: action.to_owned(), body }));
        drop(sender);
        let response = self.send_request("DoAction", receiver.into()).await?;
        // `Result` of an action and `PutResult` have the same protobuf encoding: one field of bytes with number 1.
        Ok(PutResults { incoming: self.response_messages(response)? })
    }

    /// Requests the flight info of an SQL statement (Flight SQL). Returns its tickets; downloaded in this order they
    /// give the rows in order.
    ///
    /// # Errors
    /// [`FlightError::Status`] if the server rejects the statement; other variants if the connection fails.
    pub async fn statement_tickets(&self, sql: &str) -> Result<Vec<Bytes>, FlightError> {
        let query = CommandStatementQuery { query: sql.to_owned(), transaction_id: None };
        let info = self.flight_info(FlightDescriptor::new_cmd(query.as_any().encode_to_vec())).await?;
        Ok(info.endpoint.into_iter().filter_map(|endpoint| Some(endpoint.ticket?.ticket)).collect())
    }

    /// Requests the schema of a dataset, whose metadata contains for example the SAM or VCF header.
    ///
    /// # Errors
    /// [`FlightError::Status`] if the server does not have the dataset; other variants if the connection fails.
    pub async fn dataset_schema(&self, name: &str) -> Result<SchemaRef, FlightError> {
        let info = self.flight_info(FlightDescriptor::new_path(vec![name.to_owned()])).await?;
        info.try_decode_schema()
            .map(SchemaRef::new)
            .map_err(|_| FlightError::Malformed { problem: "the response contains no schema" })
    }

    async fn flight_info(&self, descriptor: FlightDescriptor) -> Result<FlightInfo, FlightError> {
        let (sender, receiver) = mpsc::channel(1);
        // The channel is empty and its receiver exists, so `try_send` cannot fail.
        let _ = sender.try_send(encode_protobuf(&descriptor));
        drop(sender);
        let response = self.send_request("GetFlightInfo", receiver.into()).await?;
        let mut incoming = self.response_messages(response)?;
        let message = incoming.next_message().await?.unwrap_or_default();
        let info = FlightInfo::decode(message)
            .map_err(|_| FlightError::Malformed { problem: "the response is not a FlightInfo message" })?;
        // Read to the end of the response: the server sends the status of a failed call after the last message.
        incoming.next_message().await?;
        Ok(info)
    }

    /// Returns the address of the server.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// Downloads the data of a ticket.
    ///
    /// # Errors
    /// [`FlightError::Status`] if the server rejects the ticket; other variants if the connection fails.
    pub async fn download(&self, ticket: impl Into<Bytes>) -> Result<Batches, FlightError> {
        let (sender, receiver) = mpsc::channel(1);
        // The channel is empty and its receiver exists, so `try_send` cannot fail.
        let _ = sender.try_send(encode_protobuf(&Ticket { ticket: ticket.into() }));
        drop(sender);
        self.start_batches("DoGet", receiver.into()).await
    }

    async fn start_batches(&self, method: &str, body: RequestBody) -> Result<Batches, FlightError> {
        let response = self.send_request(method, body).await?;
        let assembler = MessageAssembler::new(self.options.message_limit_bytes);
        Ok(Batches { incoming: self.response_messages(response)?, assembler, decoder: BatchDecoder::default() })
    }

    /// Uploads batches of one schema. The first returned value sends batches, the second receives the results of the
    /// server. If the server sends many results, read them while sending.
    ///
    /// # Errors
    /// [`FlightError::Arrow`]: the schema cannot be sent.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use godwit_flight::measure::WorkloadDataPlane;
    /// # use godwit_flight::{Address, ConnectionSecurity, Routes, Server, TransportOptions};
    /// # use godwit_flight::{Client, FlightDescriptor, measure::Workload};
    /// # let (data, security) = (WorkloadDataPlane::default(), ConnectionSecurity::default());
    /// # let any_port = Address::Tcp("127.0.0.1:0".parse()?);
    /// # let server = Server::bind(&any_port, data, Routes::default(), security, TransportOptions::default()).await?;
    /// # let address = server.address().clone();
    /// # tokio::spawn(server.serve());
    /// # let client = Client::connect(&address, ConnectionSecurity::default(), TransportOptions::default()).await?;
    /// # let batch = "fixed/2/1000/16000".parse::<Workload>()?.batches().remove(0);
    /// let (mut sender, results) = client.upload(&FlightDescriptor::new_path(vec!["a".to_owned()]), &batch.schema())?;
    /// let sending = async {
    ///     sender.send(&batch, b"").await?;
    ///     sender.finish().await
    /// };
    /// let ((), mut results) = tokio::try_join!(sending, results)?;
    /// assert_eq!(results.next().await?.as_deref(), Some(&b"1000"[..]));
    /// # Ok(())
    /// # }
    /// ```
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

    /// Exchanges batches with the server (`DoExchange`). The first returned value sends batches of one schema. The
    /// second receives batches of the server, which may have another schema; read them while sending.
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
        let broken = |source| match self.tls_alert.load(Ordering::Relaxed) {
            true => FlightError::TlsRequired { address: self.peer.clone() },
            false => FlightError::Connection { peer: self.peer.clone(), source },
        };
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

/// Waits until `lost` becomes true. Waits forever if `lost` is `None` or its sender was dropped.
async fn wait_until_lost(lost: Option<watch::Receiver<bool>>) {
    if let Some(mut lost) = lost
        && lost.wait_for(|lost| *lost).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Batches that the server sends in a download (`DoGet`) or an exchange (`DoExchange`).
pub struct Batches {
    incoming: ResponseMessages,
    assembler: MessageAssembler,
    decoder: BatchDecoder,
}

impl Batches {
    /// Returns the schema of the batches; `None` until [`Batches::next`] has received it.
    pub fn schema(&self) -> Option<&SchemaRef> {
        self.decoder.schema()
    }

    /// Returns the next batch and its application metadata; `None` after the last one.
    ///
    /// # Errors
    /// [`FlightError`] if the call fails or its data are invalid. A truncated download is an error.
    pub async fn next(&mut self) -> Result<Option<(RecordBatch, Bytes)>, FlightError> {
        loop {
            match self.next_chunk().await? {
                Some(FlightStreamChunk { batch: Some(batch), app_metadata }) => return Ok(Some((batch, app_metadata))),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    /// Returns the next batch as [`Batches::next`] does, and records each received message in `progress`.
    pub(crate) async fn next_with_progress(
        &mut self,
        progress: &mut StreamProgress,
    ) -> Result<Option<RecordBatch>, FlightError> {
        loop {
            match self.next_message(Some(progress)).await? {
                Some(FlightStreamChunk { batch: Some(batch), .. }) => {
                    progress.finish_batch();
                    return Ok(Some(batch));
                }
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    /// Returns the next batch, or the next metadata that was sent without a batch; `None` after the last one.
    ///
    /// # Errors
    /// The same errors as [`Batches::next`].
    pub async fn next_chunk(&mut self) -> Result<Option<FlightStreamChunk>, FlightError> {
        self.next_message(None).await
    }

    async fn next_message(
        &mut self,
        mut progress: Option<&mut StreamProgress>,
    ) -> Result<Option<FlightStreamChunk>, FlightError> {
        loop {
            if let Some(message) = self.assembler.push(&mut self.incoming.unread)? {
                let decoded = self.decoder.decode(&message)?;
                if let (Some(progress), DecodedMessage::Batch(_) | DecodedMessage::Dictionary) =
                    (&mut progress, &decoded)
                {
                    progress.add_message(&message.header, std::slice::from_ref(&message.body));
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
                    Err(FlightError::Malformed { problem: "the stream ended in the middle of a message" })
                };
            }
        }
    }
}

/// Sends the batches of an upload (`DoPut`) or an exchange (`DoExchange`).
pub struct BatchSender {
    sender: mpsc::Sender<Segments>,
    encoder: BatchEncoder,
    descriptor: Vec<u8>,
    peer: String,
}

impl BatchSender {
    /// Sends a batch; waits while the queue of unsent batches is full.
    ///
    /// # Errors
    /// [`FlightError::Arrow`] if the batch cannot be encoded. [`FlightError::Status`] if the call has ended; then the
    /// receiving side returns the reason.
    pub async fn send(&mut self, batch: &RecordBatch, app_metadata: &[u8]) -> Result<(), FlightError> {
        let descriptor = std::mem::take(&mut self.descriptor);
        let segments = self.encoder.encode(batch, &descriptor, app_metadata)?;
        self.send_segments(segments).await
    }

    /// Sends metadata without a batch; waits while the queue of unsent messages is full.
    ///
    /// # Errors
    /// The same errors as [`BatchSender::send`].
    pub async fn send_metadata(&mut self, app_metadata: &[u8]) -> Result<(), FlightError> {
        let descriptor = std::mem::take(&mut self.descriptor);
        self.send_segments(encode_metadata(&descriptor, app_metadata)).await
    }

    /// Ends the sending side of the call. The server may still send results or batches.
    ///
    /// # Errors
    /// The same errors as [`BatchSender::send`].
    pub async fn finish(mut self) -> Result<(), FlightError> {
        let segments = self.encoder.finish(&self.descriptor)?;
        if !segments.has_remaining() { Ok(()) } else { self.send_segments(segments).await }
    }

    async fn send_segments(&mut self, segments: Segments) -> Result<(), FlightError> {
        self.sender.send(segments).await.map_err(|_| FlightError::Status {
            peer: self.peer.clone(),
            status: Box::new(Status::aborted("the peer closed the upload before it was complete")),
        })
    }
}

/// The results that the server sends for an upload.
pub struct PutResults {
    incoming: ResponseMessages,
}

impl PutResults {
    /// Returns the next result; `None` when the upload has succeeded.
    ///
    /// # Errors
    /// [`FlightError::Status`] if the server rejects the upload; other variants if the connection fails.
    pub async fn next(&mut self) -> Result<Option<Bytes>, FlightError> {
        let Some(message) = self.incoming.next_message().await? else { return Ok(None) };
        match PutResult::decode(message) {
            Ok(answer) => Ok(Some(answer.app_metadata)),
            Err(_) => Err(FlightError::Malformed { problem: "the response is not a PutResult message" }),
        }
    }
}
