//! Rows of an SQL statement that a remote server or pool runs.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::Bytes;
use godwit_flight::pool::{Pool, PooledRows};
use godwit_flight::{Batches, Client, FlightError};

use crate::statement_parameters::StatementParameters;

/// The rows of a remote statement. The client downloads the tickets of the flight info one after the other, in order.
pub enum RemoteRows {
    /// Rows from one server.
    Server(Box<ServerRows>),
    /// Rows from a pool of servers.
    Pool(Box<PooledRows>),
}

/// Rows from one server.
pub struct ServerRows {
    client: Client,
    /// Tickets that are not downloaded yet, in reverse order.
    pending_tickets: Vec<Bytes>,
    batches: Batches,
    /// The first batch, which was read in advance to know the schema.
    first_batch: Option<RecordBatch>,
    schema: SchemaRef,
}

impl RemoteRows {
    /// Requests that a server runs a statement with values for its parameters, and returns its rows.
    ///
    /// # Errors
    /// [`FlightError`] if a call fails; [`FlightError::Malformed`] if the server returns no tickets.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::sync::Arc;
    /// # use godwit_dataset::{Catalog, Dataset, DatasetError};
    /// # use godwit_flight::{Address, ConnectionSecurity, DatasetService, DatasetServiceOptions};
    /// # use godwit_flight::{Server, TransportOptions};
    /// # use arrow_array::{ArrayRef, Int32Array, RecordBatch, StringArray};
    /// # use godwit_dataset::Principal;
    /// # use godwit_flight::{Download, SqlEngine, StatementDescription, StatementProgress, StatementResult, StatusFuture};
    /// use godwit_flight::Client;
    /// use godwit_query::{RemoteRows, RowFormat, RowWriter, StatementParameters};
    ///
    /// # struct FixedAnswer(RecordBatch);
    /// # impl SqlEngine for FixedAnswer {
    /// #     fn describe_statement(
    /// #         &self,
    /// #         _: &Principal,
    /// #         _: String,
    /// #         _: Option<RecordBatch>,
    /// #     ) -> StatusFuture<'_, StatementDescription> {
    /// #         let (schema, parameters) = (self.0.schema(), Arc::new(arrow_schema::Schema::empty()));
    /// #         Box::pin(async { Ok(StatementDescription { schema, parameters }) })
    /// #     }
    /// #     fn execute(
    /// #         &self,
    /// #         _: &Principal,
    /// #         _: String,
    /// #         _: Option<RecordBatch>,
    /// #         _: StatementProgress,
    /// #     ) -> StatusFuture<'_, StatementResult> {
    /// #         let batches = futures_util::stream::iter([Ok((self.0.clone(), bytes::Bytes::new()))]);
    /// #         let download = Download { schema: self.0.schema(), batches: Box::pin(batches) };
    /// #         Box::pin(async { Ok(StatementResult { download, datasets: Vec::new() }) })
    /// #     }
    /// # }
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
    /// # let contig: ArrayRef = Arc::new(StringArray::from(vec!["chr1"]));
    /// # let position: ArrayRef = Arc::new(Int32Array::from(vec![42]));
    /// # let row = RecordBatch::try_from_iter([("contig", contig), ("position", position)])?;
    /// # let engine = Arc::new(FixedAnswer(row));
    /// # let service = DatasetService::new(Arc::new(NoDatasets), Some(engine), DatasetServiceOptions::default());
    /// # let (routes, security) = (service.routes(), ConnectionSecurity::default());
    /// # let any_port = Address::Tcp("127.0.0.1:0".parse()?);
    /// # let server = Server::bind(&any_port, service, routes, security, TransportOptions::default()).await?;
    /// # let address = server.address().clone();
    /// # tokio::spawn(server.serve());
    /// let client = Client::connect(&address, ConnectionSecurity::default(), TransportOptions::default()).await?;
    /// let sql = "SELECT contig, position FROM sites";
    /// let mut rows = RemoteRows::query_server(client, sql, &StatementParameters::default()).await?;
    /// let mut csv = RowWriter::new(RowFormat::Csv, rows.schema(), Vec::new())?;
    /// while let Some(batch) = rows.next().await? {
    ///     csv.write(batch)?;
    /// }
    /// assert_eq!(String::from_utf8(csv.finish()?)?, "contig,position\nchr1,42\n");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn query_server(
        client: Client,
        sql: &str,
        parameters: &StatementParameters,
    ) -> Result<Self, FlightError> {
        ServerRows::query(client, sql, parameters).await.map(|rows| Self::Server(Box::new(rows)))
    }

    /// Requests that a pool of servers runs a statement, as [`Self::query_server`] does, and returns its rows. If a
    /// member is lost, another member continues.
    ///
    /// # Errors
    /// The same errors as [`Self::query_server`].
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::sync::Arc;
    /// # use godwit_dataset::{Catalog, Dataset, DatasetError};
    /// # use godwit_flight::{Address, ConnectionSecurity, DatasetService, DatasetServiceOptions};
    /// # use godwit_flight::{Server, TransportOptions};
    /// # use arrow_array::{ArrayRef, Int32Array, RecordBatch, StringArray};
    /// # use godwit_dataset::Principal;
    /// # use godwit_flight::{Download, SqlEngine, StatementDescription, StatementProgress, StatementResult, StatusFuture};
    /// use std::time::Duration;
    ///
    /// use godwit_flight::pool::{Member, Pool, PoolNotice, WaitOptions};
    /// use godwit_query::{RemoteRows, StatementParameters};
    ///
    /// # struct FixedAnswer(RecordBatch);
    /// # impl SqlEngine for FixedAnswer {
    /// #     fn describe_statement(
    /// #         &self,
    /// #         _: &Principal,
    /// #         _: String,
    /// #         _: Option<RecordBatch>,
    /// #     ) -> StatusFuture<'_, StatementDescription> {
    /// #         let (schema, parameters) = (self.0.schema(), Arc::new(arrow_schema::Schema::empty()));
    /// #         Box::pin(async { Ok(StatementDescription { schema, parameters }) })
    /// #     }
    /// #     fn execute(
    /// #         &self,
    /// #         _: &Principal,
    /// #         _: String,
    /// #         _: Option<RecordBatch>,
    /// #         _: StatementProgress,
    /// #     ) -> StatusFuture<'_, StatementResult> {
    /// #         let batches = futures_util::stream::iter([Ok((self.0.clone(), bytes::Bytes::new()))]);
    /// #         let download = Download { schema: self.0.schema(), batches: Box::pin(batches) };
    /// #         Box::pin(async { Ok(StatementResult { download, datasets: Vec::new() }) })
    /// #     }
    /// # }
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
    /// # let contig: ArrayRef = Arc::new(StringArray::from(vec!["chr1"]));
    /// # let position: ArrayRef = Arc::new(Int32Array::from(vec![42]));
    /// # let row = RecordBatch::try_from_iter([("contig", contig), ("position", position)])?;
    /// # let engine = Arc::new(FixedAnswer(row));
    /// # let service = DatasetService::new(Arc::new(NoDatasets), Some(engine), DatasetServiceOptions::default());
    /// # let (routes, security) = (service.routes(), ConnectionSecurity::default());
    /// # let any_port = Address::Tcp("127.0.0.1:0".parse()?);
    /// # let server = Server::bind(&any_port, service, routes, security, TransportOptions::default()).await?;
    /// # let address = server.address().clone();
    /// # tokio::spawn(server.serve());
    /// let member = Member {
    ///     location: format!("grpc+tcp://{address}"),
    ///     address,
    ///     security: ConnectionSecurity::default(),
    ///     weight: 1,
    ///     capacity_bytes_per_s: None,
    /// };
    /// let notify = Arc::new(|notice: &PoolNotice| eprintln!("{notice}"));
    /// let pool = Pool::new("archive", vec![member], WaitOptions { timeout: Duration::from_secs(30), notify });
    /// let sql = "SELECT contig, position FROM sites";
    /// let mut rows = RemoteRows::query_pool(Arc::new(pool), sql, &StatementParameters::default()).await?;
    /// assert_eq!(rows.schema().field(1).name(), "position");
    /// assert_eq!(rows.next().await?.map(|batch| batch.num_rows()), Some(1));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn query_pool(pool: Arc<Pool>, sql: &str, parameters: &StatementParameters) -> Result<Self, FlightError> {
        PooledRows::run_statement(pool, sql, parameters.values()).await.map(|rows| Self::Pool(Box::new(rows)))
    }

    /// Returns the schema of the rows.
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
    async fn query(client: Client, sql: &str, parameters: &StatementParameters) -> Result<Self, FlightError> {
        let mut pending_tickets = client.bound_statement_tickets(sql, parameters.values().as_ref()).await?;
        pending_tickets.reverse();
        let none = FlightError::Malformed { problem: "the response contains no tickets" };
        let Some(ticket) = pending_tickets.pop() else { return Err(none) };
        let mut batches = client.download(ticket).await?;
        // Read the first batch, because the schema is known only after the first batch or the end of the rows.
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
