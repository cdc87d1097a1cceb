//! Statements with parameters, which a client sends as prepared statements (Flight SQL).

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_flight::FlightDescriptor;
use arrow_flight::sql::{
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult,
    Any, CommandPreparedStatementQuery, ProstMessageExt as _,
};
use arrow_ipc::convert::try_schema_from_ipc_buffer;
use arrow_schema::Schema;
use bytes::Bytes;
use prost::Message as _;

use super::Client;
use crate::action_names::{CLOSE_PREPARED_STATEMENT, CREATE_PREPARED_STATEMENT};
use crate::error::FlightError;

/// Returns one row with the values of the parameters of a statement. The schema has their names and types.
pub type ParameterValues = Arc<dyn Fn(&Schema) -> Result<RecordBatch, FlightError> + Send + Sync>;

impl Client {
    /// Requests the tickets of an SQL statement with these values for its parameters.
    ///
    /// # Errors
    /// The errors of [`Client::statement_tickets`] and of `values`.
    pub async fn bound_statement_tickets(
        &self,
        sql: &str,
        values: Option<&ParameterValues>,
    ) -> Result<Vec<Bytes>, FlightError> {
        let Some(values) = values else { return self.statement_tickets(sql).await };
        let request = ActionCreatePreparedStatementRequest { query: sql.to_owned(), transaction_id: None };
        let results = self.do_action(CREATE_PREPARED_STATEMENT, request.as_any().encode_to_vec()).await?;
        let unpack = |result: Bytes| Any::decode(result).ok()?.unpack().ok()?;
        let created: Option<ActionCreatePreparedStatementResult> = results.into_iter().next().and_then(unpack);
        let malformed = FlightError::Malformed { problem: "the response is not a prepared statement" };
        let created = created.ok_or(malformed)?;
        let handle = created.prepared_statement_handle;
        let command = CommandPreparedStatementQuery { prepared_statement_handle: handle.clone() };
        let descriptor = FlightDescriptor::new_cmd(command.as_any().encode_to_vec());
        let bound = async {
            let row = values(&try_schema_from_ipc_buffer(&created.parameter_schema)?)?;
            let (mut sender, results) = self.upload(&descriptor, &row.schema())?;
            let sending = async {
                sender.send(&row, b"").await?;
                sender.finish().await
            };
            let (sent, results) = tokio::join!(sending, results);
            // The status of the call tells why sending failed.
            let mut results = results?;
            while results.next().await?.is_some() {}
            sent?;
            self.flight_info(descriptor).await
        };
        let info = bound.await;
        // The tickets contain the statement and its values. A server removes statements that are not closed later.
        let closed = ActionClosePreparedStatementRequest { prepared_statement_handle: handle };
        let _ = self.do_action(CLOSE_PREPARED_STATEMENT, closed.as_any().encode_to_vec()).await;
        Ok(info?.endpoint.into_iter().filter_map(|endpoint| Some(endpoint.ticket?.ticket)).collect())
    }
}
