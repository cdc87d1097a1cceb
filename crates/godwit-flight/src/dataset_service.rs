//! The data server: a Flight service for a catalog of datasets and for SQL queries on the datasets.
//!
//! Clients request datasets by a path or by a [`DatasetCommand`] in JSON, and SQL by the messages of Flight SQL. Flight
//! info lists the parts of a dataset with their locations and tickets, which expire. [`DataPlane`] sends and receives
//! batches; [`DatasetService`] also implements the tonic service that answers all other calls.

mod access_recording;
mod actions;
mod batch_stream;
mod browser_api;
mod dataset_command;
mod direct_scan;
mod endpoint_locations;
mod flight_service;
mod http_statements;
mod lookups;
mod polling;
mod requests;
mod stream_registry;
mod uploads;
mod web_responses;

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_flight::flight_service_server::FlightServiceServer;
use arrow_flight::sql::Command;
use arrow_flight::{FlightDescriptor, FlightEndpoint, FlightInfo, Ticket};
use arrow_schema::{Schema, SchemaRef};
use bytes::Bytes;
use futures_util::stream;
use godwit_auth::{Session, TicketKey, random_bytes};
use godwit_dataset::web::{WebRequest, WebService};
use godwit_dataset::{AccessLog, Authorizer, Catalog, Dataset, DatasetError, Principal, Scan, ScanPart, read_pieces};
use godwit_model::ipc;
use prost::Message as _;
use tokio::sync::Semaphore;
use tonic::Status;
use tonic::service::Routes;

use crate::call_streams::{Download, ExchangeStream, PutResultStream};
pub use crate::dataset_service::batch_stream::stream_batches;
use crate::dataset_service::batch_stream::{READ_SPAN, STATEMENT_SPAN};
pub use crate::dataset_service::dataset_command::DatasetCommand;
use crate::dataset_service::endpoint_locations::ClientKind;
use crate::dataset_service::requests::{DescriptorCommand, decode_sql_command, parse_descriptor, scan_from_command};
use crate::dataset_service::stream_registry::StreamRegistry;
use crate::error::dataset_status;
use crate::file_service::{FILES_PREFIX, FileService};
use crate::metrics::{MeteredAccessLog, ServerMetrics};
use crate::pool::{ConnectionCounter, Membership, POOL_SCOPE, resume_download};
use crate::reflection::with_reflection;
use crate::server::{DataPlane, OUT_OF_SCOPE, Upload};
use crate::sql::{PreparedStatements, SqlEngine, StatementProgress, metadata_batch, metadata_schema};
use crate::stream_progress::{RESUME_TICKET_PREFIX, ResumePoint};
use crate::tickets::{BoundStatement, DatasetPart, TicketClaims};
use crate::trace::{self, OpenSpan, Tracer};
use crate::web::WebBody;

/// Most batches that are queued between the thread that reads or computes them and the connection.
const BATCH_QUEUE_LENGTH: usize = 2;

/// Largest message in calls other than DoGet, DoPut and DoExchange, in bytes. File manifests and lists of block hashes
/// can be large.
const MAX_REQUEST_BYTES: usize = 64 << 20;

/// Options of a [`DatasetService`].
#[derive(Clone, Debug)]
pub struct DatasetServiceOptions {
    /// Lifetime of a ticket.
    pub ticket_lifetime: Duration,
    /// Most parts that a dataset is split into if the client does not request a number.
    pub max_parts: usize,
    /// Bytes per part: by default a dataset is split into its size divided by this value, rounded up, up to
    /// `max_parts`.
    pub part_bytes: u64,
    /// Most concurrent uploads of datasets; further uploads wait.
    pub max_uploads: usize,
    /// Decides which datasets and files a principal may access. `None`: every authenticated principal may access all.
    pub authorizer: Option<Arc<dyn Authorizer>>,
    /// The access log; `None` if accesses are not recorded.
    pub access_log: Option<Arc<dyn AccessLog>>,
    /// The service that answers HTTP requests that are not gRPC.
    pub web_service: Option<Arc<dyn WebService>>,
    /// Creates trace spans; `None` if tracing is off.
    pub tracer: Option<Tracer>,
}

impl Default for DatasetServiceOptions {
    fn default() -> Self {
        let ticket_lifetime = Duration::from_secs(3600);
        let (authorizer, access_log, web_service, tracer) = (None, None, None, None);
        Self {
            ticket_lifetime,
            max_parts: 8,
            part_bytes: 64 << 20,
            max_uploads: 4,
            authorizer,
            access_log,
            web_service,
            tracer,
        }
    }
}

