//! The server of all scenarios: `DoGet`, `DoPut` and `DoExchange` by godwit's data plane, the other calls by a stock service
//! beside it. What a call does follows from the scenario, as in Arrow's own servers for these tests.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arrow_array::{ArrayRef, Int32Array, RecordBatch, UInt32Array};
use arrow_flight::flight_descriptor::DescriptorType;
use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::{
    Action, ActionType, BasicAuth, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, Criteria, Empty,
    FlightData, FlightDescriptor, FlightEndpoint, FlightInfo, HandshakeRequest, HandshakeResponse, PollInfo, PutResult,
    RenewFlightEndpointRequest, SchemaResult, Ticket,
};
use arrow_schema::{Schema, SchemaRef};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use godwit_dataset::Principal;
use godwit_flight::{
    Address, ConnectionSecurity, DataPlane, Download, PutResultStream, Routes, Server, TransportOptions, Upload,
};
use parking_lot::Mutex;
use prost::Message;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Request, Response, Status, Streaming};

use crate::session_messages::{self, CloseResult, OptionValue, Options, SetError, SetResult, Value};
use crate::sql;

pub const USER: &str = "arrow";
pub const PASSWORD: &str = "flight";
/// Instructs a client to reuse its connection (Flight.proto, `Location`).
pub const REUSE_CONNECTION: &str = "arrow-flight-reuse-connection://?";
/// The header that the middleware scenario expects back.
pub const MIDDLEWARE_HEADER: &str = "x-middleware";
/// The header of a handshake's token (Arrow's C++, Go and Java clients).
pub const AUTH_HEADER: &str = "auth-token-bin";

type Reply<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The state of a server.
pub struct State {
    scenario: &'static str,
    address: Mutex<String>,
    uploads: Mutex<HashMap<String, (SchemaRef, Vec<RecordBatch>)>>,
    endpoints: Mutex<Vec<Endpoint>>,
    sessions: Mutex<HashMap<String, HashMap<String, OptionValue>>>,
}

#[derive(Clone, Default)]
struct Endpoint {
    expires: Option<SystemTime>,
    is_read: bool,
    is_cancelled: bool,
}

impl State {
    fn is_sql(&self) -> bool {
        self.scenario.starts_with("flight_sql")
    }

    /// Returns the upload of a name.
    pub fn uploaded(&self, name: &str) -> Option<Vec<RecordBatch>> {
        self.uploads.lock().get(name).map(|(_, batches)| batches.clone())
    }
}

/// Starts a server for one scenario.
pub async fn serve(scenario: &'static str) -> (Address, Arc<State>) {
    let state = Arc::new(State {
        scenario,
        address: Mutex::default(),
        uploads: Mutex::default(),
        endpoints: Mutex::default(),
        sessions: Mutex::default(),
    });
    let rest = Routes::new(FlightServiceServer::new(StockService(state.clone())));
    let any = Address::Tcp(([127, 0, 0, 1], 0).into());
    let server =
        Server::bind(&any, Plane(state.clone()), rest, ConnectionSecurity::default(), TransportOptions::default());
    let server = server.await.expect("a port is free");
    let address = server.address().clone();
    *state.address.lock() = format!("grpc+tcp://{address}");
    tokio::spawn(server.serve());
    (address, state)
}

struct Plane(Arc<State>);

impl DataPlane for Plane {
    async fn download(&self, _: Principal, ticket: Bytes) -> Result<Download, Status> {
        if self.0.is_sql() {
            return sql::download(&ticket);
        }
        let ticket = String::from_utf8_lossy(&ticket).into_owned();
        let batches = match self.0.scenario {
            "" => self.0.uploads.lock().get(&ticket).map(|(_, batches)| batches.clone()),
            "ordered" => ordered_batch(&ticket).map(|batch| vec![batch]),
            _ => Some(vec![self.0.read_expiring(&ticket)?]),
        };
        let batches = batches.ok_or_else(|| Status::not_found(format!("no flight {ticket}")))?;
        let uploaded = self.0.uploads.lock().get(&ticket).map(|(schema, _)| schema.clone());
        let first = batches.first().map(RecordBatch::schema);
        let schema = uploaded.or(first).ok_or_else(|| Status::internal("a flight without a schema"))?;
        let is_upload = self.0.scenario.is_empty();
        let said = move |index: usize| if is_upload { index.to_string().into() } else { Bytes::new() };
        let items = batches.into_iter().enumerate().map(move |(index, batch)| Ok((batch, said(index))));
        Ok(Download { schema, batches: Box::pin(stream::iter(items)) })
    }

