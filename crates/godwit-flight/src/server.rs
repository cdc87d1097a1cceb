//! The serving end.
//!
//! `DoGet`, `DoPut` and `DoExchange` are answered here; every other call goes to the tonic service the server was given. How the
//! server is (`grpc.health.v1.Health`) is told to everybody, before they say who they are. What is no gRPC, over HTTP/1.1 or HTTP/2,
//! is answered by module `web`.
//! Batches of a [`Download`] are pulled as fast as the client takes them and no faster; those of an [`Upload`] are taken as
//! fast as the [`DataPlane`] asks for them, and HTTP/2's windows hold the client back. An exchange is both at once.

mod callers;
mod pages;
mod reply;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_flight::flight_service_server::FlightServiceServer;
use arrow_flight::{FlightDescriptor, Ticket};
use arrow_schema::SchemaRef;
use bytes::Bytes;
use futures_core::Stream;
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

use crate::codec::{BatchDecoder, BatchEncoder, Chunk, Decoded};
use crate::error::FlightError;
use crate::first_words::{Spoken, listen};
use crate::gate::{Caller, Gate, Session, shown_bearer, shown_token};
use crate::message::{Assembler, PREFIX_BYTES};
use crate::metrics::{Metrics, RefusedFor, Verb, VerbCounts};
use crate::pool::{ConnectionUse, Meter, PURPOSE};
use crate::server::callers::{Callers, Seat};
use crate::server::reply::{Counted, Outgoing, Reply, Source, page, refused, response, seated};
use crate::tls::ServerTls;
use crate::trace::{self, OpenSpan, TraceContext, Tracer};
use crate::transport::{Access, Address, Listener, Socket, Tuning, tuned};
use crate::web::{WebBody, WebRequest, plain};
use crate::wire::{Wire, WireOwner};

pub use callers::CallerLimits;

const HEALTH: &str = "/grpc.health.v1.Health/";
const FLIGHT: &str = <FlightServiceServer<()> as NamedService>::NAME;
const DO_GET: &str = "/arrow.flight.protocol.FlightService/DoGet";
const DO_PUT: &str = "/arrow.flight.protocol.FlightService/DoPut";
const DO_ACTION: &str = "/arrow.flight.protocol.FlightService/DoAction";
const DO_EXCHANGE: &str = "/arrow.flight.protocol.FlightService/DoExchange";
/// What callers with a purpose hear of all else.
pub(crate) const GRANTED_ONLY: &str = "this was not granted";
/// Largest ticket that is taken, bytes.
const TICKET_LIMIT_BYTES: usize = 1 << 20;

/// A batch and what is said beside it.
pub type Item = (RecordBatch, Bytes);

/// What a client downloads.
pub struct Download {
    /// Schema of all batches.
    pub schema: SchemaRef,
    /// The batches.
    pub batches: Pin<Box<dyn Stream<Item = Result<Item, Status>> + Send>>,
}

/// Answers to an upload, sent as they come; the upload ends with the stream.
pub type Answers = Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>;

/// The server's side of an exchange. The first batch has the schema of all; a client may wait for what is said before it.
pub type Chunks = Pin<Box<dyn Stream<Item = Result<Chunk, Status>> + Send>>;