/// A Flight service over a catalog, SQL and files. Clones share their state.
#[derive(Clone)]
pub struct DatasetService {
    inner: Arc<ServiceState>,
}

struct ServiceState {
    catalog: Arc<dyn Catalog>,
    sql_engine: Option<Arc<dyn SqlEngine>>,
    ticket_key: TicketKey,
    options: DatasetServiceOptions,
    prepared_statements: PreparedStatements,
    upload_slots: Arc<Semaphore>,
    streams: StreamRegistry,
    started: Instant,
    file_service: Option<Arc<dyn FileService>>,
    pool: Option<Arc<Membership>>,
    metrics: Arc<ServerMetrics>,
}

/// The kind of a Flight SQL command.
enum SqlCommandKind {
    /// A request for metadata about the server or its tables, and the schema of the response.
    Metadata(SchemaRef),
    /// A request for the rows of an SQL statement. `advertised_schema` is their schema if the server has sent it to the
    /// client recently, when the statement was prepared.
    Rows { text: BoundStatement, advertised_schema: Option<SchemaRef> },
}

impl DatasetService {
    /// Creates a service. If `engine` is `None`, the service rejects SQL statements.
    pub fn new(catalog: Arc<dyn Catalog>, engine: Option<Arc<dyn SqlEngine>>, options: DatasetServiceOptions) -> Self {
        Self::with_files(catalog, engine, None, options)
    }

    /// Creates a service as [`DatasetService::new`] does. If `files` is given, the service also serves whole files.
    pub fn with_files(
        catalog: Arc<dyn Catalog>,
        engine: Option<Arc<dyn SqlEngine>>,
        files: Option<Arc<dyn FileService>>,
        options: DatasetServiceOptions,
    ) -> Self {
        Self::with_pool(catalog, engine, files, None, options)
    }

    /// Creates a service as [`DatasetService::with_files`] does. If `pool` is given, the service is a pool member, and
    /// every member accepts its tickets.
    pub fn with_pool(
        catalog: Arc<dyn Catalog>,
        sql_engine: Option<Arc<dyn SqlEngine>>,
        file_service: Option<Arc<dyn FileService>>,
        pool: Option<Arc<Membership>>,
        mut options: DatasetServiceOptions,
    ) -> Self {
        let metrics = Arc::new(ServerMetrics::default());
        let counted = |log| Arc::new(MeteredAccessLog { log, metrics: metrics.clone() }) as Arc<dyn AccessLog>;
        options.access_log = options.access_log.map(counted);
        let ticket_key = match &pool {
            Some(pool) => TicketKey::new(&pool.ticket_secret()),
            None => TicketKey::new(&random_bytes::<32>()),
        };
        let upload_slots = Arc::new(Semaphore::new(options.max_uploads.max(1)));
        let (prepared_statements, streams, started) =
            (PreparedStatements::default(), StreamRegistry::default(), Instant::now());
        let inner = ServiceState {
            catalog,
            sql_engine,
            ticket_key,
            options,
            prepared_statements,
            upload_slots,
            streams,
            started,
            file_service,
            pool,
            metrics,
        };
        Self { inner: Arc::new(inner) }
    }

    pub(crate) fn file_service(&self) -> Result<&Arc<dyn FileService>, Status> {
        self.inner.file_service.as_ref().ok_or_else(|| Status::unimplemented("this server does not serve whole files"))
    }

    /// Returns the tonic routes for [`Server`](crate::Server): all calls except DoGet, DoPut and DoExchange.
    pub fn routes(&self) -> Routes {
        let service = FlightServiceServer::new(self.clone());
        with_reflection(Routes::new(service.max_decoding_message_size(MAX_REQUEST_BYTES)))
    }

    fn sql_engine(&self) -> Result<&Arc<dyn SqlEngine>, Status> {
        self.inner.sql_engine.as_ref().ok_or_else(|| Status::unimplemented("this server was built without SQL"))
    }

    /// Returns the catalog with only the datasets, rows and columns that a principal may see. Every call uses it
    /// instead of the full catalog.
    fn authorized_catalog(&self, principal: &Principal) -> Arc<dyn Catalog> {
        match &self.inner.options.authorizer {
            Some(rules) => rules.authorized_catalog(principal, &self.inner.catalog),
            None => self.inner.catalog.clone(),
        }
    }

