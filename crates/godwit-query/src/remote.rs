//! The rows of a statement that a server runs.

use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use godwit_flight::pool::{Pool, PooledRows};
use godwit_flight::{Batches, Client, FlightError};

/// Rows as a server gives them: ticket by ticket, in the order that it says.
pub enum RemoteRows {
    /// Of one server.
    Server(Box<ServerRows>),
    /// Of a pool of servers, whichever of them is there.
    Pool(Box<PooledRows>),
}

/// Rows of one server.
pub struct ServerRows {
    client: Client,
    /// Last first.
    tickets: Vec<Bytes>,
    batches: Batches,
    /// Read to know the columns.
    first: Option<RecordBatch>,
    schema: SchemaRef,
}

impl RemoteRows {
    /// Has a server run a statement.
    ///
    /// # Errors
    /// [`FlightError`]; one of [`FlightError::Malformed`] where the server gives nothing to fetch.
    pub async fn ask(client: Client, sql: &str) -> Result<Self, FlightError> {
        ServerRows::ask(client, sql).await.map(|rows| Self::Server(Box::new(rows)))
    }

    /// Has a pool of servers run a statement.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub async fn ask_pool(pool: Arc<Pool>, sql: &str) -> Result<Self, FlightError> {
        PooledRows::ask(pool, sql).await.map(|rows| Self::Pool(Box::new(rows)))
    }

    /// Their columns.
    pub fn schema(&self) -> &SchemaRef {
        match self {
            Self::Server(rows) => &rows.schema,
            Self::Pool(rows) => rows.schema(),
        }
    }

    /// The next batch.
    ///
    /// # Errors
    /// [`FlightError`].
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, FlightError> {
        match self {
            Self::Server(rows) => rows.next().await,
            Self::Pool(rows) => rows.next().await,
        }
    }
}

impl ServerRows {
    async fn ask(client: Client, sql: &str) -> Result<Self, FlightError> {
        let mut tickets = client.ask_sql(sql).await?;
        tickets.reverse();
        let none = FlightError::Malformed { problem: "it names no rows to fetch" };
        let Some(ticket) = tickets.pop() else { return Err(none) };
        let mut batches = client.download(ticket).await?;
        // The columns come with the first batch, or the end.
        let first = batches.next().await?.map(|(batch, _)| batch);
        let Some(schema) = batches.schema().cloned() else { return Err(none) };
        Ok(Self { client, tickets, batches, first, schema })
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>, FlightError> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        loop {
            if let Some((batch, _)) = self.batches.next().await? {
                return Ok(Some(batch));
            }
            let Some(ticket) = self.tickets.pop() else { return Ok(None) };
            self.batches = self.client.download(ticket).await?;
        }
    }
}