    async fn upload(&self, _: Principal, upload: Upload) -> Result<PutResultStream, Status> {
        if self.0.is_sql() {
            return sql::upload(upload).await;
        }
        let taking = PendingUpload { state: self.0.clone(), upload, batches: Vec::new() };
        Ok(Box::pin(stream::try_unfold(taking, |mut taking| async move {
            loop {
                let Some(chunk) = taking.upload.next().await? else {
                    taking.store()?;
                    return Ok(None);
                };
                taking.batches.extend(chunk.batch);
                if !chunk.app_metadata.is_empty() {
                    return Ok(Some((chunk.app_metadata, taking)));
                }
            }
        })))
    }
}

/// An unfinished upload.
struct PendingUpload {
    state: Arc<State>,
    upload: Upload,
    batches: Vec<RecordBatch>,
}

impl PendingUpload {
    fn store(&mut self) -> Result<(), Status> {
        let name = self.upload.descriptor().and_then(|descriptor| descriptor.path.first());
        let name = name.ok_or_else(|| Status::invalid_argument("it must have a path"))?.clone();
        let schema = self.upload.schema().ok_or_else(|| Status::invalid_argument("it must have a schema"))?.clone();
        self.state.uploads.lock().insert(name, (schema, std::mem::take(&mut self.batches)));
        Ok(())
    }
}

/// Returns the batch of a ticket in the scenario `ordered`.
pub fn ordered_batch(ticket: &str) -> Option<RecordBatch> {
    let unit = match ticket {
        "1" => 1,
        "2" => 10,
        "3" => 100,
        _ => return None,
    };
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![unit, 2 * unit, 3 * unit]));
    RecordBatch::try_from_iter_with_nullable([("number", numbers, false)]).ok()
}

/// Returns the batch of the n-th ticket in the scenarios `expiration_time`.
pub fn numbered_batch(number: u32) -> RecordBatch {
    let numbers: ArrayRef = Arc::new(UInt32Array::from(vec![number]));
    RecordBatch::try_from_iter_with_nullable([("number", numbers, false)]).expect("one column")
}

fn timestamp(time: SystemTime) -> prost_types::Timestamp {
    prost_types::Timestamp::from(time)
}

impl State {
    fn read_expiring(&self, ticket: &str) -> Result<RecordBatch, Status> {
        let index = index_of(ticket)?;
        let mut endpoints = self.endpoints.lock();
        let endpoint = endpoints.get_mut(index).ok_or_else(|| Status::not_found("no such ticket"))?;
        if endpoint.is_cancelled || endpoint.expires.is_some_and(|expires| expires < SystemTime::now()) {
            return Err(Status::invalid_argument("the ticket is cancelled or expired"));
        }
        if endpoint.expires.is_none() && endpoint.is_read {
            return Err(Status::invalid_argument("the ticket can be used once"));
        }
        endpoint.is_read = true;
        Ok(numbered_batch(index as u32))
    }