    async fn build_flight_info(
        &self,
        principal: &Principal,
        descriptor: FlightDescriptor,
        client: ClientKind,
    ) -> Result<FlightInfo, Status> {
        if descriptor.cmd.starts_with(FILES_PREFIX.as_bytes()) {
            return self.file_info(principal, descriptor, client).await;
        }
        match parse_descriptor(&descriptor)? {
            DescriptorCommand::Dataset(command) => self.dataset_info(principal, descriptor, command, client).await,
            DescriptorCommand::Sql(command) => self.sql_info(principal, descriptor, *command, client).await,
        }
    }

    /// Returns the flight info of a whole file. Each piece of the file has an endpoint that lists all servers with the
    /// file.
    async fn file_info(
        &self,
        principal: &Principal,
        descriptor: FlightDescriptor,
        client: ClientKind,
    ) -> Result<FlightInfo, Status> {
        let locations = self.endpoint_locations(client, u64::from_le_bytes(random_bytes())).await;
        let file = self.file_service()?.file_info(principal.clone(), descriptor.cmd.clone()).await?;
        let mut info =
            flight_info_with_schema(descriptor, &file.schema)?.with_ordered(true).with_total_bytes(file.bytes as i64);
        for (number, ticket) in file.tickets.into_iter().enumerate() {
            let mut endpoint =
                locations.add_to_endpoint(number, FlightEndpoint::new().with_ticket(Ticket::new(ticket)));
            // An endpoint without locations means this server. With other locations, this server must be listed too.
            if !file.other_locations.is_empty() && endpoint.location.is_empty() {
                endpoint = endpoint.with_location(REUSE_CONNECTION_LOCATION);
            }
            info = info
                .with_endpoint(file.other_locations.iter().fold(endpoint, |endpoint, at| endpoint.with_location(at)));
        }
        Ok(info)
    }

    async fn descriptor_schema(
        &self,
        principal: &Principal,
        descriptor: &FlightDescriptor,
    ) -> Result<SchemaRef, Status> {
        if descriptor.cmd.starts_with(FILES_PREFIX.as_bytes()) {
            return Ok(self.file_service()?.file_info(principal.clone(), descriptor.cmd.clone()).await?.schema);
        }
        match parse_descriptor(descriptor)? {
            DescriptorCommand::Dataset(command) => {
                let (dataset, scan) = self.open_scan(principal, command).await?;
                projected_schema(&*dataset, &scan)
            }
            DescriptorCommand::Sql(command) => self.sql_schema(principal, &command).await,
        }
    }

    async fn open_scan(
        &self,
        principal: &Principal,
        command: DatasetCommand,
    ) -> Result<(Arc<dyn Dataset>, Scan), Status> {
        if command.write_mode.is_some() || command.temporary {
            return Err(Status::invalid_argument("`put` and `temporary` are valid in uploads (DoPut) only"));
        }
        let catalog = self.authorized_catalog(principal);
        run_blocking(move || {
            let dataset = catalog.open(&command.dataset).map_err(dataset_status)?;
            let scan = scan_from_command(&command, &*dataset)?;
            Ok((dataset, scan))
        })
        .await
    }

    async fn dataset_info(
        &self,
        principal: &Principal,
        descriptor: FlightDescriptor,
        command: DatasetCommand,
        client: ClientKind,
    ) -> Result<FlightInfo, Status> {
        let name = command.dataset.clone();
        let max_parts = command.max_parts;
        let (dataset, scan) = self.open_scan(principal, command).await?;
        let (parts, scan, dataset) = self.plan_parts(dataset, scan, max_parts).await?;
        let mut info = flight_info_with_schema(descriptor, &*projected_schema(&*dataset, &scan)?)?.with_ordered(true);
        let claims = parts.iter().map(|part| TicketClaims {
            part: Some(DatasetPart::new(&name, dataset.version(), &scan, part)),
            ..TicketClaims::new(principal, self.inner.options.ticket_lifetime)
        });
        let claims: Vec<TicketClaims> = claims.collect();
        // The lease has the identifier of the first ticket: its download confirms that the client uses the lease.
        let locations = self.endpoint_locations(client, claims.first().map_or(0, |claim| claim.id)).await;
        for (number, claim) in claims.iter().enumerate() {
            info = info.with_endpoint(locations.add_to_endpoint(number, self.signed_endpoint(claim)));
        }
        let rows = dataset.rows().filter(|_| scan.regions.is_none());
        // -1 means unknown. The authorizer reports 0 bytes if the principal may see only some rows, to hide the full
        // size.
        let bytes = if dataset.bytes() == 0 { -1 } else { dataset.bytes() as i64 };
        Ok(info
            .with_total_records(rows.map_or(-1, |rows| rows as i64))
            .with_total_bytes(bytes)
            .with_app_metadata(dataset.kind().name()))
    }

