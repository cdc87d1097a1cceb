//! The data node: a catalog of datasets, and SQL on them, as a Flight service.
//!
//! Datasets are asked for by a path, or by a [`DatasetCommand`] in JSON; what Flight SQL asks comes in its own messages. Flight
//! info says where parts are, each with a ticket that is good for a while. Data go the fast way ([`DataPlane`]); everything
//! else is a tonic service of the same [`Node`].

mod actions;
mod browser;
mod command;
mod lookups;
mod pages;
mod placing;
mod plain;
mod puts;
mod reading;
mod recording;
mod running;
mod service;

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_flight::flight_service_server::FlightServiceServer;
use arrow_flight::sql::{Any, Command};
use arrow_flight::{FlightDescriptor, FlightEndpoint, FlightInfo, Ticket, flight_descriptor::DescriptorType};
use arrow_schema::{Schema, SchemaRef};
use bytes::Bytes;
use futures_util::stream;
use godwit_model::ipc;
use godwit_model::{Region, suggestion};
use prost::Message as _;
use tokio::sync::Semaphore;
use tonic::Status;
use tonic::service::Routes;

use crate::access::AccessLog;
use crate::dataset::{Catalog, Dataset, Part, Scan};
use crate::files::{FILES_MARK, FileService};
use crate::gate::{Caller, Session};
use crate::metrics::{CountedLog, Metrics};
pub use crate::node::command::DatasetCommand;
use crate::node::placing::Asker;
pub use crate::node::reading::streamed;
use crate::node::reading::{READ, STATEMENT};
use crate::node::running::Running;
use crate::pool::{Membership, Meter, PURPOSE, RESUME_MARK, Resumption, resumed};
use crate::reflection::with_reflection;
use crate::rules::Rules;
use crate::server::{Answers, Chunks, DataPlane, Download, GRANTED_ONLY, Upload};
use crate::sql::{SqlEngine, Statements, metadata_batch, metadata_schema, random_bytes};
use crate::tickets::{Claim, DatasetPart, StatementText, TicketKey};
use crate::trace::{self, OpenSpan, Tracer};
use crate::web::{WebBody, WebRequest, WebService};

/// Batches between a connection and the thread that takes them from it, or makes them for it.
const BATCHES_AHEAD: usize = 2;

/// Bytes of a request that moves no data: manifests of many files, hashes of large ones.
const REQUEST_LIMIT_BYTES: usize = 64 << 20;

/// What a node is to do.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// How long tickets are good.
    pub ticket_lifetime: Duration,
    /// Parts that a dataset is cut into, where nothing is said, at most.
    pub parts: usize,
    /// Bytes of a dataset that are worth a part of their own.
    pub part_bytes: u64,
    /// Datasets that are taken at a time; others wait.
    pub uploads: usize,
    /// Who may see what; `None`: whoever is let in sees everything.
    pub rules: Option<Arc<dyn Rules>>,
    /// Where accesses are recorded.
    pub log: Option<Arc<dyn AccessLog>>,
    /// Who answers what is asked over plain HTTP.
    pub web: Option<Arc<dyn WebService>>,
    /// What makes spans of what is done; `None` where nobody follows it.
    pub tracer: Option<Tracer>,
}

impl Default for NodeOptions {
    fn default() -> Self {
        let ticket_lifetime = Duration::from_secs(3600);
        let (rules, log, web, tracer) = (None, None, None, None);
        Self { ticket_lifetime, parts: 8, part_bytes: 64 << 20, uploads: 4, rules, log, web, tracer }
    }
}

/// A data node. Clones are the same node.
#[derive(Clone)]
pub struct Node {
    inner: Arc<Inner>,
}

struct Inner {
    catalog: Arc<dyn Catalog>,
    engine: Option<Arc<dyn SqlEngine>>,
    key: TicketKey,
    options: NodeOptions,
    statements: Statements,
    uploads: Arc<Semaphore>,
    running: Running,
    started: Instant,
    files: Option<Arc<dyn FileService>>,
    pool: Option<Arc<Membership>>,
    metrics: Arc<Metrics>,
}

/// What a descriptor asks for.
enum Asked {
    Dataset(DatasetCommand),
    Sql(Box<Command>),
}

