//! The statement process, which runs SQL statements for a server.
//!
//! The memory that a statement needs is not known in advance, and the memory pool of DataFusion does not count all of
//! it. For example, a function that repeats a text may create one very large value. Statements therefore run in
//! separate processes whose memory the operating system limits. The server sends each statement as a Flight ticket over
//! a Unix socket, and the process returns the rows.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use futures_util::{StreamExt as _, stream};
use godwit_flight::{
    Address, ConnectionSecurity, DataPlane, Download, FlightError, Principal, PutResultStream, Routes, Server,
    SqlEngine, StatementDescription, StatementResult, Status, TransportOptions, Upload,
};
use godwit_model::ipc;

use crate::engine::QueryEngine;
use crate::error::QueryError;

/// A request from the server to a statement process.
#[derive(Debug)]
pub(crate) struct StatementRequest {
    /// True if only the schemas of rows and parameters are requested, and the statement must not run.
    pub(crate) is_describe: bool,
    pub(crate) sql: String,
    pub(crate) parameters: Option<RecordBatch>,
    /// Encoded grants of the principal, which are passed to the engine factory; empty without access rules.
    pub(crate) grants: Vec<u8>,
}

impl StatementRequest {
    /// Encodes the request as the bytes of `is_describe`, the lengths of grants and statement (u64, little-endian),
    /// grants, statement, and parameters, in this order.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, QueryError> {
        let parameters = self.parameters.as_ref().map(encode_batch).transpose()?.unwrap_or_default();
        let lengths = [self.grants.len() as u64, self.sql.len() as u64].map(u64::to_le_bytes).concat();
        Ok([&[u8::from(self.is_describe)], &lengths[..], &self.grants, self.sql.as_bytes(), &parameters].concat())
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (describe, rest) = bytes.split_first()?;
        let (view_bytes, rest) = rest.split_first_chunk()?;
        let (sql_bytes, rest) = rest.split_first_chunk()?;
        let (view, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*view_bytes)).ok()?)?;
        let (sql, parameters) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*sql_bytes)).ok()?)?;
        let sql = String::from_utf8(sql.to_vec()).ok()?;
        let parameters = if parameters.is_empty() { None } else { Some(ipc::batch_from_bytes(parameters).ok()?) };
        Some(Self { is_describe: *describe == 1, sql, parameters, grants: view.to_vec() })
    }
}

fn encode_batch(batch: &RecordBatch) -> Result<Vec<u8>, QueryError> {
    ipc::batch_to_bytes(batch).map_err(|error| DataFusionError::from(error).into())
}

/// Encodes a schema as an Arrow batch without rows.
fn schema_to_bytes(schema: &SchemaRef) -> Result<Vec<u8>, QueryError> {
    encode_batch(&RecordBatch::new_empty(schema.clone()))
}

pub(crate) fn schema_from_bytes(bytes: &[u8]) -> Option<SchemaRef> {
    Some(ipc::batch_from_bytes(bytes).ok()?.schema())
}

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
        let mut opened = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
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
            let StatementResult { download, datasets } =
                engine.execute(&principal, request.sql, request.parameters).await?;
            // First send a batch without rows, whose metadata lists the datasets that the statement reads.
            let metadata = serde_json::to_vec(&datasets);
            let metadata_bytes = metadata.map_err(|error| Status::internal(format!("a bug in godwit: {error}")))?;
            let head = (RecordBatch::new_empty(download.schema.clone()), Bytes::from(metadata_bytes));
            let batches = stream::iter([Ok(head)]).chain(download.batches);
            return Ok(Download { schema: download.schema, batches: Box::pin(batches) });
        }
        // Send a batch without rows: its schema is the schema of the rows, and its metadata contains the schema of the
        // parameters.
        let StatementDescription { schema, parameters } = engine.describe_statement(&principal, request.sql).await?;
        let metadata = Bytes::from(schema_to_bytes(&parameters)?);
        let batch = RecordBatch::new_empty(schema.clone());
        Ok(Download { schema, batches: Box::pin(stream::iter([Ok((batch, metadata))])) })
    }

    async fn upload(&self, _: Principal, _: Upload) -> Result<PutResultStream, Status> {
        Err(Status::unimplemented("DoPut is not supported by this server"))
    }
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
/// # use godwit_flight::{Catalog, Dataset, DatasetError};
/// # use godwit_flight::Status;
/// # use godwit_query::QueryResources;
/// use godwit_query::{QueryEngine, serve_statements};
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
    let server =
        Server::bind(&address, worker, Routes::default(), ConnectionSecurity::default(), TransportOptions::default())
            .await?;
    ready();
    server.serve().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::Int32Array;

    use super::*;

    #[test]
    fn requests_come_back() {
        let row = RecordBatch::try_from_iter([("$1", Arc::new(Int32Array::from(vec![7])) as _)]).unwrap();
        for parameters in [None, Some(row)] {
            let request = StatementRequest {
                is_describe: false,
                sql: "SELECT é".to_owned(),
                parameters,
                grants: b"{\"who\":7}".to_vec(),
            };
            let back = StatementRequest::decode(&request.encode().unwrap()).unwrap();
            assert_eq!((back.is_describe, &back.sql, &back.parameters), (false, &request.sql, &request.parameters));
            assert_eq!(back.grants, request.grants);
        }
        assert!(StatementRequest::decode(&[&[1; 1], &9u64.to_le_bytes()[..], &[0; 8], b"x"].concat()).is_none());
    }
}
