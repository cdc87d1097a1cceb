//! The requests that a process sends to its statement processes, as Flight tickets over a Unix socket.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};
use godwit_flight::{Status, TransportOptions};
use godwit_model::ipc;

/// The line that a statement process prints on its stdout when it listens on its socket. Both programs must be of the
/// same version.
pub const READY_LINE: &str = concat!("godwit-sql ", env!("CARGO_PKG_VERSION"));

/// Returns the transport options of both ends of the socket of a statement process. The socket closes when either
/// process exits, so neither has to answer pings in time: a process that computes or is stopped for minutes is not lost.
pub fn statement_transport_options() -> TransportOptions {
    let never = Duration::from_secs(365 * 24 * 3600);
    TransportOptions { keep_alive_interval: never, keep_alive_timeout: never, ..TransportOptions::default() }
}

/// A request to a statement process.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_query::StatementRequest;
///
/// let sql = "SELECT 1".to_owned();
/// let request = StatementRequest { is_describe: false, sql, parameters: None, grants: Vec::new() };
/// assert_eq!(StatementRequest::decode(&request.encode()?).map(|decoded| decoded.sql), Some("SELECT 1".to_owned()));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct StatementRequest {
    /// True if only the schemas of rows and parameters are requested, and the statement must not run.
    pub is_describe: bool,
    /// The statement.
    pub sql: String,
    /// The values of the parameters `$1`, `$2` and so on, as one row.
    pub parameters: Option<RecordBatch>,
    /// Encoded grants of the principal, which are passed to the engine factory; empty without access rules.
    pub grants: Vec<u8>,
}

impl StatementRequest {
    /// Encodes the request as the bytes of `is_describe`, the lengths of grants and statement (u64, little-endian),
    /// grants, statement, and parameters, in this order.
    ///
    /// # Errors
    /// The code `InvalidArgument` if the parameters cannot be sent.
    pub fn encode(&self) -> Result<Vec<u8>, Status> {
        let parameters = self.parameters.as_ref().map(ipc::batch_to_bytes).transpose().map_err(invalid_batch)?;
        let lengths = [self.grants.len() as u64, self.sql.len() as u64].map(u64::to_le_bytes).concat();
        let parameters = parameters.unwrap_or_default();
        Ok([&[u8::from(self.is_describe)], &lengths[..], &self.grants, self.sql.as_bytes(), &parameters].concat())
    }

    /// Decodes bytes that [`Self::encode`] returned; `None` if the bytes are invalid.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
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

/// Encodes a schema as an Arrow batch without rows.
///
/// # Errors
/// The code `InvalidArgument` if Arrow IPC cannot represent the schema.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
///
/// use arrow_schema::{DataType, Field, Schema};
/// use godwit_query::{schema_from_bytes, schema_to_bytes};
///
/// let schema = Arc::new(Schema::new(vec![Field::new("position", DataType::Int32, false)]));
/// assert_eq!(schema_from_bytes(&schema_to_bytes(&schema)?), Some(schema));
/// # Ok(())
/// # }
/// ```
pub fn schema_to_bytes(schema: &SchemaRef) -> Result<Vec<u8>, Status> {
    ipc::batch_to_bytes(&RecordBatch::new_empty(Arc::clone(schema))).map_err(invalid_batch)
}

/// Decodes a schema that [`schema_to_bytes`] encoded; `None` if the bytes are invalid.
pub fn schema_from_bytes(bytes: &[u8]) -> Option<SchemaRef> {
    Some(ipc::batch_from_bytes(bytes).ok()?.schema())
}

/// Encodes the fraction of a statement that is done, as the metadata of a batch of its rows.
pub fn fraction_to_bytes(fraction: f32) -> [u8; 4] {
    fraction.to_le_bytes()
}

/// Decodes a fraction that [`fraction_to_bytes`] encoded; `None` if the bytes are invalid.
pub(crate) fn fraction_from_bytes(bytes: &[u8]) -> Option<f32> {
    bytes.try_into().ok().map(f32::from_le_bytes)
}

fn invalid_batch(error: ArrowError) -> Status {
    Status::invalid_argument(error.to_string())
}

#[cfg(test)]
mod tests {
    use arrow_array::Int32Array;

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