/// What a server does with data.
pub trait DataPlane: Send + Sync + 'static {
    /// The data that a ticket stands for, for who shows it.
    fn download(&self, caller: Caller, ticket: Bytes) -> impl Future<Output = Result<Download, Status>> + Send;

    /// Takes data; the answers go to the client's side of the upload. Whether a caller with a purpose may send them is known here only.
    fn upload(&self, caller: Caller, upload: Upload) -> impl Future<Output = Result<Answers, Status>> + Send;

    /// Who shows a token that was granted for one purpose; `None` where it is no such token.
    fn granted(&self, _token: &[u8]) -> Option<Caller> {
        None
    }

    /// The session that a token is, where it is one that was given here.
    fn session(&self, _token: &[u8]) -> Option<Session> {
        None
    }

    /// What counts the connections of a server that is one of several.
    fn meter(&self) -> Option<Arc<Meter>> {
        None
    }

    /// What is counted of a server, as it is now; `None` where nothing is.
    fn metrics(&self) -> Option<Arc<Metrics>> {
        None
    }

    /// What makes spans of calls; `None` where nobody follows them.
    fn tracer(&self) -> Option<&Tracer> {
        None
    }

    /// Answers what is asked over plain HTTP.
    fn page(&self, _request: WebRequest) -> impl Future<Output = Response<WebBody>> + Send {
        std::future::ready(plain(StatusCode::NOT_FOUND, "there is no page of that name"))
    }

    /// Takes data and gives data for it, both as they come; refused where a server has no use for it.
    fn exchange(&self, _caller: Caller, _taken: Upload) -> impl Future<Output = Result<Chunks, Status>> + Send {
        std::future::ready(Err(Status::unimplemented("nothing is exchanged here")))
    }
}

/// Data on its way in: an upload, or the client's side of an exchange.
pub struct Upload {
    body: Incoming,
    chunk: Bytes,
    assembler: Assembler,
    decoder: BatchDecoder,
    descriptor: Option<FlightDescriptor>,
    counts: Option<VerbCounts>,
}

impl Upload {
    fn new(body: Incoming, tuning: &Tuning, counts: Option<VerbCounts>) -> Self {
        let assembler = Assembler::new(tuning.message_limit_bytes);
        Self { body, chunk: Bytes::new(), assembler, decoder: BatchDecoder::default(), descriptor: None, counts }
    }

    /// What the client says it sends; known once the first message is here.
    pub fn descriptor(&self) -> Option<&FlightDescriptor> {
        self.descriptor.as_ref()
    }

    /// The schema; known once it is here, which is before the first batch.
    pub fn schema(&self) -> Option<&SchemaRef> {
        self.decoder.schema()
    }

    /// The next message; `None` after the last one.
    ///
    /// # Errors
    /// What the client sent wrong, or that it went away before it was done.
    pub async fn next(&mut self) -> Result<Option<Chunk>, Status> {
        loop {
            let Some(message) = self.assembler.push(&mut self.chunk)? else {
                match std::future::poll_fn(|context| Pin::new(&mut self.body).poll_frame(context)).await {
                    Some(Ok(frame)) => {
                        self.chunk = frame.into_data().unwrap_or_default();
                        if let Some(counts) = &self.counts {
                            counts.received_bytes.inc_by(self.chunk.len() as u64);
                        }
                    }
                    Some(Err(error)) => return Err(Status::cancelled(format!("the upload broke off: {error}"))),
                    None if self.assembler.is_between_messages() => return Ok(None),
                    None => return Err(Status::invalid_argument("the upload ends within a message")),
                }
                continue;
            };
            if !message.descriptor.is_empty() && self.descriptor.is_none() {
                let descriptor = FlightDescriptor::decode(&message.descriptor[..]);
                self.descriptor =
                    Some(descriptor.map_err(|_| Status::invalid_argument("the descriptor cannot be read"))?);
            }
            let batch = match self.decoder.decode(&message)? {
                Decoded::Batch(batch) => {
                    if let Some(counts) = &self.counts {
                        counts.received_rows.inc_by(batch.num_rows() as u64);
                    }
                    Some(batch)
                }
                Decoded::Nothing => None,
                Decoded::Schema | Decoded::Dictionary => continue,
            };
            return Ok(Some(Chunk { batch, app_metadata: message.app_metadata.into() }));
        }
    }
}

/// A server with its place taken.
pub struct Server<D> {
    listener: Listener,
    plane: Arc<Plane<D>>,
}

