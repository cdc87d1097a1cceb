//! The process that runs statements for a server.
//!
//! What a statement may need of memory cannot be known before it is run, and no pool sees all of it: a function that repeats a
//! text makes one large value at once. So statements are run in processes of their own, which the system holds to a limit.
//! Flows in: statements, as tickets of Arrow Flight over a Unix socket. Flows out: rows.

use std::path::Path;

use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use futures_util::stream;
use godwit_flight::{
    Access, Address, Answers, Caller, DataPlane, Description, Download, FlightError, Routes, Server, SqlEngine, Status,
    Tuning, Upload,
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
}

impl Request {
    /// One byte that says what is wanted, the length of the statement, the statement, and the parameters.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, QueryError> {
        let parameters = self.parameters.as_ref().map(to_bytes).transpose()?.unwrap_or_default();
        let length = (self.sql.len() as u64).to_le_bytes();
        Ok([&[u8::from(self.describe)], &length[..], self.sql.as_bytes(), &parameters].concat())
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (describe, rest) = bytes.split_first()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (sql, parameters) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
        let sql = String::from_utf8(sql.to_vec()).ok()?;
        let parameters = if parameters.is_empty() { None } else { Some(ipc::batch_from_bytes(parameters).ok()?) };
        Some(Self { describe: *describe == 1, sql, parameters })
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

struct Worker(Engine);

impl DataPlane for Worker {
    async fn download(&self, caller: Caller, ticket: Bytes) -> Result<Download, Status> {
        let request = Request::decode(&ticket).ok_or_else(|| Status::internal("a bug in godwit: no request"))?;
        if !request.describe {
            return self.0.run(&caller, request.sql, request.parameters).await;
        }
        // The columns are the answer's own; the parameters are said beside a batch without rows.
        let Description { schema, parameters } = self.0.describe(&caller, request.sql).await?;
        let said = Bytes::from(schema_to_bytes(&parameters)?);
        let batch = RecordBatch::new_empty(schema.clone());
        Ok(Download { schema, batches: Box::pin(stream::iter([Ok((batch, said))])) })
    }

    async fn upload(&self, _: Caller, _: Upload) -> Result<Answers, Status> {
        Err(Status::unimplemented("nothing is taken here"))
    }
}

/// Serves one engine on a Unix socket until the future is dropped. `ready` is called once the socket is there.
///
/// # Errors
/// [`FlightError::Listen`].
pub async fn serve_statements(engine: Engine, socket: &Path, ready: impl FnOnce()) -> Result<(), FlightError> {
    let address = Address::Unix(socket.to_owned());
    let server =
        Server::bind(&address, Worker(engine), Routes::default(), Access::default(), Tuning::default()).await?;
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
            let request = Request { describe: false, sql: "SELECT é".to_owned(), parameters };
            let back = Request::decode(&request.encode().unwrap()).unwrap();
            assert_eq!((back.describe, &back.sql, &back.parameters), (false, &request.sql, &request.parameters));
        }
        assert!(Request::decode(&[1, 9, 0, 0, 0, 0, 0, 0, 0, b'x']).is_none());
    }
}