/// What a command of Flight SQL asks for.
enum Wanted {
    /// Something about the server or its tables, in these columns.
    Metadata(SchemaRef),
    /// The rows of a statement; `told`: their columns, where they were told a moment ago.
    Rows { text: StatementText, told: Option<SchemaRef> },
}

impl Node {
    /// A node. Without an engine it has no SQL.
    pub fn new(catalog: Arc<dyn Catalog>, engine: Option<Arc<dyn SqlEngine>>, options: NodeOptions) -> Self {
        Self::with_files(catalog, engine, None, options)
    }

    /// As [`Node::new`], where files can be had as they are, too.
    pub fn with_files(
        catalog: Arc<dyn Catalog>,
        engine: Option<Arc<dyn SqlEngine>>,
        files: Option<Arc<dyn FileService>>,
        options: NodeOptions,
    ) -> Self {
        Self::in_pool(catalog, engine, files, None, options)
    }

    /// As [`Node::with_files`], where it is one of several that give the same data: tickets of each are good at all of them.
    pub fn in_pool(
        catalog: Arc<dyn Catalog>,
        engine: Option<Arc<dyn SqlEngine>>,
        files: Option<Arc<dyn FileService>>,
        pool: Option<Arc<Membership>>,
        mut options: NodeOptions,
    ) -> Self {
        let metrics = Arc::new(Metrics::default());
        let counted = |log| Arc::new(CountedLog { log, metrics: metrics.clone() }) as Arc<dyn AccessLog>;
        options.log = options.log.map(counted);
        let key = match &pool {
            Some(pool) => TicketKey::new(&pool.ticket_secret()),
            None => TicketKey::new(&random_bytes::<32>()),
        };
        let uploads = Arc::new(Semaphore::new(options.uploads.max(1)));
        let (statements, running, started) = (Statements::default(), Running::default(), Instant::now());
        let inner =
            Inner { catalog, engine, key, options, statements, uploads, running, started, files, pool, metrics };
        Self { inner: Arc::new(inner) }
    }

    pub(crate) fn files(&self) -> Result<&Arc<dyn FileService>, Status> {
        self.inner.files.as_ref().ok_or_else(|| Status::unimplemented("this server has no files to copy"))
    }

    /// The calls that move no data, for [`Server`](crate::Server).
    pub fn routes(&self) -> Routes {
        let service = FlightServiceServer::new(self.clone());
        with_reflection(Routes::new(service.max_decoding_message_size(REQUEST_LIMIT_BYTES)))
    }

    fn engine(&self) -> Result<&Arc<dyn SqlEngine>, Status> {
        self.inner.engine.as_ref().ok_or_else(|| Status::unimplemented("this server was built without SQL"))
    }

    /// The datasets that a caller may see, as it may see them. Nothing else of a node reads the catalog for a caller.
    fn catalog(&self, caller: &Caller) -> Arc<dyn Catalog> {
        match &self.inner.options.rules {
            Some(rules) => rules.view(caller, &self.inner.catalog),
            None => self.inner.catalog.clone(),
        }
    }

    async fn info(&self, caller: &Caller, descriptor: FlightDescriptor, asker: Asker) -> Result<FlightInfo, Status> {
        if descriptor.cmd.starts_with(FILES_MARK.as_bytes()) {
            return self.file_info(caller, descriptor, asker).await;
        }
        match asked(&descriptor)? {
            Asked::Dataset(command) => self.dataset_info(caller, descriptor, command, asker).await,
            Asked::Sql(command) => self.sql_info(caller, descriptor, *command, asker).await,
        }
    }

    /// A file as it is: an endpoint for each of its pieces, with each server that has it.
    async fn file_info(
        &self,
        caller: &Caller,
        descriptor: FlightDescriptor,
        asker: Asker,
    ) -> Result<FlightInfo, Status> {
        let places = self.places(asker, u64::from_le_bytes(random_bytes())).await;
        let file = self.files()?.info(caller.clone(), descriptor.cmd.clone()).await?;
        let mut info = info_with(descriptor, &file.schema)?.with_ordered(true).with_total_bytes(file.bytes as i64);
        for (number, ticket) in file.tickets.into_iter().enumerate() {
            let mut endpoint = places.of(number, FlightEndpoint::new().with_ticket(Ticket::new(ticket)));
            // No location at all is this server, too, but not beside others.
            if !file.also_at.is_empty() && endpoint.location.is_empty() {
                endpoint = endpoint.with_location(SAME_SERVER);
            }
            info = info.with_endpoint(file.also_at.iter().fold(endpoint, |endpoint, at| endpoint.with_location(at)));
        }
        Ok(info)
    }

