//! The rows of a statement that a server runs.

use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use godwit_flight::pool::{Pool, PooledRows};
use godwit_flight::{Batches, Client, FlightError};

/// The rows of a remote statement, ticket by ticket, in the order of the server's endpoints.
pub enum RemoteRows {
    /// Rows from one server.
    Server(Box<ServerRows>),
    /// Rows from a pool of servers.
    Pool(Box<PooledRows>),
}

/// Rows from one server.
pub struct ServerRows {
    client: Client,
    /// Tickets that remain to be fetched, last first.
    pending_tickets: Vec<Bytes>,
    batches: Batches,
    /// Already read, because the schema comes with it.
    first_batch: Option<RecordBatch>,
    schema: SchemaRef,
}

impl RemoteRows {
    /// Runs a statement on a server.
    ///
    /// # Errors
    /// [`FlightError`] if a call fails; [`FlightError::Malformed`] if the server returns no tickets.
    pub async fn query_server(client: Client, sql: &str) -> Result<Self, FlightError> {
        ServerRows::query(client, sql).await.map(|rows| Self::Server(Box::new(rows)))
    }

    /// Runs a statement on a pool of servers.
    ///
    /// # Errors
    /// As [`Self::query_server`].
    pub async fn query_pool(pool: Arc<Pool>, sql: &str) -> Result<Self, FlightError> {
        PooledRows::run_statement(pool, sql).await.map(|rows| Self::Pool(Box::new(rows)))
    }

    /// Returns the columns of the rows.
    pub fn schema(&self) -> &SchemaRef {
        match self {
            Self::Server(rows) => &rows.schema,
            Self::Pool(rows) => rows.schema(),
        }
    }

    /// Returns the next batch; `None` at the end.
    ///
    /// # Errors
    /// [`FlightError`] if the call fails or the connection is lost.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, FlightError> {
        match self {
            Self::Server(rows) => rows.next().await,
            Self::Pool(rows) => rows.next().await,
        }
    }
}

impl ServerRows {
    async fn query(client: Client, sql: &str) -> Result<Self, FlightError> {
        let mut pending_tickets = client.statement_tickets(sql).await?;
        pending_tickets.reverse();
        let none = FlightError::Malformed { problem: "it names no rows to fetch" };
        let Some(ticket) = pending_tickets.pop() else { return Err(none) };
        let mut batches = client.download(ticket).await?;
        // The schema comes with the first batch, or with the end of the stream.
        let first_batch = batches.next().await?.map(|(batch, _)| batch);
        let Some(schema) = batches.schema().cloned() else { return Err(none) };
        Ok(Self { client, pending_tickets, batches, first_batch, schema })
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>, FlightError> {
        if let Some(first) = self.first_batch.take() {
            return Ok(Some(first));
        }
        loop {
            if let Some((batch, _)) = self.batches.next().await? {
                return Ok(Some(batch));
            }
            let Some(ticket) = self.pending_tickets.pop() else { return Ok(None) };
            self.batches = self.client.download(ticket).await?;
        }
    }
}