    /// Splits a scan into the requested number of parts, or by default into a number that depends on the size of the
    /// dataset.
    async fn plan_parts(
        &self,
        dataset: Arc<dyn Dataset>,
        scan: Scan,
        max_parts: Option<usize>,
    ) -> Result<(Vec<ScanPart>, Scan, Arc<dyn Dataset>), Status> {
        let options = &self.inner.options;
        let worthwhile = dataset.bytes().div_ceil(options.part_bytes).clamp(1, options.max_parts as u64) as usize;
        let max_parts = max_parts.unwrap_or(worthwhile).clamp(1, 4096);
        run_blocking(move || Ok((dataset.parts(&scan, max_parts).map_err(dataset_status)?, scan, dataset))).await
    }

    /// Returns the kind of a Flight SQL command.
    fn classify_command(&self, principal: &Principal, command: &Command) -> Result<SqlCommandKind, Status> {
        if let Some(schema) = metadata_schema(command) {
            return Ok(SqlCommandKind::Metadata(schema));
        }
        match command {
            Command::CommandStatementQuery(query) => {
                let text = BoundStatement { sql: query.query.clone(), parameters: Vec::new() };
                Ok(SqlCommandKind::Rows { text, advertised_schema: None })
            }
            Command::CommandPreparedStatementQuery(query) => {
                let prepared = self
                    .inner
                    .prepared_statements
                    .get(principal, &query.prepared_statement_handle)
                    .map_err(|error| *error)?;
                let parameters = prepared.parameters.as_ref().map(encode_batch).transpose()?.unwrap_or_default();
                // The types of the rows may depend on the values of the parameters.
                let advertised_schema = prepared.recent_schema().filter(|_| parameters.is_empty());
                Ok(SqlCommandKind::Rows { text: BoundStatement { sql: prepared.sql, parameters }, advertised_schema })
            }
            other => Err(unsupported(other.type_url())),
        }
    }

    async fn sql_schema(&self, principal: &Principal, command: &Command) -> Result<SchemaRef, Status> {
        match self.classify_command(principal, command)? {
            SqlCommandKind::Metadata(schema) | SqlCommandKind::Rows { advertised_schema: Some(schema), .. } => {
                Ok(schema)
            }
            SqlCommandKind::Rows { text, advertised_schema: None } => {
                self.describe_statement(principal, &text).await.map(|description| description.schema)
            }
        }
    }

    async fn sql_info(
        &self,
        principal: &Principal,
        descriptor: FlightDescriptor,
        command: Command,
        client: ClientKind,
    ) -> Result<FlightInfo, Status> {
        let mut claim = TicketClaims::new(principal, self.inner.options.ticket_lifetime);
        let schema = match self.classify_command(principal, &command)? {
            SqlCommandKind::Metadata(schema) => {
                claim.command = command.into_any().encode_to_vec();
                schema
            }
            SqlCommandKind::Rows { text, advertised_schema } => {
                if let Some(read) = self.direct_scan(principal, &text).await {
                    return self.direct_scan_info(principal, descriptor, text, read).await;
                }
                let schema = match advertised_schema {
                    Some(schema) => schema,
                    None => self.describe_by_engine(principal, &text).await?.schema,
                };
                claim.statement = Some(text);
                schema
            }
        };
        let endpoint = self.endpoint_locations(client, claim.id).await.add_to_endpoint(0, self.signed_endpoint(&claim));
        Ok(flight_info_with_schema(descriptor, &schema)?.with_endpoint(endpoint).with_ordered(true))
    }

    /// Returns an endpoint with a signed ticket and without a location; clients then download from this server.
    fn signed_endpoint(&self, claim: &TicketClaims) -> FlightEndpoint {
        FlightEndpoint::new().with_ticket(Ticket::new(claim.sign(&self.inner.ticket_key)))
    }

