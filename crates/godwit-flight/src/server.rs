//! The Flight server.
//!
//! `DoGet`, `DoPut` and `DoExchange` are served here; the given tonic service answers every other call. Health checks
//! (`grpc.health.v1.Health`) need no authentication. Module `plain_http` answers requests that are not gRPC,
//! over HTTP/1.1 or HTTP/2. The server pulls batches of a [`Download`] as fast as the client reads them. It reads
//! batches of an [`Upload`] as fast as the [`DataPlane`] requests them; HTTP/2 flow control slows the client down. An
//! exchange does both.

mod call_limits;
mod plain_http;
mod response_body;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::flight_service_server::FlightServiceServer;
use arrow_flight::{FlightDescriptor, Ticket};
use arrow_schema::SchemaRef;
use bytes::Bytes;
use godwit_dataset::web::WebRequest;
use godwit_dataset::{AuthError, Principal};
use http::{HeaderMap, Request, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::Status;
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::server::{HealthReporter, health_reporter};
use tower_service::Service;

use crate::call_streams::{Download, ExchangeStream, PutResultStream};
use crate::call_type::CallType;
use crate::codec::{BatchDecoder, BatchEncoder, DecodedMessage, FlightStreamChunk};
use crate::error::{FlightError, auth_status};
use crate::message::{GRPC_PREFIX_BYTES, MessageAssembler};
use crate::metrics::{CallMetrics, RejectionReason, ServerMetrics};
use crate::pool::{ConnectionCounter, ConnectionUse, POOL_SCOPE};
use crate::protocol_detection::{HttpVersion, detect_protocol};
use crate::server::call_limits::{CallLimiter, CallPermit};
use crate::server::response_body::{
    BatchSource, BatchesBody, MeteredBody, ResponseBody, attach_permit, error_response, grpc_response, http_response,
};
use crate::socket_handle::{SocketHandle, SocketOwner};
use crate::tls::ServerTls;
use crate::trace::{self, OpenSpan, TraceContext, Tracer};
use crate::transport::{Address, ConnectionSecurity, Listener, Socket, TransportOptions, configure_http2};
use crate::web::{WebBody, text_response};
use godwit_auth::{Authenticator, Session, bearer_token, request_token};

const HEALTH_PREFIX: &str = "/grpc.health.v1.Health/";
const FLIGHT_SERVICE: &str = <FlightServiceServer<()> as NamedService>::NAME;
const DO_GET_PATH: &str = "/arrow.flight.protocol.FlightService/DoGet";
const DO_PUT_PATH: &str = "/arrow.flight.protocol.FlightService/DoPut";
const DO_ACTION_PATH: &str = "/arrow.flight.protocol.FlightService/DoAction";
const DO_EXCHANGE_PATH: &str = "/arrow.flight.protocol.FlightService/DoExchange";
/// Error message for a call that the scope of its token does not allow.
pub(crate) const OUT_OF_SCOPE: &str = "the token does not permit this call";
/// Largest accepted `DoGet` request, which contains the ticket, in bytes.
const MAX_TICKET_BYTES: usize = 1 << 20;

/// The service that supplies and receives the data of a [`Server`].
///
/// # Examples
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// use arrow_array::RecordBatch;
/// use bytes::Bytes;
/// use godwit_dataset::Principal;
/// use godwit_flight::{Code, DataPlane, Download, PutResultStream, Status, Upload, stream_batches};
/// # use arrow_array::{ArrayRef, Int64Array};
///
/// struct Positions(RecordBatch);
///
/// impl DataPlane for Positions {
///     async fn download(&self, _principal: Principal, ticket: Bytes) -> Result<Download, Status> {
///         if ticket != "positions" {
///             return Err(Status::not_found("the ticket is unknown"));
///         }
///         Ok(stream_batches(self.0.schema(), Box::new(std::iter::once(Ok(self.0.clone())))))
///     }
///
///     async fn upload(&self, _principal: Principal, _upload: Upload) -> Result<PutResultStream, Status> {
///         Err(Status::unimplemented("DoPut is not supported by this server"))
///     }
/// }
///
/// # let positions: ArrayRef = Arc::new(Int64Array::from(vec![100, 200]));
/// # let plane = Positions(RecordBatch::try_from_iter([("position", positions)])?);
/// let download = plane.download(Principal::default(), "positions".into()).await?;
/// assert_eq!(download.schema.field(0).name(), "position");
/// let rejected = plane.download(Principal::default(), "reads".into()).await;
/// assert!(matches!(rejected, Err(status) if status.code() == Code::NotFound));
/// # Ok(())
/// # }
/// ```
pub trait DataPlane: Send + Sync + 'static {
    /// Returns the data of a ticket, for the principal of the call.
    fn download(&self, principal: Principal, ticket: Bytes) -> impl Future<Output = Result<Download, Status>> + Send;

    /// Receives uploaded data and returns the results for the client. The server does not check the scope of a
    /// principal here; the implementation must.
    fn upload(
        &self,
        principal: Principal,
        upload: Upload,
    ) -> impl Future<Output = Result<PutResultStream, Status>> + Send;

    /// Returns the principal of a token that was issued for one scope; `None` for any other token.
    fn authenticate_scoped_token(&self, _token: &[u8]) -> Option<Principal> {
        None
    }

    /// Returns the session that a token contains, if this server or another member of its pool issued the token.
    fn read_session(&self, _token: &[u8]) -> Option<Session> {
        None
    }

    /// Returns the connection counter of this server if it is a pool member.
    fn connection_counter(&self) -> Option<Arc<ConnectionCounter>> {
        None
    }

    /// Returns the current metrics of the server; `None` if the server does not keep metrics.
    fn metrics(&self) -> Option<Arc<ServerMetrics>> {
        None
    }

    /// Returns the tracer that creates trace spans; `None` if tracing is off.
    fn tracer(&self) -> Option<&Tracer> {
        None
    }

    /// Responds to a plain HTTP request.
    fn respond_http(&self, _request: WebRequest) -> impl Future<Output = Response<WebBody>> + Send {
        std::future::ready(text_response(StatusCode::NOT_FOUND, "the page does not exist"))
    }

    /// Receives data and sends data in the same call (`DoExchange`). The default implementation rejects the call.
    fn exchange(
        &self,
        _caller: Principal,
        _upload: Upload,
    ) -> impl Future<Output = Result<ExchangeStream, Status>> + Send {
        std::future::ready(Err(Status::unimplemented("DoExchange is not supported by this server")))
    }
}

