//! Flight SQL (Arrow Flight SQL 1.x, `FlightSql.proto`): its commands, run by an SQL engine.
//!
//! [`SqlEngine`] runs statements. Requests for metadata of the server and its tables are served here from the catalog.
//! Updates, transactions and Substrait plans are rejected with a message.

mod metadata;
mod prepared_statements;
mod server_info;

use std::pin::Pin;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{Schema, SchemaRef};
use godwit_model::Region;
use tonic::Status;

use crate::auth::Principal;
use crate::dataset::{Catalog, Dataset, DatasetAccess};
use crate::metrics::StatementWorkers;
use crate::server::Download;

pub use metadata::{SQL_CATALOG, SQL_SCHEMA, server_info_batch, server_info_schema};
pub(crate) use metadata::{metadata_batch, metadata_schema};
pub(crate) use prepared_statements::{PreparedStatements, random_bytes};

/// A boxed future of a result or a status, which may be sent to another thread.
pub type StatusFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Status>> + Send + 'a>>;

/// The schemas of a statement, before it is run.
#[derive(Clone, Debug)]
pub struct StatementDescription {
    /// Columns of its rows.
    pub schema: SchemaRef,
    /// Its parameters in order, by name and type.
    pub parameters: SchemaRef,
}

/// A running statement.
pub struct StatementResult {
    /// Its rows.
    pub download: Download,
    /// The datasets that it reads, where access rules exist.
    pub datasets: Vec<DatasetAccess>,
}

/// A statement that reads rows of one dataset unchanged, or their number: there is nothing to compute.
#[derive(Debug)]
pub struct DirectScan {
    /// The name of the dataset.
    pub name: String,
    /// The dataset.
    pub dataset: Arc<dyn Dataset>,
    /// The columns of the output.
    pub columns: DirectScanColumns,
    /// Only rows that overlap one of these regions; `None`: all.
    pub regions: Option<Vec<Region>>,
}

/// The columns of the output of a direct scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectScanColumns {
    /// Columns, each once, by their 0-based index in the schema of the dataset.
    Projection(Vec<usize>),
    /// The number of rows, as one row whose column has this name. Where all rows count, [`Dataset::rows`] returns it.
    Count(String),
}

/// Returns the columns as SQL clients see them: without metadata, all nullable. A plan computed without data may report
/// fewer details, and clients compare received columns with advertised ones.
pub fn advertised_schema(schema: &Schema) -> SchemaRef {
    let fields = schema
        .fields()
        .iter()
        .map(|field| field.as_ref().clone().with_nullable(true).with_metadata(Default::default()));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Makes a batch with the advertised columns.
///
/// # Errors
/// An internal error where the columns differ: a bug in godwit.
pub fn advertised_batch(advertised: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, Status> {
    let rows = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(advertised.clone(), columns, &rows)
        .map_err(|error| Status::internal(format!("a bug in godwit: {error}")))
}

/// An engine that runs SQL.
pub trait SqlEngine: Send + Sync + 'static {
    /// Returns the columns and parameters of a statement.
    fn describe_statement(&self, principal: &Principal, sql: String) -> StatusFuture<'_, StatementDescription>;

    /// Returns the worker processes that run statements, where there are any.
    fn statement_workers(&self) -> Option<StatementWorkers> {
        None
    }

    /// Returns the scan that a statement without parameters consists of, where it consists of nothing else and may run
    /// without the resource limits of statements. It may access files.
    fn direct_scan(&self, _catalog: Arc<dyn Catalog>, _sql: &str) -> Option<DirectScan> {
        None
    }

    /// Runs a statement, with a row of values for its parameters where it has any. Dropping the result cancels it.
    fn execute(
        &self,
        principal: &Principal,
        sql: String,
        parameters: Option<RecordBatch>,
    ) -> StatusFuture<'_, StatementResult>;
}
