//! The serving end.
//!
//! `DoGet`, `DoPut` and `DoExchange` are answered here; every other call goes to the tonic service the server was given. How the
//! server is (`grpc.health.v1.Health`) is told to everybody, before they say who they are.
//! Batches of a [`Download`] are pulled as fast as the client takes them and no faster; those of an [`Upload`] are taken as
//! fast as the [`DataPlane`] asks for them, and HTTP/2's windows hold the client back. An exchange is both at once.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_flight::flight_service_server::FlightServiceServer;
use arrow_flight::{FlightDescriptor, PutResult, Ticket};
use arrow_schema::SchemaRef;
use bytes::Bytes;
use futures_core::Stream;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::{Body, Frame};
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

use crate::codec::{BatchDecoder, BatchEncoder, Chunk, Decoded, encode_metadata};
use crate::error::FlightError;
use crate::first_words::{Heard, Listened};
use crate::frames::PREFACE_BYTES;
use crate::gate::{Caller, Gate, shown_token};
use crate::message::{Assembler, PREFIX_BYTES, frame_encoded};
use crate::pool::{ConnectionUse, Meter};
use crate::segments::Segments;
use crate::tls::ServerTls;
use crate::transport::{Access, Address, Listener, Socket, Tuning, tuned};
use crate::wire::{Wire, WireOwner};

const HEALTH: &str = "/grpc.health.v1.Health/";
/// The same for probes that know HTTP/2 and not gRPC: whoever hears an answer has found a server that is up.
const PLAIN_HEALTH: &str = "/healthz";
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

    /// Takes data; the answers go to the client's side of the upload.
    fn upload(&self, caller: Caller, upload: Upload) -> impl Future<Output = Result<Answers, Status>> + Send;

    /// Who shows a token that was granted for one purpose; `None` where it is no such token.
    fn granted(&self, _token: &[u8]) -> Option<Caller> {
        None
    }

    /// What counts the connections of a server that is one of several.
    fn meter(&self) -> Option<Arc<Meter>> {
        None
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
}

impl Upload {
    fn new(body: Incoming, tuning: &Tuning) -> Self {
        let assembler = Assembler::new(tuning.message_limit_bytes);
        Self { body, chunk: Bytes::new(), assembler, decoder: BatchDecoder::default(), descriptor: None }
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
                    Some(Ok(frame)) => self.chunk = frame.into_data().unwrap_or_default(),
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
                Decoded::Batch(batch) => Some(batch),
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
    address: Address,
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
        Ok(Self { listener, address, plane: Arc::new(Plane { data, rest, health, gate, tls, tuning }) })
    }