/// Data that a client sends in an upload (`DoPut`) or an exchange (`DoExchange`).
pub struct Upload {
    body: Incoming,
    unread: Bytes,
    assembler: MessageAssembler,
    decoder: BatchDecoder,
    descriptor: Option<FlightDescriptor>,
    call_metrics: Option<CallMetrics>,
}

impl Upload {
    fn new(body: Incoming, options: &TransportOptions, call_metrics: Option<CallMetrics>) -> Self {
        let assembler = MessageAssembler::new(options.message_limit_bytes);
        Self { body, unread: Bytes::new(), assembler, decoder: BatchDecoder::default(), descriptor: None, call_metrics }
    }

    /// Returns the descriptor that the client sent; `None` until [`Upload::next`] has read the message that contains
    /// it.
    pub fn descriptor(&self) -> Option<&FlightDescriptor> {
        self.descriptor.as_ref()
    }

    /// Returns the schema of the batches; `None` until it is received. It precedes the first batch.
    pub fn schema(&self) -> Option<&SchemaRef> {
        self.decoder.schema()
    }

    /// Returns the next batch or metadata; `None` after the last one.
    ///
    /// # Errors
    /// A status if a message is invalid, or if the client disconnects before the end.
    pub async fn next(&mut self) -> Result<Option<FlightStreamChunk>, Status> {
        loop {
            let Some(message) = self.assembler.push(&mut self.unread)? else {
                match std::future::poll_fn(|context| Pin::new(&mut self.body).poll_frame(context)).await {
                    Some(Ok(frame)) => {
                        self.unread = frame.into_data().unwrap_or_default();
                        if let Some(counts) = &self.call_metrics {
                            counts.received_bytes.inc_by(self.unread.len() as u64);
                        }
                    }
                    Some(Err(error)) => return Err(Status::cancelled(format!("the upload was interrupted: {error}"))),
                    None if self.assembler.is_between_messages() => return Ok(None),
                    None => return Err(Status::invalid_argument("the upload ended in the middle of a message")),
                }
                continue;
            };
            if !message.descriptor.is_empty() && self.descriptor.is_none() {
                let descriptor = FlightDescriptor::decode(&message.descriptor[..]);
                self.descriptor =
                    Some(descriptor.map_err(|_| Status::invalid_argument("the descriptor cannot be parsed"))?);
            }
            let batch = match self.decoder.decode(&message)? {
                DecodedMessage::Batch(batch) => {
                    if let Some(counts) = &self.call_metrics {
                        counts.received_rows.inc_by(batch.num_rows() as u64);
                    }
                    Some(batch)
                }
                DecodedMessage::Metadata => None,
                DecodedMessage::Schema | DecodedMessage::Dictionary => continue,
            };
            return Ok(Some(FlightStreamChunk { batch, app_metadata: message.app_metadata.into() }));
        }
    }
}

