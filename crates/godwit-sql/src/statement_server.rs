//! The service of a statement process, which runs SQL statements for the process that started it.
//!
//! The memory that a statement needs is not known in advance, and the memory pool of DataFusion does not count all of
//! it. For example, a function that repeats a text may create one very large value. Statements therefore run in
//! separate processes whose memory the operating system limits. The server sends each statement as a Flight ticket over
//! a Unix socket, and the process returns the rows.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use futures_util::{Stream, StreamExt as _, stream};
use godwit_dataset::Principal;
use godwit_flight::{
    Address, BatchItem, ConnectionSecurity, DataPlane, Download, FlightError, PutResultStream, Routes, Server,
    SqlEngine, StatementDescription, StatementProgress, StatementResult, Status, Upload,
};
use godwit_query::{StatementRequest, fraction_to_bytes, schema_to_bytes, statement_transport_options};
use parking_lot::Mutex;

use crate::engine::QueryEngine;

/// Time without a batch after which the progress of a statement is sent without rows.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// A function that creates the query engine for encoded grants.
type EngineFactory = Box<dyn Fn(&[u8]) -> Result<QueryEngine, Status> + Send + Sync>;

/// The Flight service of a statement process. A process serves one set of grants only, so that it never holds data of
/// principals with other grants.
struct StatementServer {
    open_engine: EngineFactory,
    engine: Mutex<Option<(Vec<u8>, Arc<QueryEngine>)>>,
}

impl StatementServer {
    fn engine_for_grants(&self, view: Vec<u8>) -> Result<Arc<QueryEngine>, Status> {
        let mut opened = self.engine.lock();
        match &*opened {
            Some((own, engine)) if *own == view => Ok(engine.clone()),
            Some(_) => Err(Status::internal(
                "a bug in godwit: a statement process received a request with the grants of another principal",
            )),
            None => {
                let engine = Arc::new((self.open_engine)(&view)?);
                *opened = Some((view, engine.clone()));
                Ok(engine)
            }
        }
    }
}

impl DataPlane for StatementServer {
    async fn download(&self, principal: Principal, ticket: Bytes) -> Result<Download, Status> {
        let request = StatementRequest::decode(&ticket)
            .ok_or_else(|| Status::internal("a bug in godwit: a malformed statement request"))?;
        let engine = self.engine_for_grants(request.grants)?;
        if !request.is_describe {
            let progress = StatementProgress::default();
            let started = engine.execute(&principal, request.sql, request.parameters, progress.clone());
            let StatementResult { download, datasets } = started.await?;
            // First send a batch without rows, whose metadata lists the datasets that the statement reads.
            let metadata = serde_json::to_vec(&datasets);
            let metadata_bytes = metadata.map_err(|error| Status::internal(format!("a bug in godwit: {error}")))?;
            let head = (RecordBatch::new_empty(download.schema.clone()), Bytes::from(metadata_bytes));
            let schema = download.schema.clone();
            let batches = stream::iter([Ok(head)]).chain(batches_with_progress(download, progress));
            return Ok(Download { schema, batches: Box::pin(batches) });
        }
        // Send a batch without rows: its schema is the schema of the rows, and its metadata contains the schema of the
        // parameters.
        let described = engine.describe_statement(&principal, request.sql, request.parameters);
        let StatementDescription { schema, parameters } = described.await?;
        let metadata = Bytes::from(schema_to_bytes(&parameters)?);
        let batch = RecordBatch::new_empty(schema.clone());
        Ok(Download { schema, batches: Box::pin(stream::iter([Ok((batch, metadata))])) })
    }

    async fn upload(&self, _: Principal, _: Upload) -> Result<PutResultStream, Status> {
        Err(Status::unimplemented("DoPut is not supported by this server"))
    }
}

/// Adds the progress of the statement to each batch, as metadata. If the statement returns no batch for some time, a
/// batch without rows is inserted for its progress.
fn batches_with_progress(
    download: Download,
    progress: StatementProgress,
) -> impl Stream<Item = Result<BatchItem, Status>> {
    let Download { schema, batches } = download;
    stream::unfold(batches, move |mut batches| {
        let (schema, progress) = (schema.clone(), progress.clone());
        async move {
            let next = tokio::select! {
                biased;
                next = batches.next() => next?.map(|(batch, _)| batch),
                () = tokio::time::sleep(PROGRESS_INTERVAL) => Ok(RecordBatch::new_empty(schema)),
            };
            let metadata = Bytes::copy_from_slice(&fraction_to_bytes(progress.fraction()));
            Some((next.map(|batch| (batch, metadata)), batches))
        }
    })
}

/// Serves statements on a Unix socket until the returned future is dropped. `open` creates the engine for the grants of
/// the first statement; later statements must have the same grants. `ready` is called when the process listens on the
/// socket.
///
/// # Errors
/// [`FlightError::Listen`] if the process cannot listen on the socket.
///
/// # Examples
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # use godwit_dataset::{Catalog, Dataset, DatasetError};
/// # use godwit_flight::Status;
/// # use godwit_sql::QueryResources;
/// use godwit_sql::{QueryEngine, serve_statements};
///
/// # #[derive(Debug)]
/// # struct NoDatasets;
/// # impl Catalog for NoDatasets {
/// #     fn names(&self) -> Result<Vec<String>, DatasetError> {
/// #         Ok(Vec::new())
/// #     }
/// #     fn open(&self, name: &str) -> Result<Arc<dyn Dataset>, DatasetError> {
/// #         Err(DatasetError::NotFound { name: name.to_owned() })
/// #     }
/// # }
/// # let limits = QueryResources { memory_bytes: 64 << 20, threads: 1, scratch_directory: None };
/// let directory = tempfile::tempdir()?;
/// let socket = directory.path().join("socket");
/// let open = move |_grants: &[u8]| -> Result<QueryEngine, Status> {
///     Ok(QueryEngine::new(Arc::new(NoDatasets), &limits)?)
/// };
/// let (ready, is_ready) = tokio::sync::oneshot::channel();
/// tokio::select! {
///     served = serve_statements(open, &socket, || drop(ready.send(()))) => served?,
///     started = is_ready => started?,
/// }
/// assert!(socket.exists());
/// # Ok(())
/// # }
/// ```
pub async fn serve_statements(
    open: impl Fn(&[u8]) -> Result<QueryEngine, Status> + Send + Sync + 'static,
    socket: &Path,
    ready: impl FnOnce(),
) -> Result<(), FlightError> {
    let address = Address::Unix(socket.to_owned());
    let worker = StatementServer { open_engine: Box::new(open), engine: Mutex::default() };
    let (security, options) = (ConnectionSecurity::default(), statement_transport_options());
    let server = Server::bind(&address, worker, Routes::default(), security, options).await?;
    ready();
    server.serve().await;
    Ok(())
}