    async fn schema_of(&self, caller: &Caller, descriptor: &FlightDescriptor) -> Result<SchemaRef, Status> {
        if descriptor.cmd.starts_with(FILES_MARK.as_bytes()) {
            return Ok(self.files()?.info(caller.clone(), descriptor.cmd.clone()).await?.schema);
        }
        match asked(descriptor)? {
            Asked::Dataset(command) => {
                let (dataset, scan) = self.open(caller, command).await?;
                scanned_schema(&*dataset, &scan)
            }
            Asked::Sql(command) => self.sql_schema(caller, &command).await,
        }
    }

    async fn open(&self, caller: &Caller, command: DatasetCommand) -> Result<(Arc<dyn Dataset>, Scan), Status> {
        if command.put.is_some() || command.temporary {
            return Err(Status::invalid_argument("`put` and `temporary` are for uploads (DoPut)"));
        }
        let catalog = self.catalog(caller);
        blocking(move || {
            let dataset = catalog.open(&command.dataset)?;
            let scan = scan_of(&command, &*dataset)?;
            Ok((dataset, scan))
        })
        .await
    }

    async fn dataset_info(
        &self,
        caller: &Caller,
        descriptor: FlightDescriptor,
        command: DatasetCommand,
        asker: Asker,
    ) -> Result<FlightInfo, Status> {
        let name = command.dataset.clone();
        let most = command.parts;
        let (dataset, scan) = self.open(caller, command).await?;
        let (parts, scan, dataset) = self.parts_of(dataset, scan, most).await?;
        let mut info = info_with(descriptor, &*scanned_schema(&*dataset, &scan)?)?.with_ordered(true);
        let claims = parts.iter().map(|part| Claim {
            part: Some(DatasetPart::new(&name, dataset.version(), &scan, part)),
            ..Claim::new(caller, self.inner.options.ticket_lifetime)
        });
        let claims: Vec<Claim> = claims.collect();
        // The first to come tells that the grant did.
        let places = self.places(asker, claims.first().map_or(0, |claim| claim.id)).await;
        for (number, claim) in claims.iter().enumerate() {
            info = info.with_endpoint(places.of(number, self.endpoint(claim)));
        }
        let rows = dataset.rows().filter(|_| scan.regions.is_none());
        // Who sees some rows is not told how much there is.
        let bytes = if dataset.bytes() == 0 { -1 } else { dataset.bytes() as i64 };
        Ok(info
            .with_total_records(rows.map_or(-1, |rows| rows as i64))
            .with_total_bytes(bytes)
            .with_app_metadata(dataset.kind().name()))
    }

    /// Cuts a scan into parts, `most` of them or as many as are worth it.
    async fn parts_of(
        &self,
        dataset: Arc<dyn Dataset>,
        scan: Scan,
        most: Option<usize>,
    ) -> Result<(Vec<Part>, Scan, Arc<dyn Dataset>), Status> {
        let options = &self.inner.options;
        let worthwhile = dataset.bytes().div_ceil(options.part_bytes).clamp(1, options.parts as u64) as usize;
        let most = most.unwrap_or(worthwhile).clamp(1, 4096);
        blocking(move || Ok((dataset.parts(&scan, most)?, scan, dataset))).await
    }

    /// What a command of Flight SQL asks for.
    fn wanted(&self, caller: &Caller, command: &Command) -> Result<Wanted, Status> {
        if let Some(schema) = metadata_schema(command) {
            return Ok(Wanted::Metadata(schema));
        }
        match command {
            Command::CommandStatementQuery(query) => {
                let text = StatementText { sql: query.query.clone(), parameters: Vec::new() };
                Ok(Wanted::Rows { text, told: None })
            }
            Command::CommandPreparedStatementQuery(query) => {
                let prepared =
                    self.inner.statements.get(caller, &query.prepared_statement_handle).map_err(|error| *error)?;
                let parameters = prepared.parameters.as_ref().map(encode_batch).transpose()?.unwrap_or_default();
                let told = prepared.schema();
                Ok(Wanted::Rows { text: StatementText { sql: prepared.sql, parameters }, told })
            }
            other => Err(refused(other.type_url())),
        }
    }