    /// Where it is.
    pub fn address(&self) -> &Address {
        &self.address
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
            // Who finds no place is not kept waiting.
            if let Some(socket) = accepted.filter(|_| connections.len() < plane.tuning.connections) {
                connections.spawn(converse(socket, plane.clone(), stopped.clone()));
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
    let handshake = tokio::time::timeout(tuning.connect_timeout, socket.accept(plane.tls.as_ref()));
    // Who does not speak TLS, or falls silent in it, has told nobody its name: there is nobody to answer.
    let Ok(Ok(socket)) = handshake.await else { return };
    let owner = WireOwner::of(socket.tcp());
    let wire = owner.wire();
    let used = Arc::new(ConnectionUse::new(plane.data.meter()));
    let answer = hyper::service::service_fn(move |request| {
        let (plane, wire, used) = (plane.clone(), wire.clone(), used.clone());
        async move { Ok::<_, Infallible>(plane.answer(request, wire, &used).await) }
    });
    let mut builder = tuned!(hyper::server::conn::http2::Builder::new(TokioExecutor::new()), tuning);
    builder.max_concurrent_streams(tuning.calls_per_connection);
    let heard = Heard::default();
    let socket = Listened::new(socket.framed(PREFACE_BYTES), heard.clone());
    let connection = builder.serve_connection(TokioIo::new(socket), answer);
    tokio::pin!(connection);
    // How a connection ends is the client's business; each call on it has told its own outcome.
    tokio::select! {
        _ = connection.as_mut() => {}
        () = heard.nothing_within(tuning.connect_timeout) => {}
        _ = stopping.changed() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

impl<D: DataPlane> Plane<D> {
    async fn answer(&self, mut request: Request<Incoming>, wire: Wire, used: &ConnectionUse) -> Response<Reply> {
        if request.uri().path() == PLAIN_HEALTH {
            return plainly_well(request.method());
        }
        if request.uri().path().starts_with(HEALTH) {
            return self.by_tonic(request).await;
        }
        let granted = || shown_token(request.headers()).and_then(|token| self.data.granted(&token));
        let caller = match granted().map_or_else(|| self.gate.admit(request.headers()), Ok) {
            Ok(caller) => caller.over(wire),
            Err(status) => return refused(*status),
        };
        if caller.purpose().is_some() && ![DO_GET, DO_ACTION].contains(&request.uri().path()) {
            return refused(Status::permission_denied(GRANTED_ONLY));
        }
        if [DO_GET, DO_PUT, DO_EXCHANGE].contains(&request.uri().path()) {
            used.data(request.headers());
        }
        let answered = match request.uri().path() {
            DO_GET => self.get(caller, request.into_body()).await,
            DO_PUT => self.put(caller, request.into_body()).await,
            DO_EXCHANGE => self.exchange(caller, request.into_body()).await,
            _ => {
                request.extensions_mut().insert(caller);
                return self.by_tonic(request).await;
            }
        };
        answered.map_or_else(refused, |reply| response(reply, None))
    }

    async fn by_tonic(&self, request: Request<Incoming>) -> Response<Reply> {
        // Routes are cloned per call, as tonic itself does; calling one cannot fail.
        let Ok(response) = self.rest.clone().call(request).await;
        response.map(Reply::Tonic)
    }

    async fn get(&self, caller: Caller, mut body: Incoming) -> Result<Reply, Status> {
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
        Ok(Reply::Data(Outgoing::new(Source::Batches(download.batches), encoder)))
    }

    async fn exchange(&self, caller: Caller, body: Incoming) -> Result<Reply, Status> {
        let chunks = self.data.exchange(caller, Upload::new(body, &self.tuning)).await?;
        Ok(Reply::Data(Outgoing::new(Source::Chunks(chunks), None)))
    }

    async fn put(&self, caller: Caller, body: Incoming) -> Result<Reply, Status> {
        let answers = self.data.upload(caller, Upload::new(body, &self.tuning)).await?;
        Ok(Reply::Answers { answers, ended: false })
    }
}

fn response(reply: Reply, status: Option<&Status>) -> Response<Reply> {
    let mut response = Response::new(reply);
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    if let Some(status) = status {
        headers.extend(trailers(status));
    }
    response
}

/// What a probe is told.
fn plainly_well(method: &Method) -> Response<Reply> {
    let (status, text) = match *method {
        Method::GET => (StatusCode::OK, Some(Bytes::from_static(b"SERVING\n"))),
        Method::HEAD => (StatusCode::OK, None),
        _ => (StatusCode::METHOD_NOT_ALLOWED, None),
    };
    let mut response = Response::new(Reply::Text(text));
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

/// A call that failed before it began: headers alone.
fn refused(status: Status) -> Response<Reply> {
    response(Reply::Nothing, Some(&status))
}

fn trailers(status: &Status) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if status.add_header(&mut headers).is_err() {
        headers.insert("grpc-status", HeaderValue::from_static("13"));
    }
    headers
}

/// The body of an answer.
enum Reply {
    Data(Outgoing),
    Answers {
        answers: Answers,
        ended: bool,
    },
    Tonic(tonic::body::Body),
    /// Text that is no gRPC; `None` once it is sent.
    Text(Option<Bytes>),
    Nothing,
}

impl Body for Reply {
    type Data = Segments;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Segments>, Status>>> {
        match self.get_mut() {
            Self::Nothing => Poll::Ready(None),
            Self::Text(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(Segments::from(text))))),
            Self::Tonic(body) => {
                let frame = ready!(Pin::new(body).poll_frame(context));
                Poll::Ready(frame.map(|frame| Ok(frame?.map_data(Segments::from))))
            }
            Self::Data(outgoing) => outgoing.poll_frame(context).map(|frame| frame.map(Ok)),
            Self::Answers { answers, ended } => {
                if *ended {
                    return Poll::Ready(None);
                }
                let frame = match ready!(answers.as_mut().poll_next(context)) {
                    Some(Ok(app_metadata)) => Frame::data(frame_encoded(&PutResult { app_metadata })),
                    Some(Err(status)) => end(ended, &status),
                    None => end(ended, &Status::ok("")),
                };
                Poll::Ready(Some(Ok(frame)))
            }
        }
    }

    /// A call that is refused must end with its headers: what has neither trailers nor the end of the stream in them is a
    /// broken call to other implementations (gRPC over HTTP/2, "Trailers-Only"; grpc-go 1.7x says `Internal`).
    fn is_end_stream(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Text(text) => text.is_none(),
            Self::Tonic(body) => body.is_end_stream(),
            Self::Data(outgoing) => outgoing.ended,
            Self::Answers { ended, .. } => *ended,
        }
    }
}

/// The trailers that close a call.
fn end(ended: &mut bool, status: &Status) -> Frame<Segments> {
    *ended = true;
    Frame::trailers(trailers(status))
}

/// Batches on their way out.
struct Outgoing {
    source: Source,
    /// `None`: the first batch brings the schema.
    encoder: Option<Box<BatchEncoder>>,
    /// What is left of a message too long for one piece.
    rest: Segments,
    /// Whether the source has ended, and is not to be asked any more.
    drained: bool,
    ended: bool,
}

enum Source {
    Batches(Pin<Box<dyn Stream<Item = Result<Item, Status>> + Send>>),
    Chunks(Chunks),
}

impl Outgoing {
    fn new(source: Source, encoder: Option<Box<BatchEncoder>>) -> Self {
        Self { source, encoder, rest: Segments::default(), drained: false, ended: false }
    }

    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Frame<Segments>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if let Some(segments) = self.rest.take_frame() {
            return Poll::Ready(Some(Frame::data(segments)));
        }
        if self.drained {
            return Poll::Ready(Some(end(&mut self.ended, &Status::ok(""))));
        }
        let chunk = match &mut self.source {
            Source::Batches(batches) => ready!(batches.as_mut().poll_next(context))
                .map(|item| item.map(|(batch, app_metadata)| Chunk { batch: Some(batch), app_metadata })),
            Source::Chunks(chunks) => ready!(chunks.as_mut().poll_next(context)),
        };
        let encoded = match chunk {
            Some(Ok(chunk)) => self.encode(&chunk),
            Some(Err(status)) => return Poll::Ready(Some(end(&mut self.ended, &status))),
            None => {
                self.drained = true;
                self.encoder.as_mut().map_or_else(|| Ok(Segments::default()), |encoder| encoder.finish(&[]))
            }
        };
        match encoded {
            Ok(segments) => self.rest = segments,
            Err(error) => return Poll::Ready(Some(end(&mut self.ended, &error.into()))),
        }
        let next = self.rest.take_frame().map(Frame::data);
        Poll::Ready(Some(next.unwrap_or_else(|| end(&mut self.ended, &Status::ok("")))))
    }

    fn encode(&mut self, chunk: &Chunk) -> Result<Segments, FlightError> {
        let Some(batch) = &chunk.batch else { return Ok(encode_metadata(&[], &chunk.app_metadata)) };
        let encoder = match &mut self.encoder {
            Some(encoder) => encoder,
            none => none.insert(Box::new(BatchEncoder::new(&batch.schema())?)),
        };
        encoder.encode(batch, &[], &chunk.app_metadata)
    }
}