/// A server that listens on its address but accepts connections only in [`Server::serve`] or [`Server::serve_until`].
pub struct Server<D> {
    listener: Listener,
    state: Arc<ServerState<D>>,
}

/// The state that all connections of a server share.
struct ServerState<D> {
    data_plane: D,
    routes: Routes,
    health: HealthReporter,
    authenticator: Authenticator,
    tls: Option<ServerTls>,
    options: TransportOptions,
    address: Address,
    metrics: Option<Arc<ServerMetrics>>,
    call_limiter: Arc<CallLimiter>,
}

impl<D: DataPlane> Server<D> {
    /// Binds an address; port 0 selects a free port. `data` serves `DoGet`, `DoPut` and `DoExchange`, `rest` all other
    /// calls. If `security` contains a token, the server rejects calls without this token.
    ///
    /// # Errors
    /// [`FlightError::Listen`] if the address cannot be bound.
    pub async fn bind(
        address: &Address,
        data: D,
        rest: Routes,
        security: ConnectionSecurity<ServerTls>,
        options: TransportOptions,
    ) -> Result<Self, FlightError> {
        let authenticator = security.token.map_or(Authenticator::Disabled, Authenticator::Token);
        Self::bind_with_auth(address, data, rest, authenticator, security.tls, options).await
    }

    /// Binds an address as [`Server::bind`] does, with the given authenticator.
    ///
    /// # Errors
    /// [`FlightError::Listen`] if the address cannot be bound.
    pub async fn bind_with_auth(
        address: &Address,
        data_plane: D,
        rest: Routes,
        authenticator: Authenticator,
        tls: Option<ServerTls>,
        options: TransportOptions,
    ) -> Result<Self, FlightError> {
        let (listener, address) = Listener::bind(address).await?;
        let (health, service) = health_reporter();
        health.set_service_status(FLIGHT_SERVICE, ServingStatus::Serving).await;
        let routes = rest.add_service(service);
        let metrics = data_plane.metrics();
        let call_limiter = Arc::new(CallLimiter::new(options.call_limits));
        let state =
            ServerState { data_plane, routes, health, authenticator, tls, options, address, metrics, call_limiter };
        Ok(Self { listener, state: Arc::new(state) })
    }

    /// Returns the address of the server, with the actual port.
    pub fn address(&self) -> &Address {
        &self.state.address
    }

    /// Serves until the returned future is dropped, which closes all open connections.
    pub async fn serve(self) {
        self.serve_until(std::future::pending(), Duration::ZERO).await;
    }