    async fn download_claim(&self, principal: &Principal, claim: TicketClaims) -> Result<Download, Status> {
        if let Some(pool) = &self.inner.pool {
            pool.connection_counter().record_arrival(claim.id);
        }
        let mut open = self.inner.streams.register(claim.id)?;
        let progress = open.progress().clone();
        let download = open.run_unless_cancelled(self.start_download(principal, claim, progress)).await?;
        Ok(open.guard_download(download))
    }

    async fn start_download(
        &self,
        principal: &Principal,
        claim: TicketClaims,
        progress: StatementProgress,
    ) -> Result<Download, Status> {
        let name = if claim.part.is_none() && claim.statement.is_some() { STATEMENT_SPAN } else { READ_SPAN };
        let span = self.start_span(name);
        let started = async {
            match (claim.part, claim.statement) {
                (Some(part), None) => self.read_part(principal, part).await,
                (Some(part), Some(statement)) => self.read_direct_scan(principal, part, statement).await,
                (None, Some(statement)) => self.run_statement(principal, statement, progress).await,
                (None, None) => self.run_metadata_command(principal, decode_sql_command(&claim.command)?).await,
            }
        };
        let started =
            trace::with_context(span.as_ref().map(OpenSpan::context).or_else(trace::current_context), started).await;
        trace::trace_download(span, started)
    }

    async fn run_statement(
        &self,
        principal: &Principal,
        statement: BoundStatement,
        progress: StatementProgress,
    ) -> Result<Download, Status> {
        let parameters = decode_batch(&statement.parameters)?;
        let ran = self.sql_engine()?.execute(principal, statement.sql, parameters, progress).await?;
        for touched in &ran.datasets {
            principal.accesses().add(&touched.dataset, &touched.rule);
        }
        Ok(ran.download)
    }

    async fn read_part(&self, principal: &Principal, part: DatasetPart) -> Result<Download, Status> {
        let catalog = self.authorized_catalog(principal);
        let (schema, batches) = run_blocking(move || {
            let dataset = open_dataset_part(&*catalog, &part)?;
            let (scan, part) = part.to_scan().map_err(|error| *error)?;
            Ok((projected_schema(&*dataset, &scan)?, read_pieces(&dataset, &scan, &part).map_err(dataset_status)?))
        })
        .await?;
        Ok(stream_batches(schema, batches))
    }

    async fn run_metadata_command(&self, principal: &Principal, command: Command) -> Result<Download, Status> {
        let catalog = self.authorized_catalog(principal);
        let batch = run_blocking(move || metadata_batch(command, &*catalog).map_err(|error| *error)).await?;
        let schema = batch.schema();
        Ok(Download { schema, batches: Box::pin(stream::iter([Ok((batch, Bytes::new()))])) })
    }
}

/// Opens the dataset of a part; fails if the dataset has changed since it was split into parts.
fn open_dataset_part(catalog: &dyn Catalog, part: &DatasetPart) -> Result<Arc<dyn Dataset>, Status> {
    let dataset = catalog.open(&part.name).map_err(dataset_status)?;
    if dataset.version() != part.version {
        return Err(dataset_status(DatasetError::Changed { name: part.name.clone() }));
    }
    Ok(dataset)
}

impl DataPlane for DatasetService {
    fn authenticate_scoped_token(&self, token: &[u8]) -> Option<Principal> {
        if self.inner.pool.as_ref().is_some_and(|pool| pool.accepts_token(token)) {
            return Some(Principal::with_scope("pool member", POOL_SCOPE));
        }
        self.inner.file_service.as_ref()?.authenticate_scoped_token(token)
    }

    fn read_session(&self, token: &[u8]) -> Option<Session> {
        Session::verify_token(token, &self.inner.ticket_key)
    }

    fn connection_counter(&self) -> Option<Arc<ConnectionCounter>> {
        self.inner.pool.as_ref().map(|pool| pool.connection_counter().clone())
    }

    fn tracer(&self) -> Option<&Tracer> {
        self.inner.options.tracer.as_ref()
    }

    fn metrics(&self) -> Option<Arc<ServerMetrics>> {
        if let Some(workers) = self.inner.sql_engine.as_ref().and_then(|engine| engine.statement_workers()) {
            self.inner.metrics.set_workers(workers);
        }
        Some(self.inner.metrics.clone())
    }