    fn info(&self, descriptor: FlightDescriptor) -> Result<FlightInfo, Status> {
        if self.is_sql() {
            return sql::info(descriptor);
        }
        let endpoint = |ticket: &str| FlightEndpoint::new().with_ticket(Ticket::new(ticket.to_owned()));
        let info = FlightInfo::new().with_descriptor(descriptor.clone());
        let info = |schema: &Schema| info.try_with_schema(schema).map_err(|error| Status::internal(error.to_string()));
        match self.scenario {
            "" => {
                let name = descriptor.path.first().cloned().unwrap_or_default();
                let uploads = self.uploads.lock();
                let (schema, batches) = uploads.get(&name).ok_or_else(|| Status::not_found("no such flight"))?;
                let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
                let endpoint = endpoint(&name).with_location(self.address.lock().clone());
                Ok(info(schema)?.with_endpoint(endpoint).with_total_records(rows as i64))
            }
            "ordered" => {
                let schema =
                    ordered_batch("1").map(|batch| batch.schema()).unwrap_or_else(|| Arc::new(Schema::empty()));
                let is_ordered = descriptor.r#type() == DescriptorType::Cmd && descriptor.cmd[..] == *b"ordered";
                Ok(info(&schema)?.with_endpoints(["1", "2", "3"].map(endpoint).to_vec()).with_ordered(is_ordered))
            }
            "middleware" if descriptor.cmd[..] != *b"success" => Err(Status::unknown("unknown")),
            "middleware" => Ok(info(&Schema::empty())?.with_endpoint(endpoint("foo"))),
            "location:reuse_connection" => {
                Ok(info(&Schema::empty())?.with_endpoint(endpoint("reuse").with_location(REUSE_CONNECTION)))
            }
            "app_metadata_flight_info_endpoint" => {
                let said = descriptor.cmd.clone();
                let endpoint = FlightEndpoint::new().with_app_metadata(said.clone());
                Ok(info(&Schema::empty())?.with_endpoint(endpoint).with_app_metadata(said))
            }
            _ => {
                let (now, mut endpoints) = (SystemTime::now(), self.endpoints.lock());
                endpoints.clear();
                let mut told = Vec::new();
                for (index, seconds) in [None, Some(5), Some(6)].into_iter().enumerate() {
                    let expires = seconds.map(|seconds| now + Duration::from_secs(seconds));
                    endpoints.push(Endpoint { expires, ..Endpoint::default() });
                    let mut endpoint = endpoint(&format!("{index}: {seconds:?}"));
                    endpoint.expiration_time = expires.map(timestamp);
                    told.push(endpoint);
                }
                Ok(info(&numbered_batch(0).schema())?.with_endpoints(told))
            }
        }
    }

    /// Runs the actions of sessions, cancelling and renewing.
    fn run_action(&self, action: &Action, session: &str) -> Result<Vec<u8>, Status> {
        let unreadable = |error: prost::DecodeError| Status::invalid_argument(error.to_string());
        match action.r#type.as_str() {
            "CancelFlightInfo" => {
                let request = CancelFlightInfoRequest::decode(&action.body[..]).map_err(unreadable)?;
                let status = self.cancel(&request.info.unwrap_or_default());
                Ok(CancelFlightInfoResult::new(status).encode_to_vec())
            }
            "RenewFlightEndpoint" => {
                let request = RenewFlightEndpointRequest::decode(&action.body[..]).map_err(unreadable)?;
                let mut renewed = request.endpoint.unwrap_or_default();
                let ticket = ticket_of(&renewed);
                let expires = SystemTime::now() + Duration::from_secs(10);
                let mut endpoints = self.endpoints.lock();
                let known = endpoints.get_mut(index_of(&ticket)?);
                known.ok_or_else(|| Status::not_found("no such ticket"))?.expires = Some(expires);
                renewed.ticket = Some(Ticket::new(format!("{ticket}: renewed")));
                renewed.expiration_time = Some(timestamp(expires));
                Ok(renewed.encode_to_vec())
            }
            "SetSessionOptions" => {
                let request = Options::decode(&action.body[..]).map_err(unreadable)?;
                Ok(self.set_options(session, request.options).encode_to_vec())
            }
            "GetSessionOptions" => {
                let options = self.sessions.lock().get(session).cloned().unwrap_or_default();
                Ok(Options { options }.encode_to_vec())
            }
            "CloseSession" => {
                self.sessions.lock().remove(session);
                Ok(CloseResult { status: session_messages::CLOSED }.encode_to_vec())
            }
            other => Err(Status::invalid_argument(format!("no action {other}"))),
        }
    }

    fn cancel(&self, info: &FlightInfo) -> CancelStatus {
        let mut status = CancelStatus::Cancelled;
        let mut endpoints = self.endpoints.lock();
        for endpoint in &info.endpoint {
            let known = index_of(&ticket_of(endpoint)).ok().and_then(|index| endpoints.get_mut(index));
            match known {
                Some(known) if !known.is_cancelled => known.is_cancelled = true,
                _ => status = CancelStatus::NotCancellable,
            }
        }
        status
    }

    fn set_options(&self, session: &str, wanted: HashMap<String, OptionValue>) -> SetResult {
        let mut sessions = self.sessions.lock();
        let options = sessions.entry(session.to_owned()).or_default();
        let mut errors = HashMap::new();
        for (name, option) in wanted {
            match &option.value {
                _ if name == "lol_invalid" => {
                    errors.insert(name, SetError { value: session_messages::INVALID_NAME });
                }
                Some(Value::Text(text)) if text == "lol_invalid" => {
                    errors.insert(name, SetError { value: session_messages::INVALID_VALUE });
                }
                None => {
                    options.remove(&name);
                }
                Some(_) => {
                    options.insert(name, option);
                }
            }
        }
        SetResult { errors }
    }
}