    /// Serves until `stop` completes. Then the server rejects new connections and gives open calls the time `drain` to
    /// end. Returns the number of connections that are still open after that time; they are closed.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use godwit_flight::measure::WorkloadDataPlane;
    /// # use godwit_flight::{Address, ConnectionSecurity, Routes, Server, TransportOptions};
    /// use std::time::Duration;
    ///
    /// # let (data, security) = (WorkloadDataPlane::default(), ConnectionSecurity::default());
    /// # let any_port = Address::Tcp("127.0.0.1:0".parse()?);
    /// let server = Server::bind(&any_port, data, Routes::default(), security, TransportOptions::default()).await?;
    /// let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    /// let stopped = async move { drop(stopped.await) };
    /// let serving = tokio::spawn(server.serve_until(stopped, Duration::from_secs(5)));
    /// drop(stop);
    /// assert_eq!(serving.await?, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn serve_until(self, stop: impl Future<Output = ()>, drain: Duration) -> usize {
        let Self { listener, state, .. } = self;
        let mut connections = JoinSet::new();
        let (stopping, stopped) = watch::channel(());
        tokio::pin!(stop);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept(&state.options) => accepted,
                () = &mut stop => break,
            };
            while connections.try_join_next().is_some() {}
            let Some(socket) = accepted else { continue };
            // A connection above the limit is closed at once: `socket` is dropped.
            if connections.len() < state.options.max_connections {
                connections.spawn(serve_connection(socket, state.clone(), stopped.clone()));
            } else if let Some(metrics) = &state.metrics {
                metrics.count_rejection(RejectionReason::Connections);
            }
        }
        report_not_serving(state.health.clone()).await;
        drop((listener, stopping, stopped));
        let ended = async { while connections.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(drain, ended).await;
        connections.len()
    }
}

/// Reports NOT_SERVING to clients that watch the health of the server, and ends their calls. An open `Watch` call would
/// keep its connection open.
async fn report_not_serving(mut health: HealthReporter) {
    for service in ["", FLIGHT_SERVICE] {
        health.set_service_status(service, ServingStatus::NotServing).await;
        health.clear_service_status(service).await;
    }
}

/// Serves a connection until it ends. Once the sender of `stopping` is dropped, new calls are rejected and the
/// connection ends with its last open call.
async fn serve_connection<D: DataPlane>(socket: Socket, state: Arc<ServerState<D>>, mut stopping: watch::Receiver<()>) {
    let options = state.options.clone();
    let _counted = state.metrics.as_ref().map(|metrics| metrics.count_connection());
    let handshake = async {
        let socket = socket.accept(state.tls.as_ref()).await?;
        let owner = SocketOwner::new(socket.tcp_fd());
        let (socket, spoken) = detect_protocol(socket).await?;
        std::io::Result::Ok((owner, TokioIo::new(socket), spoken))
    };
    let handshake = tokio::select! {
        begun = tokio::time::timeout(options.connect_timeout, handshake) => begun,
        _ = stopping.changed() => return,
    };
    // The server closes the connection without a response if the TLS handshake fails or the client sends nothing.
    // Later, HTTP/2 pings detect silent clients, and over HTTP/1.1 the headers of each request have a time limit.
    let Ok(Ok((owner, socket, spoken))) = handshake else { return };
    let socket_handle = owner.handle();
    let connection_use = Arc::new(ConnectionUse::new(state.data_plane.connection_counter()));
    let answer = hyper::service::service_fn(move |request| {
        let (state, socket_handle, connection_use) = (state.clone(), socket_handle.clone(), connection_use.clone());
        async move { Ok::<_, Infallible>(state.respond(request, socket_handle, &connection_use).await) }
    });
    // Ignore an error of the connection: each call on the connection has reported its own result.
    macro_rules! until_stopped {
        ($connection:expr) => {{
            let connection = $connection;
            tokio::pin!(connection);
            tokio::select! {
                _ = connection.as_mut() => {}
                _ = stopping.changed() => {
                    connection.as_mut().graceful_shutdown();
                    let _ = connection.await;
                }
            }
        }};
    }
    match spoken {
        HttpVersion::Http2 => {
            let mut builder = configure_http2!(hyper::server::conn::http2::Builder::new(TokioExecutor::new()), options);
            builder.max_concurrent_streams(options.max_calls_per_connection);
            until_stopped!(builder.serve_connection(socket, answer));
        }
        HttpVersion::Http1 => {
            let mut builder = hyper::server::conn::http1::Builder::new();
            builder.timer(hyper_util::rt::TokioTimer::new()).header_read_timeout(options.connect_timeout);
            until_stopped!(builder.serve_connection(socket, answer));
        }
    }
}