    async fn sql_schema(&self, caller: &Caller, command: &Command) -> Result<SchemaRef, Status> {
        match self.wanted(caller, command)? {
            Wanted::Metadata(schema) | Wanted::Rows { told: Some(schema), .. } => Ok(schema),
            Wanted::Rows { text, told: None } => self.describe(caller, text.sql).await.map(|said| said.schema),
        }
    }

    async fn sql_info(
        &self,
        caller: &Caller,
        descriptor: FlightDescriptor,
        command: Command,
        asker: Asker,
    ) -> Result<FlightInfo, Status> {
        let mut claim = Claim::new(caller, self.inner.options.ticket_lifetime);
        let schema = match self.wanted(caller, &command)? {
            Wanted::Metadata(schema) => {
                claim.command = command.into_any().encode_to_vec();
                schema
            }
            Wanted::Rows { text, told } => {
                if let Some(read) = self.plain_read(caller, &text).await {
                    return self.plain_info(caller, descriptor, text, read).await;
                }
                let schema = match told {
                    Some(schema) => schema,
                    None => self.engine()?.describe(caller, text.sql.clone()).await?.schema,
                };
                claim.statement = Some(text);
                schema
            }
        };
        let endpoint = self.places(asker, claim.id).await.of(0, self.endpoint(&claim));
        Ok(info_with(descriptor, &schema)?.with_endpoint(endpoint).with_ordered(true))
    }

    /// Without a location: where the info is from.
    fn endpoint(&self, claim: &Claim) -> FlightEndpoint {
        FlightEndpoint::new().with_ticket(Ticket::new(claim.sign(&self.inner.key)))
    }

    async fn run_claim(&self, caller: &Caller, claim: Claim) -> Result<Download, Status> {
        if let Some(pool) = &self.inner.pool {
            pool.meter().came(claim.id);
        }
        let mut open = self.inner.running.open(claim.id)?;
        let download = open.unless_ended(self.start_claim(caller, claim)).await?;
        Ok(open.guard(download))
    }

    async fn start_claim(&self, caller: &Caller, claim: Claim) -> Result<Download, Status> {
        let name = if claim.part.is_none() && claim.statement.is_some() { STATEMENT } else { READ };
        let span = self.span(name);
        let started = async {
            match (claim.part, claim.statement) {
                (Some(part), None) => self.read_part(caller, part).await,
                (Some(part), Some(statement)) => self.read_plainly(caller, part, statement).await,
                (None, Some(statement)) => self.run_statement(caller, statement).await,
                (None, None) => self.run_command(caller, command_in(&claim.command)?).await,
            }
        };
        let started = trace::within(span.as_ref().map(OpenSpan::context).or_else(trace::current), started).await;
        trace::over(span, started)
    }

    async fn run_statement(&self, caller: &Caller, statement: StatementText) -> Result<Download, Status> {
        let parameters = decode_batch(&statement.parameters)?;
        let ran = self.engine()?.run(caller, statement.sql, parameters).await?;
        for touched in &ran.touched {
            caller.touches().add(&touched.dataset, &touched.rule);
        }
        Ok(ran.download)
    }

    async fn read_part(&self, caller: &Caller, part: DatasetPart) -> Result<Download, Status> {
        let catalog = self.catalog(caller);
        let (schema, batches) = blocking(move || {
            let dataset = of_part(&*catalog, &part)?;
            let (scan, part) = part.scan().map_err(|error| *error)?;
            Ok((scanned_schema(&*dataset, &scan)?, dataset.read(&scan, &part)?))
        })
        .await?;
        Ok(streamed(schema, batches))
    }

    async fn run_command(&self, caller: &Caller, command: Command) -> Result<Download, Status> {
        let catalog = self.catalog(caller);
        let batch = blocking(move || metadata_batch(command, &*catalog).map_err(|error| *error)).await?;
        let schema = batch.schema();
        Ok(Download { schema, batches: Box::pin(stream::iter([Ok((batch, Bytes::new()))])) })
    }
}