fn ticket_of(endpoint: &FlightEndpoint) -> String {
    let ticket = endpoint.ticket.as_ref().map(|ticket| &ticket.ticket[..]);
    String::from_utf8_lossy(ticket.unwrap_or_default()).into_owned()
}

fn index_of(ticket: &str) -> Result<usize, Status> {
    let number = ticket.split(':').next().and_then(|number| number.parse().ok());
    number.ok_or_else(|| Status::invalid_argument(format!("no number in ticket {ticket}")))
}

/// All calls but those of the data plane.
struct StockService(Arc<State>);

impl StockService {
    /// Returns the name of the client's session, and the header that starts one where there is none.
    fn session(&self, metadata: &MetadataMap) -> (String, Option<String>) {
        let cookies = metadata.get("cookie").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let named =
            cookies.split("; ").find_map(|cookie| cookie.strip_prefix(session_messages::COOKIE)?.strip_prefix('='));
        if let Some(name) = named {
            return (name.trim_matches('"').to_owned(), None);
        }
        let mut sessions = self.0.sessions.lock();
        let name = format!("session{}", sessions.len());
        sessions.insert(name.clone(), HashMap::new());
        (name.clone(), Some(format!("{}={name}", session_messages::COOKIE)))
    }

    fn user(&self, metadata: &MetadataMap) -> Result<Bytes, Status> {
        let token = metadata.get_bin(AUTH_HEADER).and_then(|value| value.to_bytes().ok()).unwrap_or_default();
        match token[..] == *USER.as_bytes() {
            true => Ok(token),
            false => Err(Status::unauthenticated("invalid token")),
        }
    }
}