/// Reports whether a request is a gRPC call.
fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(http::header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

impl<D: DataPlane> ServerState<D> {
    async fn respond(
        &self,
        request: Request<Incoming>,
        socket_handle: SocketHandle,
        connection_use: &ConnectionUse,
    ) -> Response<MeteredBody> {
        let call_type = CallType::from_path(request.uri().path());
        let is_page = !is_grpc(request.headers());
        let (head, body) = request.into_parts();
        let span = self.data_plane.tracer().and_then(|tracer| tracer.start_server_span(call_type, &head, !is_page));
        // If this server creates no span, calls that it makes to other servers carry the trace context of the client.
        let context = span.as_ref().map(OpenSpan::context).or_else(|| TraceContext::from_headers(&head.headers));
        let request = Request::from_parts(head, body);
        let call = self.metrics.as_ref().map(|metrics| metrics.start_call(call_type).with_span(span));
        if !is_page && request.version() < Version::HTTP_2 {
            let text = "gRPC requires HTTP/2; the request used HTTP/1.1";
            let answer = http_response(text_response(StatusCode::HTTP_VERSION_NOT_SUPPORTED, text), request.method());
            return MeteredBody::wrap(answer, call, true);
        }
        let response = async {
            match is_page {
                true => self.serve_http(request, socket_handle, call_type).await,
                false => self.serve_grpc(request, socket_handle, connection_use, call_type).await,
            }
        };
        MeteredBody::wrap(trace::with_context(context, response).await, call, is_page)
    }

    /// Returns the counters for calls of one type; `None` if the server does not keep metrics.
    fn call_metrics(&self, call_type: CallType) -> Option<CallMetrics> {
        self.metrics.as_ref().map(|metrics| metrics.call_metrics(call_type).clone())
    }

    fn count_rejection(&self, reason: RejectionReason) {
        if let Some(metrics) = &self.metrics {
            metrics.count_rejection(reason);
        }
    }

    /// Authenticates a call by its headers. Besides tokens of the authenticator, accepts scoped tokens and sessions
    /// that the data plane issued.
    fn authenticate(&self, headers: &HeaderMap, socket_handle: SocketHandle) -> Result<Principal, AuthError> {
        let granted = request_token(headers).and_then(|token| self.data_plane.authenticate_scoped_token(&token));
        let session = || bearer_token(headers).and_then(|token| self.data_plane.read_session(&token));
        let principal = match granted {
            Some(principal) => Ok(principal),
            None => session().map_or_else(
                || self.authenticator.authenticate(headers),
                |session| self.authenticator.authenticate_session(&session),
            ),
        };
        principal
            .map(|principal| principal.with_extension(socket_handle))
            .inspect_err(|_| self.count_rejection(RejectionReason::Token))
    }

    /// Acquires a permit for one call; fails if the principal has too many open calls.
    fn acquire_permit(&self, principal: &Principal) -> Result<Option<CallPermit>, Box<Status>> {
        // A pool member makes calls for many clients. Its calls are not limited.
        self.acquire_permit_for(if principal.scope() == Some(POOL_SCOPE) { "" } else { principal.name() })
    }

    fn acquire_permit_for(&self, name: &str) -> Result<Option<CallPermit>, Box<Status>> {
        self.call_limiter.acquire(name).inspect_err(|_| self.count_rejection(RejectionReason::Limit))
    }

    /// Serves a gRPC call.
    async fn serve_grpc(
        &self,
        mut request: Request<Incoming>,
        socket_handle: SocketHandle,
        connection_use: &ConnectionUse,
        call_type: CallType,
    ) -> Response<ResponseBody> {
        if request.uri().path().starts_with(HEALTH_PREFIX) {
            return self.forward_to_tonic(request).await;
        }
        let principal = match self.authenticate(request.headers(), socket_handle) {
            Ok(principal) => principal,
            Err(error) => return error_response(auth_status(error)),
        };
        if principal.scope().is_some() && ![DO_GET_PATH, DO_ACTION_PATH, DO_PUT_PATH].contains(&request.uri().path()) {
            self.count_rejection(RejectionReason::Scope);
            return error_response(Status::permission_denied(OUT_OF_SCOPE));
        }
        let permit = match self.acquire_permit(&principal) {
            Ok(permit) => permit,
            Err(status) => return error_response(*status),
        };
        if [DO_GET_PATH, DO_PUT_PATH, DO_EXCHANGE_PATH].contains(&request.uri().path()) {
            connection_use.record_data_call(request.headers());
        }
        let response = match request.uri().path() {
            DO_GET_PATH => self.do_get(principal, request.into_body(), self.call_metrics(call_type)).await,
            DO_PUT_PATH => self.do_put(principal, request.into_body(), self.call_metrics(call_type)).await,
            DO_EXCHANGE_PATH => self.do_exchange(principal, request.into_body(), self.call_metrics(call_type)).await,
            _ => {
                request.extensions_mut().insert(principal);
                return attach_permit(self.forward_to_tonic(request).await, permit);
            }
        };
        attach_permit(response.map_or_else(error_response, |reply| grpc_response(reply, None)), permit)
    }

    async fn forward_to_tonic(&self, request: Request<Incoming>) -> Response<ResponseBody> {
        // `call` needs exclusive access to the routes, so each call uses a clone, as in tonic itself. `call` cannot
        // fail.
        let Ok(response) = self.routes.clone().call(request).await;
        response.map(ResponseBody::Tonic)
    }

    async fn do_get(
        &self,
        principal: Principal,
        mut body: Incoming,
        counts: Option<CallMetrics>,
    ) -> Result<ResponseBody, Status> {
        let mut bytes = Vec::new();
        while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            let frame = frame.map_err(|error| Status::cancelled(format!("the request was interrupted: {error}")))?;
            bytes.extend_from_slice(&frame.into_data().unwrap_or_default());
            if bytes.len() > MAX_TICKET_BYTES {
                return Err(Status::resource_exhausted("the ticket is larger than 1 MiB"));
            }
        }
        let ticket = bytes.get(GRPC_PREFIX_BYTES..).and_then(|bytes| Ticket::decode(bytes).ok());
        let ticket = ticket.ok_or_else(|| Status::invalid_argument("the ticket cannot be parsed"))?;
        let download = self.data_plane.download(principal, ticket.ticket).await?;
        let encoder = Some(Box::new(BatchEncoder::new(&download.schema)?));
        let rows = counts.map(|counts| counts.sent_rows);
        Ok(ResponseBody::Batches(BatchesBody::new(BatchSource::Batches(download.batches), encoder, rows)))
    }

    async fn do_exchange(
        &self,
        principal: Principal,
        body: Incoming,
        counts: Option<CallMetrics>,
    ) -> Result<ResponseBody, Status> {
        let rows = counts.as_ref().map(|counts| counts.sent_rows.clone());
        let chunks = self.data_plane.exchange(principal, Upload::new(body, &self.options, counts)).await?;
        Ok(ResponseBody::Batches(BatchesBody::new(BatchSource::Chunks(chunks), None, rows)))
    }

    async fn do_put(
        &self,
        principal: Principal,
        body: Incoming,
        counts: Option<CallMetrics>,
    ) -> Result<ResponseBody, Status> {
        let results = self.data_plane.upload(principal, Upload::new(body, &self.options, counts)).await?;
        Ok(ResponseBody::PutResults { results, ended: false })
    }
}