/// The dataset that a part is of, which has to be what it was when the part was made.
fn of_part(catalog: &dyn Catalog, part: &DatasetPart) -> Result<Arc<dyn Dataset>, Status> {
    let dataset = catalog.open(&part.name)?;
    if dataset.version() != part.version {
        return Err(crate::DatasetError::Changed { name: part.name.clone() }.into());
    }
    Ok(dataset)
}

impl DataPlane for Node {
    fn granted(&self, token: &[u8]) -> Option<Caller> {
        if self.inner.pool.as_ref().is_some_and(|pool| pool.lets_in(token)) {
            return Some(Caller::granted("node of the pool", PURPOSE));
        }
        self.inner.files.as_ref()?.granted(token)
    }

    fn session(&self, token: &[u8]) -> Option<Session> {
        Session::read(token, &self.inner.key)
    }

    fn meter(&self) -> Option<Arc<Meter>> {
        self.inner.pool.as_ref().map(|pool| pool.meter().clone())
    }

    fn tracer(&self) -> Option<&Tracer> {
        self.inner.options.tracer.as_ref()
    }

    fn metrics(&self) -> Option<Arc<Metrics>> {
        if let Some(workers) = self.inner.engine.as_ref().and_then(|engine| engine.workers()) {
            self.inner.metrics.set_workers(workers);
        }
        Some(self.inner.metrics.clone())
    }

    async fn page(&self, request: WebRequest) -> http::Response<WebBody> {
        self.answer_page(request).await
    }

    async fn download(&self, caller: Caller, ticket: Bytes) -> Result<Download, Status> {
        if caller.purpose() == Some(PURPOSE) {
            return Err(Status::permission_denied(GRANTED_ONLY));
        }
        let (resumption, ticket) = match ticket.starts_with(RESUME_MARK) {
            true => Resumption::read(&ticket).map(|(resumption, whole)| (Some(resumption), whole))?,
            false => (None, ticket),
        };
        let what = self.what_is_wanted(&ticket);
        let started = match (self.start(&caller, ticket).await, resumption) {
            (Ok(download), Some(resumption)) => resumed(download, resumption),
            (started, _) => started,
        };
        let (download, recorded) = self.begun(&caller, "DoGet", what, started).await?;
        Ok(match recorded {
            Some(recorded) => recorded.download(download),
            None => download,
        })
    }

    /// A dataset, or values for a prepared statement.
    async fn upload(&self, caller: Caller, upload: Upload) -> Result<Answers, Status> {
        self.take(&caller, upload).await
    }

    /// Regions of a dataset, and their rows.
    async fn exchange(&self, caller: Caller, taken: Upload) -> Result<Chunks, Status> {
        self.look_up(&caller, taken).await
    }
}

impl Node {
    /// The data of a ticket.
    async fn start(&self, caller: &Caller, ticket: Bytes) -> Result<Download, Status> {
        if ticket.starts_with(FILES_MARK.as_bytes()) {
            let span = self.span(READ);
            return trace::over(span, self.files()?.send(caller.clone(), ticket).await);
        }
        if caller.purpose().is_some() {
            return Err(Status::permission_denied(GRANTED_ONLY));
        }
        if Claim::is_ticket(&ticket) {
            let claim = Claim::check(&ticket, &self.inner.key, caller).map_err(|error| *error)?;
            return self.run_claim(caller, claim).await;
        }
        // Some clients make tickets of metadata commands by themselves, as the specification lets them.
        self.run_command(caller, command_in(&ticket)?).await
    }
}

/// The server that a client asked, as a location (Arrow Flight RPC, "Connection Reuse").
const SAME_SERVER: &str = "arrow-flight-reuse-connection://?";

fn refused(what: &str) -> Status {
    let name = what.rsplit('.').next().unwrap_or(what);
    Status::unimplemented(format!("{name} is not done here: data are only read; ask with SELECT"))
}