/// What every connection needs.
struct Plane<D> {
    data: D,
    rest: Routes,
    health: HealthReporter,
    gate: Gate,
    tls: Option<ServerTls>,
    tuning: Tuning,
    address: Address,
    metrics: Option<Arc<Metrics>>,
    callers: Arc<Callers>,
}

impl<D: DataPlane> Server<D> {
    /// Takes a place; port 0 takes any. `rest` answers what is not answered here. Where `access` has a token,
    /// nobody is let in without it.
    ///
    /// # Errors
    /// [`FlightError::Listen`].
    pub async fn bind(
        address: &Address,
        data: D,
        rest: Routes,
        access: Access<ServerTls>,
        tuning: Tuning,
    ) -> Result<Self, FlightError> {
        let gate = access.token.map_or(Gate::Open, Gate::Token);
        Self::bind_guarded(address, data, rest, gate, access.tls, tuning).await
    }

    /// As [`Server::bind`], where callers may be several.
    ///
    /// # Errors
    /// [`FlightError::Listen`].
    pub async fn bind_guarded(
        address: &Address,
        data: D,
        rest: Routes,
        gate: Gate,
        tls: Option<ServerTls>,
        tuning: Tuning,
    ) -> Result<Self, FlightError> {
        let (listener, address) = Listener::bind(address).await?;
        let (health, service) = health_reporter();
        health.set_service_status(FLIGHT, ServingStatus::Serving).await;
        let rest = rest.add_service(service);
        let metrics = data.metrics();
        let callers = Arc::new(Callers::new(tuning.callers));
        let plane = Plane { data, rest, health, gate, tls, tuning, address, metrics, callers };
        Ok(Self { listener, plane: Arc::new(plane) })
    }

    /// Where it is.
    pub fn address(&self) -> &Address {
        &self.plane.address
    }

    /// Serves until the future is dropped; connections that are open then are closed.
    pub async fn serve(self) {
        self.serve_until(std::future::pending(), Duration::ZERO).await;
    }

    /// Serves until `stop`: then nobody new is let in, calls that are open may end within a while, and what is open after that is
    /// closed. Returns how many connections were closed so.
    pub async fn serve_until(self, stop: impl Future<Output = ()>, drain: Duration) -> usize {
        let Self { listener, plane, .. } = self;
        let mut connections = JoinSet::new();
        let (stopping, stopped) = watch::channel(());
        tokio::pin!(stop);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept(&plane.tuning) => accepted,
                () = &mut stop => break,
            };
            while connections.try_join_next().is_some() {}
            let Some(socket) = accepted else { continue };
            // Who finds no place is not kept waiting.
            if connections.len() < plane.tuning.connections {
                connections.spawn(converse(socket, plane.clone(), stopped.clone()));
            } else if let Some(metrics) = &plane.metrics {
                metrics.refuse(RefusedFor::Connections);
            }
        }
        tell_of_the_end(plane.health.clone()).await;
        drop((listener, stopping, stopped));
        let ended = async { while connections.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(drain, ended).await;
        connections.len()
    }
}

/// Whoever watches hears that nothing more is served, and then nothing more: a watch that goes on would keep its connection open.
async fn tell_of_the_end(mut health: HealthReporter) {
    for service in ["", FLIGHT] {
        health.set_service_status(service, ServingStatus::NotServing).await;
        health.clear_service_status(service).await;
    }
}

