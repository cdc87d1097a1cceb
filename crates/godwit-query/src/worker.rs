//! The process that runs statements for a server.
//!
//! What a statement may need of memory cannot be known before it is run, and no pool sees all of it: a function that repeats a
//! text makes one large value at once. So statements are run in processes of their own, which the system holds to a limit.
//! Flows in: statements, as tickets of Arrow Flight over a Unix socket. Flows out: rows.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use futures_util::{StreamExt as _, stream};
use godwit_flight::{
    Access, Address, Answers, Caller, DataPlane, Description, Download, FlightError, Ran, Routes, Server, SqlEngine,
    Status, Tuning, Upload,
};
use godwit_model::ipc;

use crate::engine::Engine;
use crate::error::QueryError;

/// What a worker is asked.
#[derive(Debug)]
pub(crate) struct Request {
    /// Whether only the columns and parameters are wanted.
    pub(crate) describe: bool,
    pub(crate) sql: String,
    pub(crate) parameters: Option<RecordBatch>,
    /// What the caller may see, in words that whoever opens the datasets knows; empty where there are no rules.
    pub(crate) view: Vec<u8>,
}

impl Request {
    /// One byte that says what is wanted, the lengths of the view and of the statement, both, and the parameters.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, QueryError> {
        let parameters = self.parameters.as_ref().map(to_bytes).transpose()?.unwrap_or_default();
        let lengths = [self.view.len() as u64, self.sql.len() as u64].map(u64::to_le_bytes).concat();
        Ok([&[u8::from(self.describe)], &lengths[..], &self.view, self.sql.as_bytes(), &parameters].concat())
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (describe, rest) = bytes.split_first()?;
        let (view_bytes, rest) = rest.split_first_chunk()?;
        let (sql_bytes, rest) = rest.split_first_chunk()?;
        let (view, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*view_bytes)).ok()?)?;
        let (sql, parameters) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*sql_bytes)).ok()?)?;
        let sql = String::from_utf8(sql.to_vec()).ok()?;
        let parameters = if parameters.is_empty() { None } else { Some(ipc::batch_from_bytes(parameters).ok()?) };
        Some(Self { describe: *describe == 1, sql, parameters, view: view.to_vec() })
    }
}

fn to_bytes(batch: &RecordBatch) -> Result<Vec<u8>, QueryError> {
    ipc::batch_to_bytes(batch).map_err(|error| DataFusionError::from(error).into())
}

/// A schema as a batch without rows.
fn schema_to_bytes(schema: &SchemaRef) -> Result<Vec<u8>, QueryError> {
    to_bytes(&RecordBatch::new_empty(schema.clone()))
}

pub(crate) fn schema_from_bytes(bytes: &[u8]) -> Option<SchemaRef> {
    Some(ipc::batch_from_bytes(bytes).ok()?.schema())
}

/// Opens the engine of a view.
type Open = Box<dyn Fn(&[u8]) -> Result<Engine, Status> + Send + Sync>;

/// A worker serves one view for as long as it lives, so that nothing it keeps is ever of somebody else's.
struct Worker {
    open: Open,
    opened: Mutex<Option<(Vec<u8>, Arc<Engine>)>>,
}

impl Worker {
    fn engine(&self, view: Vec<u8>) -> Result<Arc<Engine>, Status> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        match &*opened {
            Some((own, engine)) if *own == view => Ok(engine.clone()),
            Some(_) => Err(Status::internal("a bug in godwit: a process was asked for another view than its own")),
            None => {
                let engine = Arc::new((self.open)(&view)?);
                *opened = Some((view, engine.clone()));
                Ok(engine)
            }
        }
    }
}

impl DataPlane for Worker {
    async fn download(&self, caller: Caller, ticket: Bytes) -> Result<Download, Status> {
        let request = Request::decode(&ticket).ok_or_else(|| Status::internal("a bug in godwit: no request"))?;
        let engine = self.engine(request.view)?;
        if !request.describe {
            let Ran { download, touched } = engine.run(&caller, request.sql, request.parameters).await?;
            // A batch without rows goes before the others, and says what the statement reads.
            let said = serde_json::to_vec(&touched);
            let said = said.map_err(|error| Status::internal(format!("a bug in godwit: {error}")))?;
            let head = (RecordBatch::new_empty(download.schema.clone()), Bytes::from(said));
            let batches = stream::iter([Ok(head)]).chain(download.batches);
            return Ok(Download { schema: download.schema, batches: Box::pin(batches) });
        }
        // The columns are the answer's own; the parameters are said beside a batch without rows.
        let Description { schema, parameters } = engine.describe(&caller, request.sql).await?;
        let said = Bytes::from(schema_to_bytes(&parameters)?);
        let batch = RecordBatch::new_empty(schema.clone());
        Ok(Download { schema, batches: Box::pin(stream::iter([Ok((batch, said))])) })
    }

    async fn upload(&self, _: Caller, _: Upload) -> Result<Answers, Status> {
        Err(Status::unimplemented("nothing is taken here"))
    }
}

/// Serves statements on a Unix socket until the future is dropped, by the engine that `open` gives for the view of the first
/// statement; those that follow have to be of the same view. `ready` is called once the socket is there.
///
/// # Errors
/// [`FlightError::Listen`].
pub async fn serve_statements(
    open: impl Fn(&[u8]) -> Result<Engine, Status> + Send + Sync + 'static,
    socket: &Path,
    ready: impl FnOnce(),
) -> Result<(), FlightError> {
    let address = Address::Unix(socket.to_owned());
    let worker = Worker { open: Box::new(open), opened: Mutex::default() };
    let server = Server::bind(&address, worker, Routes::default(), Access::default(), Tuning::default()).await?;
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
            let request =
                Request { describe: false, sql: "SELECT é".to_owned(), parameters, view: b"{\"who\":7}".to_vec() };
            let back = Request::decode(&request.encode().unwrap()).unwrap();
            assert_eq!((back.describe, &back.sql, &back.parameters), (false, &request.sql, &request.parameters));
            assert_eq!(back.view, request.view);
        }
        assert!(Request::decode(&[&[1; 1], &9u64.to_le_bytes()[..], &[0; 8], b"x"].concat()).is_none());
    }
}