#[tonic::async_trait]
impl FlightService for StockService {
    type HandshakeStream = Reply<HandshakeResponse>;
    type ListFlightsStream = Reply<FlightInfo>;
    type DoGetStream = Reply<FlightData>;
    type DoPutStream = Reply<PutResult>;
    type DoExchangeStream = Reply<FlightData>;
    type DoActionStream = Reply<arrow_flight::Result>;
    type ListActionsStream = Reply<ActionType>;

    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        let first = request.into_inner().next().await.transpose()?.unwrap_or_default();
        let told = BasicAuth::decode(&first.payload[..]).map_err(|error| Status::unauthenticated(error.to_string()))?;
        if (told.username.as_str(), told.password.as_str()) != (USER, PASSWORD) {
            return Err(Status::unauthenticated("wrong user or password"));
        }
        let answer = HandshakeResponse { protocol_version: 0, payload: told.username.into() };
        Ok(Response::new(Box::pin(stream::iter([Ok(answer)]))))
    }

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Result<Response<FlightInfo>, Status> {
        let given =
            request.metadata().get(MIDDLEWARE_HEADER).cloned().unwrap_or_else(|| MetadataValue::from_static(""));
        match self.0.info(request.into_inner()) {
            Ok(info) => {
                let mut response = Response::new(info);
                response.metadata_mut().insert(MIDDLEWARE_HEADER, given);
                Ok(response)
            }
            Err(mut status) => {
                status.metadata_mut().insert(MIDDLEWARE_HEADER, given);
                Err(status)
            }
        }
    }

    async fn poll_flight_info(&self, request: Request<FlightDescriptor>) -> Result<Response<PollInfo>, Status> {
        let descriptor = request.into_inner();
        let is_done = descriptor.cmd[..] == *b"poll";
        let info = FlightInfo::new().with_descriptor(descriptor).try_with_schema(&numbered_batch(0).schema());
        let info = info.map_err(|error| Status::internal(error.to_string()))?;
        let info = info.with_endpoint(FlightEndpoint::new().with_ticket(Ticket::new("long-running query")));
        let poll = PollInfo { info: Some(info), progress: Some(1.0), ..PollInfo::default() };
        Ok(Response::new(match is_done {
            true => poll,
            false => PollInfo { progress: Some(0.1), ..poll }
                .with_descriptor(FlightDescriptor::new_cmd("poll"))
                .with_expiration_time(timestamp(SystemTime::now() + Duration::from_secs(10))),
        }))
    }

    async fn do_action(&self, request: Request<Action>) -> Result<Response<Self::DoActionStream>, Status> {
        if self.0.is_sql() {
            let body = sql::run_action(request.get_ref())?.map(Bytes::from);
            let answers = body.into_iter().map(|body| Ok(arrow_flight::Result { body }));
            return Ok(Response::new(Box::pin(stream::iter(answers.collect::<Vec<_>>()))));
        }
        let (session, cookie) = self.session(request.metadata());
        let body = match self.0.scenario {
            "auth:basic_proto" => self.user(request.metadata())?,
            _ => self.0.run_action(request.get_ref(), &session)?.into(),
        };
        let answers: Self::DoActionStream = Box::pin(stream::iter([Ok(arrow_flight::Result { body })]));
        let mut response = Response::new(answers);
        if let Some(value) = cookie.and_then(|cookie| cookie.parse().ok()) {
            response.metadata_mut().insert("set-cookie", value);
        }
        Ok(response)
    }

    async fn list_actions(&self, _: Request<Empty>) -> Result<Response<Self::ListActionsStream>, Status> {
        let actions = ["CancelFlightInfo", "RenewFlightEndpoint"];
        let told = actions.map(|name| Ok(ActionType { r#type: name.into(), description: String::new() }));
        Ok(Response::new(Box::pin(stream::iter(told))))
    }

    async fn list_flights(&self, _: Request<Criteria>) -> Result<Response<Self::ListFlightsStream>, Status> {
        Err(Status::unimplemented("no scenario lists flights"))
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Result<Response<SchemaResult>, Status> {
        Ok(Response::new(SchemaResult { schema: sql::schema(request.get_ref())? }))
    }

    async fn do_get(&self, _: Request<Ticket>) -> Result<Response<Self::DoGetStream>, Status> {
        Err(data_call_error())
    }

    async fn do_put(&self, _: Request<Streaming<FlightData>>) -> Result<Response<Self::DoPutStream>, Status> {
        Err(data_call_error())
    }

    async fn do_exchange(&self, _: Request<Streaming<FlightData>>) -> Result<Response<Self::DoExchangeStream>, Status> {
        Err(data_call_error())
    }
}

/// Returns the error of calls that the data plane must serve.
fn data_call_error() -> Status {
    Status::new(Code::Internal, "a call for data reached the stock service")
}