/// Serves a connection until it ends, or until its calls have ended once `stopping` is dropped.
async fn converse<D: DataPlane>(socket: Socket, plane: Arc<Plane<D>>, mut stopping: watch::Receiver<()>) {
    let tuning = plane.tuning.clone();
    let _counted = plane.metrics.as_ref().map(|metrics| metrics.connection());
    let begun = async {
        let socket = socket.accept(plane.tls.as_ref()).await?;
        let owner = WireOwner::of(socket.tcp());
        let (socket, spoken) = listen(socket).await?;
        std::io::Result::Ok((owner, TokioIo::new(socket), spoken))
    };
    let begun = tokio::select! {
        begun = tokio::time::timeout(tuning.connect_timeout, begun) => begun,
        _ = stopping.changed() => return,
    };
    // Who does not speak TLS, or falls silent before it has said what it speaks, has told nobody its name: there is nobody to
    // answer. Later, HTTP/2's pings tell who is silent, and HTTP/1.1 has a time for the head of each request.
    let Ok(Ok((owner, socket, spoken))) = begun else { return };
    let wire = owner.wire();
    let used = Arc::new(ConnectionUse::new(plane.data.meter()));
    let answer = hyper::service::service_fn(move |request| {
        let (plane, wire, used) = (plane.clone(), wire.clone(), used.clone());
        async move { Ok::<_, Infallible>(plane.answer(request, wire, &used).await) }
    });
    // How a connection ends is the client's business; each call on it has told its own outcome.
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
        Spoken::Http2 => {
            let mut builder = tuned!(hyper::server::conn::http2::Builder::new(TokioExecutor::new()), tuning);
            builder.max_concurrent_streams(tuning.calls_per_connection);
            until_stopped!(builder.serve_connection(socket, answer));
        }
        Spoken::Http1 => {
            let mut builder = hyper::server::conn::http1::Builder::new();
            builder.timer(hyper_util::rt::TokioTimer::new()).header_read_timeout(tuning.connect_timeout);
            until_stopped!(builder.serve_connection(socket, answer));
        }
    }
}