    async fn respond_http(&self, request: WebRequest) -> http::Response<WebBody> {
        self.serve_page(request).await
    }

    async fn download(&self, principal: Principal, ticket: Bytes) -> Result<Download, Status> {
        if principal.scope() == Some(POOL_SCOPE) {
            return Err(Status::permission_denied(OUT_OF_SCOPE));
        }
        let (resumption, ticket) = match ticket.starts_with(RESUME_TICKET_PREFIX) {
            true => ResumePoint::parse(&ticket).map(|(resumption, whole)| (Some(resumption), whole))?,
            false => (None, ticket),
        };
        let resource = self.ticket_resource(&ticket);
        let started = match (self.download_ticket(&principal, ticket).await, resumption) {
            (Ok(download), Some(resumption)) => resume_download(download, resumption),
            (started, _) => started,
        };
        let (download, recorded) = self.record_start_or_failure(&principal, "DoGet", resource, started).await?;
        Ok(match recorded {
            Some(recorded) => recorded.record_download(download),
            None => download,
        })
    }

    /// Receives a dataset, or parameter values for a prepared statement.
    async fn upload(&self, principal: Principal, upload: Upload) -> Result<PutResultStream, Status> {
        self.receive_upload(&principal, upload).await
    }

    /// Receives genomic regions from the client and sends the rows of a dataset that overlap them.
    async fn exchange(&self, principal: Principal, upload: Upload) -> Result<ExchangeStream, Status> {
        self.exchange_lookups(&principal, upload).await
    }
}

impl DatasetService {
    /// Starts the download of a ticket's data.
    async fn download_ticket(&self, principal: &Principal, ticket: Bytes) -> Result<Download, Status> {
        if ticket.starts_with(FILES_PREFIX.as_bytes()) {
            let span = self.start_span(READ_SPAN);
            return trace::trace_download(span, self.file_service()?.download(principal.clone(), ticket).await);
        }
        if principal.scope().is_some() {
            return Err(Status::permission_denied(OUT_OF_SCOPE));
        }
        if TicketClaims::is_ticket(&ticket) {
            let claim = TicketClaims::verify(&ticket, &self.inner.ticket_key, principal).map_err(|error| *error)?;
            return self.download_claim(principal, claim).await;
        }
        // Flight SQL allows a client to use a metadata command as a ticket, without requesting flight info first.
        self.run_metadata_command(principal, decode_sql_command(&ticket)?).await
    }
}

/// The location that stands for the server that sent the flight info (Arrow Flight RPC, "Connection Reuse").
const REUSE_CONNECTION_LOCATION: &str = "arrow-flight-reuse-connection://?";

fn unsupported(type_url: &str) -> Status {
    let name = type_url.rsplit('.').next().unwrap_or(type_url);
    Status::unimplemented(format!("{name} is not supported: data are read-only; use SELECT"))
}

fn projected_schema(dataset: &dyn Dataset, scan: &Scan) -> Result<SchemaRef, Status> {
    let schema = dataset.schema();
    let Some(columns) = &scan.columns else { return Ok(schema) };
    let projected = schema.project(columns).map_err(|error| Status::invalid_argument(error.to_string()))?;
    Ok(Arc::new(projected))
}

fn flight_info_with_schema(descriptor: FlightDescriptor, schema: &Schema) -> Result<FlightInfo, Status> {
    let info = FlightInfo::new().try_with_schema(schema);
    Ok(info.map_err(|error| Status::internal(format!("a bug in godwit: {error}")))?.with_descriptor(descriptor))
}

/// Runs work that may block, such as reading files, on a thread of tokio's blocking pool.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Status::internal(format!("a bug in godwit: {error}"))))
}

/// Encodes a batch as bytes that a ticket can contain.
fn encode_batch(batch: &RecordBatch) -> Result<Vec<u8>, Status> {
    ipc::batch_to_bytes(batch).map_err(|error| Status::invalid_argument(error.to_string()))
}

/// Decodes the bytes of [`encode_batch`] from a ticket whose signature was verified. Empty bytes give `None`.
fn decode_batch(bytes: &[u8]) -> Result<Option<RecordBatch>, Status> {
    let decode = |bytes| ipc::batch_from_bytes(bytes).map_err(|error| Status::internal(error.to_string()));
    (!bytes.is_empty()).then(|| decode(bytes)).transpose()
}