/// What a descriptor asks for.
fn asked(descriptor: &FlightDescriptor) -> Result<Asked, Status> {
    match DescriptorType::try_from(descriptor.r#type) {
        Ok(DescriptorType::Path) if !descriptor.path.is_empty() => {
            Ok(Asked::Dataset(DatasetCommand { dataset: descriptor.path.join("/"), ..DatasetCommand::default() }))
        }
        Ok(DescriptorType::Cmd) if descriptor.cmd.first() == Some(&b'{') => {
            let command = serde_json::from_slice(&descriptor.cmd);
            command.map(Asked::Dataset).map_err(|error| {
                Status::invalid_argument(format!(
                    "the command is not understood: {error}; write it like {{\"dataset\":\"x.bam\",\"regions\":[\"chr20:1-100\"]}}"
                ))
            })
        }
        Ok(DescriptorType::Cmd) => command_in(&descriptor.cmd).map(|command| Asked::Sql(Box::new(command))),
        _ => Err(Status::invalid_argument("the descriptor has neither a path nor a command")),
    }
}

/// The Flight SQL command in some bytes.
fn command_in(bytes: &[u8]) -> Result<Command, Status> {
    let unknown = || Status::invalid_argument("these bytes are neither a ticket nor a command of Flight SQL");
    let message = Any::decode(bytes).map_err(|_| unknown())?;
    match Command::try_from(message).map_err(|_| unknown())? {
        Command::Unknown(_) => Err(unknown()),
        command => Ok(command),
    }
}

fn scan_of(command: &DatasetCommand, dataset: &dyn Dataset) -> Result<Scan, Status> {
    let schema = dataset.schema();
    let column = |name: &String| {
        schema.index_of(name).map_err(|_| {
            let near = suggestion(name, schema.fields().iter().map(|field| field.name().as_str()));
            Status::invalid_argument(format!("{} has no column {name}{near}", command.dataset))
        })
    };
    let columns =
        command.columns.as_ref().map(|names| names.iter().map(column).collect::<Result<Vec<_>, _>>()).transpose()?;
    if columns.as_ref().is_some_and(|columns| !columns.is_sorted_by(|one, next| one < next)) {
        return Err(Status::invalid_argument(
            "name columns once, in the order of the dataset; SQL has them in any order",
        ));
    }
    if command.regions.is_some() && !dataset.has_regions() {
        return Err(Status::invalid_argument(format!(
            "{} is not looked up by regions; ask it with SQL",
            command.dataset
        )));
    }
    let region = |text: &String| Region::parse(text, |contig| dataset.has_contig(contig));
    let regions: Option<Result<Vec<Region>, _>> =
        command.regions.as_ref().map(|texts| texts.iter().map(region).collect());
    let refused = |error| Status::invalid_argument(format!("{}: {error}", command.dataset));
    Ok(Scan { columns, regions: regions.transpose().map_err(refused)? })
}

fn scanned_schema(dataset: &dyn Dataset, scan: &Scan) -> Result<SchemaRef, Status> {
    let schema = dataset.schema();
    let Some(columns) = &scan.columns else { return Ok(schema) };
    let projected = schema.project(columns).map_err(|error| Status::invalid_argument(error.to_string()))?;
    Ok(Arc::new(projected))
}

fn info_with(descriptor: FlightDescriptor, schema: &Schema) -> Result<FlightInfo, Status> {
    let info = FlightInfo::new().try_with_schema(schema);
    Ok(info.map_err(|error| Status::internal(format!("a bug in godwit: {error}")))?.with_descriptor(descriptor))
}

/// Work that waits for files, where it keeps nobody else waiting.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Status> + Send + 'static) -> Result<T, Status> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Status::internal(format!("a bug in godwit: {error}"))))
}

/// A batch as bytes, for a ticket.
fn encode_batch(batch: &RecordBatch) -> Result<Vec<u8>, Status> {
    ipc::batch_to_bytes(batch).map_err(|error| Status::invalid_argument(error.to_string()))
}

/// Bytes that [`encode_batch`] made and a ticket vouches for.
fn decode_batch(bytes: &[u8]) -> Result<Option<RecordBatch>, Status> {
    let decode = |bytes| ipc::batch_from_bytes(bytes).map_err(|error| Status::internal(error.to_string()));
    (!bytes.is_empty()).then(|| decode(bytes)).transpose()
}