/// Whether a request is one of gRPC.
fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(http::header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

impl<D: DataPlane> Plane<D> {
    async fn answer(&self, request: Request<Incoming>, wire: Wire, used: &ConnectionUse) -> Response<Counted> {
        let verb = Verb::of(request.uri().path());
        let is_page = !is_grpc(request.headers());
        let (head, body) = request.into_parts();
        let span = self.data.tracer().and_then(|tracer| tracer.call(verb, &head, !is_page));
        // Where nobody follows what is done here, whoever is called on the way is told of the caller's span.
        let context = span.as_ref().map(OpenSpan::context).or_else(|| TraceContext::of(&head.headers));
        let request = Request::from_parts(head, body);
        let call = self.metrics.as_ref().map(|metrics| metrics.begin(verb).traced(span));
        if !is_page && request.version() < Version::HTTP_2 {
            let text = "gRPC is spoken over HTTP/2; this came over HTTP/1.1";
            let answer = page(plain(StatusCode::HTTP_VERSION_NOT_SUPPORTED, text), request.method());
            return Counted::over(answer, call, true);
        }
        let answered = async {
            match is_page {
                true => self.page(request, wire, verb).await,
                false => self.call(request, wire, used, verb).await,
            }
        };
        Counted::over(trace::within(context, answered).await, call, is_page)
    }

    /// What is counted of a verb.
    fn counts(&self, verb: Verb) -> Option<VerbCounts> {
        self.metrics.as_ref().map(|metrics| metrics.of(verb).clone())
    }

    fn refuse(&self, reason: RefusedFor) {
        if let Some(metrics) = &self.metrics {
            metrics.refuse(reason);
        }
    }

    /// Who shows these headers, also by what was granted here.
    fn admit(&self, headers: &HeaderMap, wire: Wire) -> Result<Caller, Status> {
        let granted = shown_token(headers).and_then(|token| self.data.granted(&token));
        let session = || shown_bearer(headers).and_then(|token| self.data.session(&token));
        let caller = match granted {
            Some(caller) => Ok(caller),
            None => session().map_or_else(|| self.gate.admit(headers), |session| self.gate.resume(&session)),
        };
        caller.map(|caller| caller.over(wire)).map_err(|status| {
            self.refuse(RefusedFor::Token);
            *status
        })
    }

    /// A call of somebody begins.
    fn enter(&self, caller: &Caller) -> Result<Option<Seat>, Box<Status>> {
        // Nodes of a pool come for others, and are as many as there are.
        self.enter_as(if caller.purpose() == Some(PURPOSE) { "" } else { caller.name() })
    }

    fn enter_as(&self, name: &str) -> Result<Option<Seat>, Box<Status>> {
        self.callers.enter(name).inspect_err(|_| self.refuse(RefusedFor::Limit))
    }

    /// A call of gRPC.
    async fn call(
        &self,
        mut request: Request<Incoming>,
        wire: Wire,
        used: &ConnectionUse,
        verb: Verb,
    ) -> Response<Reply> {
        if request.uri().path().starts_with(HEALTH) {
            return self.by_tonic(request).await;
        }
        let caller = match self.admit(request.headers(), wire) {
            Ok(caller) => caller,
            Err(status) => return refused(status),
        };
        if caller.purpose().is_some() && ![DO_GET, DO_ACTION, DO_PUT].contains(&request.uri().path()) {
            self.refuse(RefusedFor::Grant);
            return refused(Status::permission_denied(GRANTED_ONLY));
        }
        let seat = match self.enter(&caller) {
            Ok(seat) => seat,
            Err(status) => return refused(*status),
        };
        if [DO_GET, DO_PUT, DO_EXCHANGE].contains(&request.uri().path()) {
            used.data(request.headers());
        }
        let answered = match request.uri().path() {
            DO_GET => self.get(caller, request.into_body(), self.counts(verb)).await,
            DO_PUT => self.put(caller, request.into_body(), self.counts(verb)).await,
            DO_EXCHANGE => self.exchange(caller, request.into_body(), self.counts(verb)).await,
            _ => {
                request.extensions_mut().insert(caller);
                return seated(self.by_tonic(request).await, seat);
            }
        };
        seated(answered.map_or_else(refused, |reply| response(reply, None)), seat)
    }

    async fn by_tonic(&self, request: Request<Incoming>) -> Response<Reply> {
        // Routes are cloned per call, as tonic itself does; calling one cannot fail.
        let Ok(response) = self.rest.clone().call(request).await;
        response.map(Reply::Tonic)
    }

    async fn get(&self, caller: Caller, mut body: Incoming, counts: Option<VerbCounts>) -> Result<Reply, Status> {
        let mut bytes = Vec::new();
        while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            let frame = frame.map_err(|error| Status::cancelled(format!("the request broke off: {error}")))?;
            bytes.extend_from_slice(&frame.into_data().unwrap_or_default());
            if bytes.len() > TICKET_LIMIT_BYTES {
                return Err(Status::resource_exhausted("the ticket is over 1 MiB"));
            }
        }
        let ticket = bytes.get(PREFIX_BYTES..).and_then(|bytes| Ticket::decode(bytes).ok());
        let ticket = ticket.ok_or_else(|| Status::invalid_argument("the ticket cannot be read"))?;
        let download = self.data.download(caller, ticket.ticket).await?;
        let encoder = Some(Box::new(BatchEncoder::new(&download.schema)?));
        let rows = counts.map(|counts| counts.sent_rows);
        Ok(Reply::Data(Outgoing::new(Source::Batches(download.batches), encoder, rows)))
    }

    async fn exchange(&self, caller: Caller, body: Incoming, counts: Option<VerbCounts>) -> Result<Reply, Status> {
        let rows = counts.as_ref().map(|counts| counts.sent_rows.clone());
        let chunks = self.data.exchange(caller, Upload::new(body, &self.tuning, counts)).await?;
        Ok(Reply::Data(Outgoing::new(Source::Chunks(chunks), None, rows)))
    }

    async fn put(&self, caller: Caller, body: Incoming, counts: Option<VerbCounts>) -> Result<Reply, Status> {
        let answers = self.data.upload(caller, Upload::new(body, &self.tuning, counts)).await?;
        Ok(Reply::Answers { answers, ended: false })
    }
}
